"""Kernels: functions over arrays, run as machine code, or as plain Python if there is little to do.

A decorator makes a `Kernel`, and does not load numba. Each call runs the Python function, or the
machine code that numba makes of it: `Choice` decides. Both give the same answer.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cache, cached_property, update_wrapper
from math import inf
from time import perf_counter
from types import FunctionType
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from querylang.errors import InputError
from runtime.compiling.files import can_be_stored, is_on_disk

# The choice between plain Python and machine code, call by call of a kernel. Machine code is some
# hundred times as fast, but it must be loaded, and compiled first, once per machine. So a process
# begins with plain Python. It changes to machine code at a call with many entries, or once calls in
# plain Python have taken as long as the change does. So nothing takes much longer than with the
# better choice. `ENSUE_COMPILE` sets the choice; answers are the same.

VARIABLE = "ENSUE_COMPILE"


class CompileSetting(StrEnum):
    """The values of the environment variable."""

    AUTO = "auto"  # plain Python first; a process in the background compiles for the next time
    OFF = "off"  # the same without that process
    ALWAYS = "always"  # machine code from the first call on
    NEVER = "never"  # plain Python only


def setting() -> CompileSetting:
    """What the environment says. Raises InputError."""
    found = os.environ.get(VARIABLE) or CompileSetting.AUTO
    if found not in set(CompileSetting):
        raise InputError(f"{VARIABLE}: expected {', '.join(CompileSetting)}; found '{found}'")
    return CompileSetting(found)


class Patience(NamedTuple):
    """How long plain Python is good enough.

    seconds: that its calls have taken in this process
    entries: of the longest array of a call
    """

    seconds: float
    entries: int


TO_LOAD = Patience(1.0, 20_000)
"""While a kernel's machine code is on disk: to load all of it takes about a second."""

TO_COMPILE = Patience(20.0, 100_000)
"""While it is not: to compile it takes about a quarter of a minute."""


AT_ONCE = Patience(-1.0, -1)
"""For a process that lives long: machine code that is on disk is used from the first call on."""


class TakesTooLong(Exception):
    """A call in plain Python is given up; machine code makes it again."""


class Choice:
    """What a process has chosen so far."""

    def __init__(self, setting: CompileSetting) -> None:
        self._setting = setting
        self._to_load = TO_LOAD
        self._spent = 0.0  # seconds, by the calls in plain Python that have ended
        self._deadline = self._last_deadline = inf  # of the call at work; the second one if nothing is on disk
        self._is_on_disk: Callable[[], bool] = lambda: True

    def load_at_once(self) -> None:
        """Wait no longer for machine code that is on disk."""
        self._to_load = AT_ONCE

    def is_plain(self, entries: int, is_on_disk: Callable[[], bool]) -> bool:
        """Whether a call runs as plain Python.

        entries: of its longest array
        is_on_disk: whether the kernel's machine code is
        """
        if self._setting in {CompileSetting.ALWAYS, CompileSetting.NEVER}:
            return self._setting == CompileSetting.NEVER
        if entries <= self._to_load.entries and self._spent <= self._to_load.seconds:
            return True
        return entries <= TO_COMPILE.entries and self._spent <= TO_COMPILE.seconds and not is_on_disk()

    def begin(self, is_on_disk: Callable[[], bool]) -> float:
        """A call in plain Python begins; returns when."""
        now = perf_counter()
        if self._setting != CompileSetting.NEVER:
            self._is_on_disk = is_on_disk
            self._deadline = now + self._to_load.seconds - self._spent
            self._last_deadline = now + TO_COMPILE.seconds - self._spent
        return now

    def end(self, began: float) -> None:
        """It ends, or is given up."""
        self._spent += perf_counter() - began

    def check_time(self) -> None:
        """Raise TakesTooLong if the call at work has taken too long."""
        if perf_counter() > self._deadline:
            if self._deadline >= self._last_deadline or self._is_on_disk():
                raise TakesTooLong
            self._deadline = self._last_deadline


# Kernels as plain Python: what they need to give the same answers as their machine code.
#
# - Integers of arrays are numpy's, so they wrap around; division by zero gives an infinity or NaN.
#   Numpy's warnings about both are not shown while a kernel runs.
# - Records of tables are read by attribute, which numpy's own records do not allow.
# - What is returned has Python's own numbers.
# - A call that is given up half-way leaves the arrays of its arguments as they were.


def call_plain(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call the Python function of a kernel."""
    with np.errstate(all="ignore"):
        return _as_returned(function(*(_readable(item) for item in arguments)))


def call_or_give_up(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The same; if it raises TakesTooLong, no argument has changed."""
    saved = [(array, array.copy()) for array in arrays_of(arguments) if array.flags.writeable]
    try:
        return call_plain(function, arguments)
    except TakesTooLong:
        for array, before in saved:
            array[...] = before
        raise


def checked(function: Callable[..., Any], choice: Choice) -> Callable[..., Any]:
    """The function, which raises TakesTooLong if the call at work takes too long."""

    def check_and_call(*arguments: Any) -> Any:
        choice.check_time()
        return function(*arguments)

    return check_and_call


def longest(arguments: tuple[Any, ...]) -> int:
    """The number of entries of the longest array."""
    return max((len(array) for array in arrays_of(arguments)), default=0)


def arrays_of(value: Any) -> Iterator[NDArray[Any]]:
    """The arrays of arguments, also those in tuples."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from arrays_of(item)


def _readable(value: Any) -> Any:
    """An argument with tables of records as lists of named tuples; no kernel writes to them."""
    if isinstance(value, np.ndarray):
        return value if value.dtype.names is None else list(map(_record(value.dtype.names)._make, value.tolist()))
    if isinstance(value, tuple):
        items = [_readable(item) for item in value]
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    return value


def _as_returned(value: Any) -> Any:
    """A result with Python's numbers in place of numpy's."""
    if isinstance(value, tuple):
        items = [_as_returned(item) for item in value]
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    return value.item() if isinstance(value, np.generic) else value


@cache
def _record(names: tuple[str, ...]) -> Any:
    return namedtuple("Record", names)  # noqa: PYI024  the fields are known when it runs


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
    if setting() == CompileSetting.NEVER:
        return
    _CHOICE.load_at_once()
    stored = [item for item in _ALL if is_on_disk(item.function)]
    if stored:
        from runtime.compiling.machine_code import load

        for item in stored:
            load(item.machine_code)


def load_compiler() -> None:
    """Load what numba knows of types and functions, before forks would load it each."""
    from numba.core.registry import cpu_target

    cpu_target.target_context.refresh()


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
