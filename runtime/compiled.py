"""Decorators that compile functions over arrays to machine code with numba, once per machine.

Compiled code is stored on disk beside the module, or in the user's cache folder if the installation
is read-only. If neither can be written, every process compiles again. Numba's cache entry is valid
until the function's own file changes; but the code also contains the kernels that the function
calls and constants of other modules. So the function's name gets a digest of all these sources.
Entries of older versions remain on disk, some megabytes, until `make clean`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from numba import njit

from runtime.kernel_cache import KernelCache

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


_IMPORTED = re.compile(r"^from runtime\.([\w.]+) import", re.MULTILINE)


def sources_digest(folder: Path) -> str:
    """A digest of all modules below `folder` that define kernels, and of their imports."""
    sources = {_module_name(path, folder): path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))}
    kernels = [source for source in sources.values() if "runtime.compiled" in source]
    imported = {name for source in kernels for name in _IMPORTED.findall(source)}
    digest = blake2b(digest_size=8)
    for name, source in sources.items():
        if name in imported or source in kernels:
            digest.update(source.encode())
    return digest.hexdigest()


def _module_name(path: Path, folder: Path) -> str:
    """The dotted name below `folder`: `matching.kernel.search`."""
    return ".".join(path.relative_to(folder).with_suffix("").parts)


_OPTIONS: dict[str, Any] = {"boundscheck": False, "error_model": "numpy"}
_DIGEST = sources_digest(Path(__file__).parent)


def _cached(function: Callable[Parameters, Result], **options: Any) -> Callable[Parameters, Result]:
    """Compile a function when it is first called, or load it from disk."""
    function.__qualname__ = f"{function.__qualname__}_{_DIGEST}"
    compiled: Any = njit(**_OPTIONS, **options)(function)
    with suppress(RuntimeError):  # no folder for the cache is private and can be written
        compiled._cache = KernelCache(function)  # noqa: SLF001  what `cache=True` does, with numba's own cache
    return cast(Callable[Parameters, Result], compiled)


def kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function that takes and returns arrays and numbers only."""
    return _cached(function)


def borrowing(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a kernel that makes no arrays, without reference counting.

    With reference counting, each access to a tuple of arrays in the innermost loop costs more than
    a step of the search.
    """
    return _cached(function, _nrt=False)


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function into its callers, for functions that innermost loops call."""
    compiled: Callable[Parameters, Result] = njit(inline="always", boundscheck=False, error_model="numpy")(function)
    return compiled
