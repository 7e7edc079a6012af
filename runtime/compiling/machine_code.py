"""Machine code of kernels, made by numba, once per machine.

Compiled code is stored on disk beside the module, or in the user's cache folder if the installation
is read-only. If neither can be written, every process compiles again. Numba's cache entry is valid
until the function's own file changes; but the code also contains the kernels that the function
calls and constants of other modules. So the function's name gets a digest of all these sources.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any

from numba.core import types
from numba.core.registry import CPUDispatcher

from runtime.compiling.cache import KernelCache
from runtime.compiling.files import name_on_disk
from runtime.compiling.pipeline import KernelCompiler


class _Dispatcher(CPUDispatcher):
    """Numba's dispatcher. It compiles no version of its own for constants among the arguments."""

    def compile(self, signature: Any) -> Any:
        with _without_collection():
            return super().compile(signature)

    def get_call_template(self, arguments: Any, named: Any) -> Any:
        return super().get_call_template(tuple(map(types.unliteral, arguments)), named)


def entry(function: FunctionType, options: Mapping[str, Any]) -> Any:
    """What runs the machine code of a function that Python calls.

    Its globals hold what `called` has made of the kernels that it calls. It compiles when it is
    called, or loads what is on disk.
    """
    function.__qualname__ = name_on_disk(function)
    made = _dispatcher(function, options)
    with suppress(RuntimeError):  # no folder for the cache is private and can be written
        made._cache = KernelCache(function)  # noqa: SLF001  what `cache=True` does, with numba's own cache
    return made


def load(entry: Any) -> None:
    """Load what is on disk for this processor, whatever the types of its arguments."""
    if isinstance(entry._cache, KernelCache):  # noqa: SLF001  as above
        for signature in entry._cache.signatures(entry.targetctx.codegen()):  # noqa: SLF001
            entry.compile(signature)


def called(function: FunctionType, options: Mapping[str, Any]) -> Any:
    """The same for a function that other kernels call: its machine code is part of theirs."""
    return _dispatcher(function, {"no_cpython_wrapper": True, **options})


@contextmanager
def _without_collection() -> Iterator[None]:
    """Python collects no garbage meanwhile: it would look at the compiler's objects many times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _dispatcher(function: FunctionType, options: Mapping[str, Any]) -> Any:
    # Other threads run meanwhile: kernels touch only the arrays that they are given.
    options = {
        "nogil": True,
        "nopython": True,
        "boundscheck": False,
        "error_model": "numpy",
        "no_cfunc_wrapper": True,
        **options,
    }
    return _Dispatcher(function, targetoptions=options, pipeline_class=KernelCompiler)
