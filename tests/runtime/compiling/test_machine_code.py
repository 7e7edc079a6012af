"""How kernels are compiled: calls inlined, one version each, machine code for what Python calls."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from runtime.compiling.compiled import Kernel, borrowing, inlined

Integers = NDArray[np.int64]


class Pair(NamedTuple):
    """Two arrays."""

    left: Integers
    right: Integers


@inlined
def _larger(one: int, other: int) -> int:
    if one > other:
        return one
    return other


@inlined
def _first_larger(pair: Pair, than: int, start: int) -> tuple[int, int]:
    """Of two returns in a loop, with a call that is inlined in turn."""
    for place in range(start, len(pair.left)):
        found = _larger(pair.left[place], pair.right[place])
        if found > than:
            return place, found
    return -1, than


@borrowing
def _times(factor: int, value: int) -> int:
    return factor * value


@borrowing
def answers(pair: Pair, into: Integers) -> int:
    """Calls the same functions several times, in the order and with the names of its own."""
    than, count = 10, 0
    place, found = _first_larger(pair, than, 0)
    into[0], into[1] = place, found
    place, than = _first_larger(pair, 5, 1)
    into[2], into[3] = place, than
    while count < 3:
        count += _larger(_larger(1, count), 0)
    into[4] = _times(2, count)
    into[5] = _times(3, count)
    into[6] = _times(found, count)
    return count


def _versions(kernel: Any) -> int:
    return len(cast(Kernel[..., Any], kernel).called_code.overloads)


def test_inlined_functions_do_what_they_do_when_called() -> None:
    pair = Pair(np.array([3, 11, 4]), np.array([9, 2, 14]))
    both = [np.full(7, -7), np.full(7, -7)]
    kernel = cast(Kernel[..., int], answers)
    results = [kernel.machine_code(pair, both[0]), kernel.plain(pair, both[1])]
    assert results == [4, 4]
    assert both[0].tolist() == both[1].tolist() == [1, 11, 1, 11, 8, 12, 44]


def test_constants_among_arguments_make_no_versions() -> None:
    cast(Kernel[..., int], answers).machine_code(Pair(np.zeros(3, np.int64), np.zeros(3, np.int64)), np.zeros(7, int))
    assert _versions(_times) == 1
