"""Kernels: functions over arrays, run as machine code, or as plain Python if there is little to do.

A decorator makes a `Kernel`, and does not load numba. Each call runs the Python function, or the
machine code that numba makes of it: `runtime.compiling.choice` decides. Both give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, update_wrapper
from time import perf_counter
from types import FunctionType
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

from runtime.compiling.choice import Choice, Setting, TakesTooLong, setting
from runtime.compiling.files import can_be_stored, is_on_disk
from runtime.compiling.plain import call_or_give_up, call_plain, checked, longest

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_CHOICE = Choice(setting())


_RAN_PLAIN: set[Kernel[..., Any]] = set()
_ALL: list[Kernel[..., Any]] = []

LOOKS_AGAIN_AFTER = 1.0
"""Seconds after which the disk is asked again for machine code that was not there."""


def load_stored() -> None:
    """Load the machine code of all kernels so far that is on disk, and let others be used at once.

    For a process that lives long, or that such processes are forked from. Nothing is compiled.
    """
    if setting() == Setting.NEVER:
        return
    _CHOICE.load_at_once()
    stored = [item for item in _ALL if is_on_disk(item.function)]
    if stored:
        from runtime.compiling.machine_code import load

        for item in stored:
            load(item.machine_code)


def wants_compiling() -> bool:
    """Whether machine code of kernels that ran as plain Python is not on disk, but could be."""
    return any(not is_on_disk(item.function) and can_be_stored(item.function) for item in _RAN_PLAIN)


class Call(NamedTuple):
    """A call in plain Python."""

    kernel: Kernel[..., Any]
    arguments: tuple[Any, ...]


_RECORDERS: list[list[Call]] = []


@contextmanager
def recorded_calls() -> Iterator[list[Call]]:
    """Lists the calls in plain Python until the block ends. It keeps their arrays."""
    calls: list[Call] = []
    _RECORDERS.append(calls)
    try:
        yield calls
    finally:
        _RECORDERS.remove(calls)


class Kernel(Generic[Parameters, Result]):
    """A function that runs as machine code or as plain Python.

    function: as it was written; it finds other kernels among its globals
    options: numba's
    """

    def __init__(self, function: Callable[Parameters, Result], **options: Any) -> None:
        self.function, self.options = cast(FunctionType, function), options
        self._is_loaded = False
        self._next_look = 0.0
        update_wrapper(self, function)
        _ALL.append(self)

    def __call__(self, *arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        """Run it; arguments have no names, as numba wants it."""
        assert not named, "arguments of kernels are given by position"
        if not self._is_loaded and _CHOICE.is_plain(longest(arguments), self._is_on_disk):
            _RAN_PLAIN.add(self)
            for calls in _RECORDERS:
                calls.append(Call(self, arguments))
            began = _CHOICE.begin(self._is_on_disk)
            try:
                call = call_or_give_up if self.called else call_plain
                return cast(Result, call(self.plain, arguments))
            except TakesTooLong:
                pass
            finally:
                _CHOICE.end(began)
        self._is_loaded = True
        return cast(Result, self.machine_code(*arguments))

    def _is_on_disk(self) -> bool:
        """Whether its machine code is; a look takes a millisecond, and an answer holds a while."""
        if perf_counter() < self._next_look:
            return False
        found = is_on_disk(self.function)
        if not found:
            self._next_look = perf_counter() + LOOKS_AGAIN_AFTER
        return found

    @cached_property
    def machine_code(self) -> Any:
        """Numba's dispatcher, for calls from Python."""
        from runtime.compiling.machine_code import entry

        return entry(self._with_kernels(lambda called: called.called_code), self.options)

    @cached_property
    def called_code(self) -> Any:
        """Numba's dispatcher, for calls from other kernels."""
        from runtime.compiling.machine_code import called

        return called(self._with_kernels(lambda called: called.called_code), self.options)

    @cached_property
    def plain(self) -> FunctionType:
        """The Python function, which calls plain functions in place of kernels.

        A function that calls others may take long, so the time is checked when it is called.
        """
        return self._with_kernels(lambda called: checked(called.plain, _CHOICE) if called.called else called.plain)

    @cached_property
    def called(self) -> dict[str, Kernel[..., Any]]:
        """The kernels that it calls, by their names among its globals."""
        known = self.function.__globals__
        return {name: known[name] for name in self.function.__code__.co_names if isinstance(known.get(name), Kernel)}

    def _with_kernels(self, replaced: Callable[[Kernel[..., Any]], Any]) -> FunctionType:
        """A copy of the function that finds something else in place of kernels."""
        function = self.function
        known = function.__globals__ | {name: replaced(kernel) for name, kernel in self.called.items()}
        copy = FunctionType(function.__code__, known, function.__name__, function.__defaults__)
        copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
        return copy

    def __reduce__(self) -> str:
        """To other processes it travels by name."""
        return self.function.__qualname__


def kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A kernel that takes and returns arrays and numbers only."""
    return Kernel(function)


def borrowing(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A kernel that makes no arrays: its machine code does not count references.

    With reference counting, each access to a tuple of arrays in the innermost loop costs more than
    a step of the search.
    """
    return Kernel(function, _nrt=False)


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A kernel that is compiled into its callers, for functions that innermost loops call."""
    return Kernel(function, inline="always")
