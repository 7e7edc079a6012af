"""From numba's intermediate form to LLVM's, for kernels that do not count references.

Numba gives each variable of several blocks a place on the stack, writes a zero there where the
variable is last used, and copies an array's seven fields to the stack for each access to one of its
items. LLVM finds out that none of this is needed, which is half of its work. Here a variable that
is assigned once, before all of its uses, is a value; and an item is read and written where it is.
What kernels rarely do is left to numba.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from operator import getitem
from typing import Any

from llvmlite.ir import Constant
from numba.core import ir, types
from numba.core.analysis import compute_cfg_from_blocks, compute_use_defs
from numba.core.lowering import Lower
from numba.np.arrayobj import fix_integer_index, load_item, store_item

# What numba has found out about types of calls and attributes, kept for the next time. Numba infers
# types in several rounds, and looks anew for the result of each operator and attribute, in each
# round and again when it makes code: among a hundred candidates for an operator, most of them for
# types that kernels do not have. The answer depends on the types alone.

_known: dict[tuple[bool, Any], KnownTypes] = {}


class KnownTypes:
    """A typing context of numba's that keeps what it has resolved."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._calls = dict[Any, Any]()
        self._attributes = dict[Any, Any]()

    @staticmethod
    def of(context: Any, flags: Any) -> KnownTypes:
        """That of a context, for functions that count references or do not."""
        key = bool(flags.nrt), context
        if key not in _known:
            _known[key] = KnownTypes(context)
        return _known[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """The signature of a call; numba's own functions only are kept."""
        is_numbas = func is getitem or isinstance(func, types.Function | str)
        if kws or not is_numbas or not all(isinstance(one, types.Type) for one in args):
            return self._context.resolve_function_type(func, args, kws)
        key = func, tuple(args)
        found = self._calls.get(key)
        if found is None:
            found = self._context.resolve_function_type(func, args, kws)
            if found is not None:
                self._calls[key] = found
        return found

    def resolve_getattr(self, typ: Any, attr: str) -> Any:
        """The type of an attribute; those of tuples and records only are kept."""
        if not isinstance(typ, types.BaseNamedTuple | types.Record):
            return self._context.resolve_getattr(typ, attr)
        key = typ, attr
        found = self._attributes.get(key)
        if found is None:
            found = self._context.resolve_getattr(typ, attr)
            if found is not None and not isinstance(found, types.Callable):
                self._attributes[key] = found
        return found

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        """The signature of the writing of an item."""
        key = "setitem", target, index, value
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = self._context.resolve_setitem(target, index, value)
        return found


_PLAIN_OPERATORS = {
    operator.add,
    operator.sub,
    operator.mul,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.iand,
    operator.ior,
    operator.ixor,
}
"""Operators of numbers for which numba knows nothing better if an operand is constant."""


class KernelLower(Lower):  # type: ignore[misc]
    """Numba's class, with short cuts for functions without reference counting."""

    def lower_function_body(self) -> Any:
        """Lower all blocks, each after those that it can only be reached through."""
        if self.flags.nrt:
            return super().lower_function_body()
        for label in self.blocks:
            self.blkmap[label] = self.function.append_basic_block(f"B{label}")
        self.pre_lower()
        end_of_entry = self.builder.basic_block
        for label in self._order():
            self.builder.position_at_end(self.blkmap[label])
            self.lower_block(self.blocks[label])
        self.post_lower()
        return end_of_entry

    def _order(self) -> list[int]:
        ordered = list(compute_cfg_from_blocks(self.blocks).topo_order())
        known = set(ordered)
        return [*ordered, *(label for label in sorted(self.blocks) if label not in known)]

    def _find_singly_assigned_variable(self) -> None:
        super()._find_singly_assigned_variable()
        if not self.flags.nrt:
            self._singly_assigned_vars |= values_of(self.blocks)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """Store a variable's value; what was there before need not be released."""
        if self.flags.nrt or name in self._singly_assigned_vars or argidx is not None:
            super().storevar(value, name, argidx)
            return
        self._alloca_var(name, self.typeof(name))
        self.builder.store(value, self.getvar(name))

    def lower_inst(self, inst: Any) -> Any:
        """Lower a statement."""
        if isinstance(inst, ir.StaticSetItem) and isinstance(self.typeof(inst.target.name), types.Array):
            signature = self.fndesc.calltypes[inst]
            return self.lower_setitem(inst.target, inst.index_var, inst.value, signature)
        return super().lower_inst(inst)

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Lower an expression."""
        if expr.op == "static_getitem" and isinstance(self.typeof(expr.value.name), types.Array):
            signature = self.fndesc.calltypes[expr]
            if expr.index_var is not None and signature is not None:
                return self.lower_getitem(resty, expr, expr.value, expr.index_var, signature)
        if expr.op == "getattr":
            of = self.typeof(expr.value.name)
            fields = _fields(of)
            if expr.attr in fields and not self.flags.nrt:
                index = fields.index(expr.attr)
                value = self.builder.extract_value(self.loadvar(expr.value.name), index)
                return self.context.cast(self.builder, value, of.types[index], resty)
        return super().lower_expr(resty, expr)

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """Lower an operator with two operands."""
        signature = self.fndesc.calltypes[expr]
        if op not in _PLAIN_OPERATORS or not all(isinstance(of, types.Number | types.Boolean) for of in signature.args):
            return super().lower_binop(resty, expr, op)
        context, builder = self.context, self.builder
        function = context.typing_context.resolve_value_type(op)
        found = KnownTypes.of(context.typing_context, self.flags).resolve_function_type(function, signature.args, {})
        operands = [
            context.cast(builder, self.loadvar(operand.name), self.typeof(operand.name), of)
            for operand, of in zip((expr.lhs, expr.rhs), signature.args, strict=True)
        ]
        result = context.get_function(function, found)(builder, operands)
        return context.cast(builder, result, signature.return_type, resty)

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """Lower the reading of an item."""
        of = self.typeof(value.name)
        if not self._is_item(of, signature.args):
            return super().lower_getitem(resty, expr, value, index, signature)
        pointer = self._pointer(of, value, index, signature.args[1])
        item = load_item(self.context, self.builder, of, pointer)
        return self.context.cast(self.builder, item, signature.return_type, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """Lower the writing of an item."""
        of = self.typeof(target_var.name)
        if not self._is_item(of, signature.args):
            return super().lower_setitem(target_var, index_var, value_var, signature)
        context, builder = self.context, self.builder
        value = self.loadvar(value_var.name)
        pointer = self._pointer(of, target_var, index_var, signature.args[1])
        value = context.cast(builder, value, self.typeof(value_var.name), signature.args[2])
        value = context.cast(builder, value, signature.args[2], of.dtype)
        store_item(context, builder, of, value, pointer)
        return None

    def _is_item(self, of: Any, arguments: Sequence[Any]) -> bool:
        """Whether one item of an array is read or written, without looking at bounds."""
        if not isinstance(of, types.Array) or of != arguments[0]:
            return False
        if of.layout != "C" or self.context.enable_boundscheck:
            return False
        return len(_axes(arguments[1])) == of.ndim

    def _pointer(self, of: Any, array: Any, index: Any, index_type: Any) -> Any:
        """Where an item is."""
        context, builder = self.context, self.builder
        loaded = self.loadvar(array.name)
        given = context.cast(builder, self.loadvar(index.name), self.typeof(index.name), index_type)
        fields = context.data_model_manager[of]
        shape = fields.get_field_position("shape")
        offset = None
        for axis, of_axis in enumerate(_axes(index_type)):
            place = builder.extract_value(given, axis) if isinstance(index_type, types.BaseTuple) else given
            # A negative place counts from the end.
            if not _is_from_start(place):
                place = fix_integer_index(
                    context, builder, of_axis, place, builder.extract_value(loaded, [shape, axis])
                )
            if offset is not None:
                place = builder.add(builder.mul(offset, builder.extract_value(loaded, [shape, axis])), place)
            offset = place
        return builder.gep(builder.extract_value(loaded, fields.get_field_position("data")), [offset])


def _is_from_start(place: Any) -> bool:
    """Whether a place is known, and does not count from the end."""
    return (
        isinstance(place, Constant) and place.type.width == 64 and type(place.constant) is int and place.constant >= 0
    )


def _fields(of: Any) -> tuple[str, ...]:
    """The names of a named tuple; () if a type is something else."""
    return tuple(of.fields) if isinstance(of, types.NamedTuple | types.NamedUniTuple) else ()


def _axes(index: Any) -> tuple[Any, ...]:
    """The types of an index, by axis; () if one is not an integer."""
    axes: tuple[Any, ...] = index.types if isinstance(index, types.Tuple | types.UniTuple) else (index,)
    return axes if all(isinstance(axis, types.Integer) for axis in axes) else ()


def values_of(blocks: Mapping[int, Any]) -> set[str]:
    """The variables that are assigned once, before all of their uses."""
    uses = compute_use_defs(blocks)
    assigned_in: dict[str, int | None] = {}
    for label, block in blocks.items():
        for assignment in block.find_insts(ir.Assign):
            name = assignment.target.name
            assigned_in[name] = None if name in assigned_in else label
    used_in: dict[str, set[int]] = {}
    for label, names in uses.usemap.items():  # those that a block uses before it assigns them
        for name in names:
            used_in.setdefault(name, set()).add(label)
    comes_before = _Dominators(blocks)
    return {
        name
        for name, label in assigned_in.items()
        if label is not None and all(comes_before(label, use) for use in used_in.get(name, ()))
    }


class _Dominators:
    """Whether every way to a block leads through another one."""

    def __init__(self, blocks: Mapping[int, Any]) -> None:
        graph = compute_cfg_from_blocks(blocks)
        children: dict[int, list[int]] = {}
        for label, above in graph.immediate_dominators().items():
            if label != above:
                children.setdefault(above, []).append(label)
        self._first, self._last = dict[int, int](), dict[int, int]()
        # Numbers in the order of a walk through the tree: those below a block are neighbours.
        walk, number = [(graph.entry_point(), False)], 0
        while walk:
            label, is_done = walk.pop()
            if is_done:
                self._last[label] = number
                continue
            self._first[label] = number = number + 1
            walk.append((label, True))
            walk.extend((child, False) for child in children.get(label, ()))

    def __call__(self, label: int, other: int) -> bool:
        if label == other or label not in self._first or other not in self._first:
            return False
        return self._first[label] < self._first[other] <= self._last[label]
