"""Machine code of kernels, made by numba, once per machine.

Compiled code is stored on disk beside the module, or in the user's cache folder if the installation
is read-only. If neither can be written, every process compiles again. Numba's cache entry is valid
until the function's own file changes; but the code also contains the kernels that the function
calls and constants of other modules. So the function's name gets a digest of all these sources.
Entries of older versions remain on disk, some megabytes, until `make clean`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any

from numba import njit

from runtime.kernel_cache import KernelCache
from runtime.kernel_files import name_on_disk


def dispatcher(function: FunctionType, options: Mapping[str, Any]) -> Any:
    """Numba's dispatcher of a function whose globals hold dispatchers of the kernels that it calls.

    It compiles when it is called, or loads what is on disk.
    """
    is_inlined = "inline" in options
    if not is_inlined:
        function.__qualname__ = name_on_disk(function)
    # Other threads run meanwhile: kernels touch only the arrays that they are given.
    made: Any = njit(boundscheck=False, error_model="numpy", nogil=not is_inlined, **options)(function)
    if not is_inlined:
        with suppress(RuntimeError):  # no folder for the cache is private and can be written
            made._cache = KernelCache(function)  # noqa: SLF001  what `cache=True` does, with numba's own cache
    return made
