"""The stages by which numba compiles a kernel: those of its own pipeline that kernels need.

Kernels are plain loops over arrays. They have no closures, generators, array expressions or
`literal_unroll`, and stages for these look through the whole of a kernel to find nothing. And where
numba compiles a function into its callers, it analyses it anew for each call of it, and with it all
that it calls in turn. Here that is done once per function.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from types import FunctionType
from typing import Any, NamedTuple

from numba._dynfunc import make_function
from numba.core import ir, types
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, run_frontend
from numba.core.compiler_machinery import AnalysisPass, FunctionPass, PassManager, register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.errors import TypingError
from numba.core.ir_utils import build_definitions, simplify_CFG
from numba.core.typed_passes import IRLegalization, NativeLowering, NoPythonBackend, NopythonTypeInference
from numba.core.untyped_passes import (
    FixupArgs,
    GenericRewrites,
    IRProcessing,
    RewriteSemanticConstants,
    TranslateByteCode,
)

from runtime.compiling.lowering import KernelLower, KnownTypes
from runtime.progress_line import compiling

# LLVM's part in the compilation of a kernel. Numba optimises each function three times, each kernel
# that another one calls for itself and within its caller, and makes machine code of all of them.
# Here everything is optimised once: within the kernel that Python calls, for which alone there is
# machine code.


class EntryLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel that Python calls, and of all kernels that it calls."""

    def _optimize_functions(self, module: Any) -> None:
        """The whole is optimised, once it is complete; only LLVM's layout of data is set."""
        module.data_layout = self._codegen._data_layout  # noqa: SLF001  as in the base class

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager()  # noqa: SLF001  as in the base class
        manager.run(self._final_module, builder)


class CalledLibrary(EntryLibrary):
    """The code of a kernel that other kernels call: intermediate form only."""

    def _optimize_final_module(self) -> None:
        """Its callers optimise it."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


# Put functions that are compiled into their callers in place of their calls, in numba's
# intermediate form. Numba does the same with `inline="always"`, but analyses a function anew for
# each of its calls, and copies all its objects several times. Here a function is analysed once, and
# copied once per call.

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


@register_pass(mutates_CFG=True, analysis_only=False)
class _InlineKernels(FunctionPass):  # type: ignore[misc]
    """Puts the functions that are compiled into their callers in place of their calls."""

    _name = "inline_kernels"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        is_changed = inline_calls(state.func_ir)
        if is_changed:
            blocks = state.func_ir.blocks
            for unreachable in compute_cfg_from_blocks(blocks).dead_nodes():
                del blocks[unreachable]
            blocks = simplify_CFG(blocks)
            # Types are inferred in this order, in rounds until nothing changes: few rounds, then.
            state.func_ir.blocks = {label: blocks[label] for label in compute_cfg_from_blocks(blocks).topo_order()}
        return is_changed


@register_pass(mutates_CFG=False, analysis_only=False)
class _ForgetLiterals(FunctionPass):  # type: ignore[misc]
    """Gives integer constants the type of integers.

    To numba a constant has a type of its own, which a variable with other values cannot have.
    """

    _name = "forget_literals"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            for assignment in block.find_insts(ir.Assign):
                value = assignment.value
                if isinstance(value, ir.Const | ir.Global | ir.FreeVar) and type(value.value) in (int, bool):
                    assignment.value = ir.Const(value.value, value.loc, use_literal_type=False)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _InferTypes(NopythonTypeInference):  # type: ignore[misc]
    """Numba's own stage, which asks for each type once."""

    _name = "infer_types"

    def run_pass(self, state: Any) -> bool:
        context = state.typingctx
        state.typingctx = KnownTypes.of(context, state.flags)
        try:
            return bool(super().run_pass(state))
        finally:
            state.typingctx = context


@register_pass(mutates_CFG=False, analysis_only=True)
class _CheckTypes(AnalysisPass):  # type: ignore[misc]
    """Refuses a variable that is an integer in one place and a float in another.

    A variable has one type here. Python would keep the integer, but machine code would round it.
    """

    _name = "check_types"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            for assignment in block.find_insts(ir.Assign):
                own, value = state.typemap[assignment.target.name], assignment.value
                signature = state.calltypes.get(value) if isinstance(value, ir.Expr) else None
                given = (
                    state.typemap[value.name] if isinstance(value, ir.Var) else getattr(signature, "return_type", own)
                )
                if isinstance(own, types.Float) and isinstance(given, types.Integer | types.Boolean):
                    name = assignment.target.name
                    raise TypingError(f"'{name}' is an integer here, and a float elsewhere", assignment.loc)
        return False


@register_pass(mutates_CFG=False, analysis_only=True)
class _EndLives(IRLegalization):  # type: ignore[misc]
    """Says where variables are used last, which matters only to the counting of references."""

    _name = "end_lives"

    def run_pass(self, state: Any) -> bool:
        return bool(super().run_pass(state)) if state.flags.nrt else False


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerKernel(NativeLowering):  # type: ignore[misc]
    """Makes LLVM's intermediate form."""

    _name = "lower_kernel"

    @property
    def lowering_class(self) -> type:
        return KernelLower


@register_pass(mutates_CFG=False, analysis_only=True)
class _CreateLibrary(AnalysisPass):  # type: ignore[misc]
    """Chooses how LLVM will compile."""

    _name = "create_library"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        library = CalledLibrary if state.flags.no_cpython_wrapper else EntryLibrary
        state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.flags.no_compile = state.flags.no_cpython_wrapper
        return False


@register_pass(mutates_CFG=False, analysis_only=True)
class _OfferToCallers(AnalysisPass):  # type: ignore[misc]
    """Tells numba of a kernel that has no machine code, because only kernels call it."""

    _name = "offer_to_callers"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        lowered = state.cr
        if lowered.cfunc is None:
            described = lowered.fndesc
            no_address = 0
            known_by = make_function(
                described.lookup_module(), described.qualname, "", no_address, lowered.env, (state.library,)
            )
            state.cr = lowered._replace(cfunc=known_by)
            state.targetctx.insert_user_function(state.cr.cfunc, lowered.fndesc, [state.library])
        return False


class KernelCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's compiler with these stages."""

    def compile_extra(self, function: FunctionType) -> Any:
        """Compile a function."""
        with compiling(function.__name__.strip("_"), 1 + len(_compiled_within(function))):
            return super().compile_extra(function)

    def define_pipelines(self) -> list[PassManager]:
        """One pipeline."""
        stages = PassManager("kernel")
        for stage, purpose in (
            (TranslateByteCode, "analyzing bytecode"),
            (FixupArgs, "fix up args"),
            (IRProcessing, "processing IR"),
            (RewriteSemanticConstants, "rewrite semantic constants"),
            (GenericRewrites, "nopython rewrites"),
            (_InlineKernels, "inline kernels"),
            (_ForgetLiterals, "forget literals"),
            (_InferTypes, "infer types"),
            (_CheckTypes, "check types"),
            (_EndLives, "end lives of variables"),
            (_CreateLibrary, "create library"),
            (_LowerKernel, "lower kernel"),
            (_OfferToCallers, "offer to callers"),
            (NoPythonBackend, "nopython mode backend"),
        ):
            stages.add_pass(stage, purpose)
        stages.finalize()
        return [stages]


def _compiled_within(function: FunctionType) -> set[FunctionType]:
    """The functions that it calls and that are not inlined, and what these call."""
    found = set()
    for name in function.__code__.co_names:
        called = function.__globals__.get(name)
        if isinstance(called, Dispatcher):
            found |= _compiled_within(called.py_func)
            if "inline" not in called.targetoptions:
                found.add(called.py_func)
    return found
