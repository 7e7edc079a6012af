"""Binary heaps of (time, number) pairs, the least pair on top.

A heap is two arrays and a size that the caller keeps, because kernels without reference counts
cannot allocate.
"""

from __future__ import annotations

from runtime.compiling.compiled import borrowing
from runtime.number_arrays import Integers


@borrowing
def push(times: Integers, numbers: Integers, size: int, time: int, number: int) -> None:
    """Adds a pair to a heap of `size` pairs."""
    at = size
    # invariant: the pair belongs at `at` or above it; everything below `at` is in heap order
    while at > 0:
        above = (at - 1) >> 1
        if times[above] < time or (times[above] == time and numbers[above] < number):
            break
        times[at] = times[above]
        numbers[at] = numbers[above]
        at = above
    times[at] = time
    numbers[at] = number


@borrowing
def pop(times: Integers, numbers: Integers, size: int) -> None:
    """Removes the top pair from a heap of `size` pairs."""
    last = size - 1
    time, number = times[last], numbers[last]
    at = 0
    # invariant: the last pair belongs at `at` or below it; `at` is free
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        right = below + 1
        if right < last and (
            times[right] < times[below] or (times[right] == times[below] and numbers[right] < numbers[below])
        ):
            below = right
        if time < times[below] or (time == times[below] and number <= numbers[below]):
            break
        times[at] = times[below]
        numbers[at] = numbers[below]
        at = below
    times[at] = time
    numbers[at] = number
