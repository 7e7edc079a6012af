"""`kernel`: compiles a function over arrays to machine code, once per machine.

The compiled code is kept on disk beside the module, or in the user's cache folder when the installation is read-only
(numba's own order); where nothing can be written it is compiled anew in each process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from numba import njit

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A decorator for functions that numba compiles; they take and give arrays and numbers only."""
    try:
        compiled: Callable[Parameters, Result] = njit(cache=True, boundscheck=False, error_model="numpy")(function)
    except RuntimeError:  # no place to keep the cache
        compiled = njit(cache=False, boundscheck=False, error_model="numpy")(function)
    return compiled


def borrowing(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A decorator for kernels that make no arrays: they borrow what they are given, so that nothing is counted.

    With reference counts, each look into a tuple of arrays inside the innermost loop costs more than a step of the search.
    """
    options: dict[str, Any] = {"boundscheck": False, "error_model": "numpy", "_nrt": False}
    try:
        compiled: Callable[Parameters, Result] = njit(cache=True, **options)(function)
    except RuntimeError:  # no place to keep the cache
        compiled = njit(cache=False, **options)(function)
    return compiled


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A decorator for functions that kernels call in their innermost loop: their code is put into the caller's."""
    compiled: Callable[Parameters, Result] = njit(inline="always", boundscheck=False, error_model="numpy")(function)
    return compiled
