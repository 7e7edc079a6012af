"""Stable sorting of rows by integer columns."""

from __future__ import annotations

import numpy as np

from runtime.compiling.compiled import kernel
from runtime.number_arrays import Integers

BITS = 63
"""The bits of an int64 that is not negative."""

DIGIT = 11
"""Bits of a digit of a radix sort: its counts fit into the processor's nearest cache."""

_MOST_DIGITS, _LEAST_ROWS = 5, 1 << 15
"""Where a radix sort is faster: with few digits, and enough rows to be worth its counts."""


def stable_order(*columns: Integers) -> Integers:
    """The rows' indexes in ascending order by these columns, the first one most significant.

    If the ranges of the columns and the row index fit into 63 bits together, they are packed into
    one integer per row, which is sorted: several times faster than `lexsort`, and stable because
    the row index is in the lowest bits. Where they do not, the last columns are sorted first.
    """
    rows = np.arange(len(columns[0]))
    if len(rows) < 2 or (len(columns) == 1 and (columns[0][:-1] <= columns[0][1:]).all()):
        return rows
    ranges = [_range(column) for column in columns]
    widths = [(most - least).bit_length() for least, most in ranges]
    first = len(rows).bit_length()
    if first + sum(widths) > BITS:
        if len(columns) == 1:
            return np.argsort(columns[0], kind="stable")
        order = stable_order(*columns[1:])
        return order[stable_order(columns[0][order])]
    words, bits = rows, first
    for column, (least, _), width in reversed(list(zip(columns, ranges, widths, strict=True))):
        if width:
            words = words | (column.astype(np.int64, copy=False) - least) << bits
        bits += width
    digits = -(-(bits - first) // DIGIT)
    if digits <= _MOST_DIGITS and len(rows) >= _LEAST_ROWS:
        words = _by_digits(words, first, digits)
    else:
        words.sort()
    return words & ((1 << first) - 1)


def _range(column: Integers) -> tuple[int, int]:
    return int(column.min()), int(column.max())


@kernel
def _by_digits(words: Integers, first: int, digits: int) -> Integers:
    """A radix sort by the digits from the bit `first` on, the least one first.

    words: not negative; in ascending order of what is below that bit; overwritten
    """
    count, values, spare = len(words), words, np.empty(len(words), np.int64)
    for digit in range(digits):
        shift, start = first + DIGIT * digit, np.zeros((1 << DIGIT) + 1, np.int64)
        for row in range(count):
            start[((values[row] >> shift) & ((1 << DIGIT) - 1)) + 1] += 1
        for place in range(1 << DIGIT):
            start[place + 1] += start[place]
        # Stable: words with the same digit keep the order that what is below has given them.
        for row in range(count):
            place = (values[row] >> shift) & ((1 << DIGIT) - 1)
            spare[start[place]] = values[row]
            start[place] += 1
        values, spare = spare, values
    return values
