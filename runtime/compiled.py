"""`kernel`: compiles a function over arrays to machine code, once per machine.

The compiled code is kept on disk beside the module, or in the user's cache folder when the installation is read-only
(numba's own order); where nothing can be written it is compiled anew in each process. Numba keeps it under the function's
name until the function's own file changes. But it has in it the kernels that the function calls, and numbers and tuples of modules
that it imports: so the name has a digest of all of these. What an older version has left is not removed: some
megabytes beside the modules, which `make clean` takes away.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from numba import njit

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


_IMPORTED = re.compile(r"^from runtime\.([\w.]+) import", re.MULTILINE)


def sources_digest(folder: Path) -> str:
    """A digest of every module below `folder` that defines kernels, and of the modules that those import."""
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


def _kept(function: Callable[Parameters, Result], **options: Any) -> Callable[Parameters, Result]:
    """Compiled when it is first called, or found on disk."""
    function.__qualname__ = f"{function.__qualname__}_{_DIGEST}"
    try:
        compiled: Callable[Parameters, Result] = njit(cache=True, **_OPTIONS, **options)(function)
    except RuntimeError:  # no place to keep the cache
        compiled = njit(cache=False, **_OPTIONS, **options)(function)
    return compiled


def kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A decorator for functions that numba compiles; they take and give arrays and numbers only."""
    return _kept(function)


def borrowing(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A decorator for kernels that make no arrays: they borrow what they are given, so that nothing is counted.

    With reference counts, each look into a tuple of arrays inside the innermost loop costs more than a step of the search.
    """
    return _kept(function, _nrt=False)


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A decorator for functions that kernels call in their innermost loop: their code is put into the caller's."""
    compiled: Callable[Parameters, Result] = njit(inline="always", boundscheck=False, error_model="numpy")(function)
    return compiled
