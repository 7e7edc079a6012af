"""Kernels as plain Python: what they need to give the same answers as their machine code.

- Integers of arrays are numpy's, so they wrap around; division by zero gives an infinity or NaN.
  Numpy's warnings about both are not shown while a kernel runs.
- Records of tables are read by attribute, which numpy's own records do not allow.
- What is returned has Python's own numbers.
- A call that is given up half-way leaves the arrays of its arguments as they were.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.compiling.choice import Choice, TakesTooLong


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
