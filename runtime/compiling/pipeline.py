"""The stages by which numba compiles a kernel: those of its own pipeline that kernels need.

Kernels are plain loops over arrays. They have no closures, generators, array expressions or
`literal_unroll`, and stages for these look through the whole of a kernel to find nothing. And where
numba compiles a function into its callers, it analyses it anew for each call of it, and with it all
that it calls in turn. Here that is done once per function.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from numba._dynfunc import make_function
from numba.core import ir, types
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import AnalysisPass, FunctionPass, PassManager, register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.errors import TypingError
from numba.core.ir_utils import simplify_CFG
from numba.core.typed_passes import IRLegalization, NativeLowering, NoPythonBackend, NopythonTypeInference
from numba.core.untyped_passes import (
    FixupArgs,
    GenericRewrites,
    IRProcessing,
    RewriteSemanticConstants,
    TranslateByteCode,
)

from runtime.compiling.inlining import inline_calls
from runtime.compiling.known_types import KnownTypes
from runtime.compiling.library import CalledLibrary, EntryLibrary
from runtime.compiling.lowering import KernelLower
from runtime.compiling.notice import compiling


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
