"""Put functions that are compiled into their callers in place of their calls, in numba's
intermediate form.

Numba does the same with `inline="always"`, but analyses a function anew for each of its calls, and
copies all its objects several times. Here a function is analysed once, and copied once per call.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from types import FunctionType
from typing import Any, NamedTuple

from numba.core import ir
from numba.core.compiler import run_frontend
from numba.core.ir_utils import build_definitions

_numbers = count()
"""Make the names of copied variables unique."""


class _Call(NamedTuple):
    """A call: the function, its place in a block, the variables of arguments and result."""

    called: FunctionType
    at: int
    arguments: tuple[ir.Var, ...]
    result: ir.Var


def inline_calls(function: ir.FunctionIR) -> bool:
    """Inline all calls of functions that are to be inlined; whether there were any."""
    places, found = list(function.blocks.values()), False
    while places:
        block = places.pop()
        call = _first_call(function, block)
        if call is not None:
            places.append(_inline(function, block, call))
            found = True
    if found:
        function._definitions = build_definitions(function.blocks)  # noqa: SLF001  has no other door
    return found


@cache
def _analysed(function: FunctionType) -> ir.FunctionIR:
    """A function's intermediate form, all calls in it inlined."""
    analysed = run_frontend(function)
    inline_calls(analysed)
    return analysed


def _first_call(function: ir.FunctionIR, block: ir.Block) -> _Call | None:
    """The first call in a block that is to be inlined."""
    for at, statement in enumerate(block.body):
        value = getattr(statement, "value", None)
        if isinstance(value, ir.Expr) and value.op == "call":
            found: Any = getattr(_only_definition(function, value.func), "value", None)
            if getattr(found, "targetoptions", {}).get("inline") == "always":
                assert not value.kws, "arguments of kernels are given by position"
                return _Call(found.py_func, at, tuple(value.args), statement.target)
    return None


def _only_definition(function: ir.FunctionIR, variable: ir.Var) -> Any:
    """What a variable is, if it is assigned once."""
    found = function._definitions.get(variable.name, [])  # noqa: SLF001  has no other door
    return found[0] if len(found) == 1 else None


def _inline(function: ir.FunctionIR, block: ir.Block, call: _Call) -> ir.Block:
    """Replace a call by the blocks of the called function; returns the block behind the call."""
    template = _analysed(call.called)
    offset = max(function.blocks) + 1
    after = offset + max(template.blocks) + 1
    rest = ir.Block(block.scope, block.loc)
    rest.body = block.body[call.at + 1 :]
    block.body = [*block.body[: call.at], ir.Jump(offset + min(template.blocks), block.loc)]
    copier = _Copier(block.scope, call, offset, after)
    for label, original in template.blocks.items():
        copy = ir.Block(block.scope, original.loc)
        copy.body = [part for statement in original.body for part in copier.statements(statement)]
        function.blocks[offset + label] = copy
    function.blocks[after] = rest
    return rest


class _Copier:
    """Copies the statements of a called function for one call.

    offset: of the labels of its blocks
    after: the label of what follows the call
    """

    def __init__(self, scope: ir.Scope, call: _Call, offset: int, after: int) -> None:
        self._scope, self._call, self._offset, self._after = scope, call, offset, after
        self._number, self._variables = next(_numbers), dict[str, ir.Var]()

    def statements(self, statement: Any) -> tuple[ir.Stmt, ...]:
        """The copy of a statement; a return assigns the result, and jumps behind the call."""
        loc = statement.loc
        match statement:
            case ir.Return():
                result = ir.Assign(self._copied(statement.value), self._call.result, loc)
                return result, ir.Jump(self._after, loc)
            case ir.Jump():
                return (ir.Jump(self._offset + statement.target, loc),)
            case ir.Branch():
                targets = self._offset + statement.truebr, self._offset + statement.falsebr
                return (ir.Branch(self._copied(statement.cond), *targets, loc),)
        copy = object.__new__(type(statement))
        copy.__dict__.update({name: self._copied(value) for name, value in statement.__dict__.items()})
        return (copy,)

    def _copied(self, value: Any) -> Any:
        """The copy of a part of a statement; what never changes is not copied."""
        match value:
            case ir.Var():
                return self._variable(value)
            case ir.Arg():
                return self._call.arguments[value.index]
            case ir.Expr():
                if value.op == "cast":  # of what is returned, to a type that is not known yet
                    return self._copied(value.value)
                parts = {name: self._copied(part) for name, part in value._kws.items()}  # noqa: SLF001  as above
                return ir.Expr(value.op, value.loc, **parts)
            case list() | tuple():
                return type(value)([self._copied(part) for part in value])
        return value

    def _variable(self, variable: ir.Var) -> ir.Var:
        """The caller's variable in place of one of the called function."""
        found = self._variables.get(variable.name)
        if found is None:
            found = self._scope.define(f"{variable.name}.i{self._number}", variable.loc)
            self._variables[variable.name] = found
        return found
