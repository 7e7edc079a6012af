"""Kernels compiled before they are needed, in as many processes as there are cores.

Calls in plain Python tell which kernels are needed, and for which types of arguments. The processes
are forks, so they share what has been imported. Each takes the largest kernel that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, NamedTuple

from querylang.errors import InputError
from runtime.compiling.compiled import Call, Kernel
from runtime.compiling.notice import be_silent


class _Version(NamedTuple):
    """Machine code to be made: of a kernel, for some types of arguments."""

    kernel: Kernel[..., Any]
    types: tuple[Any, ...]


_versions: list[_Version] = []
"""What is being compiled: forks find it here, because numba's dispatchers do not travel well."""


def compile_calls(calls: Iterable[Call], processes: int, tell: Callable[[int, int], None] | None) -> None:
    """Compile what some calls need, and store it; raises InputError if a process is ended.

    tell: is called with the number of versions that are done, and of all
    """
    versions = {_version(call): None for call in calls}
    _versions[:] = sorted(versions, key=lambda version: -_size(version.kernel))
    for done, _ in enumerate(_compile_all(processes)):
        if tell is not None:
            tell(done, len(_versions))


def _compile_all(processes: int) -> Iterator[None]:
    """Yields before the first version, and after each."""
    yield
    if processes == 1:
        yield from map(_compile, range(len(_versions)))
        return
    _load_numba()
    try:
        with ProcessPoolExecutor(processes, get_context("fork"), initializer=be_silent) as pool:
            yield from pool.map(_compile, range(len(_versions)))
    except BrokenProcessPool as error:
        raise InputError("a process that compiled kernels was ended from outside: is memory short?") from error


def _load_numba() -> None:
    """Load what numba knows of types and functions: here, not in each fork."""
    from numba.core.registry import cpu_target

    cpu_target.target_context.refresh()


def _compile(number: int) -> None:
    version = _versions[number]
    version.kernel.machine_code.compile(version.types)


def _version(call: Call) -> _Version:
    type_of = call.kernel.machine_code.typeof_pyval
    return _Version(call.kernel, tuple(map(type_of, call.arguments)))


def _size(kernel: Kernel[..., Any]) -> int:
    """How much there is to compile: bytes of Python's code, with the kernels that it calls."""
    return len(kernel.function.__code__.co_code) + sum(map(_size, kernel.called.values()))
