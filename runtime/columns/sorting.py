"""The order of rows by columns of whole numbers, stable."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

BITS = 63
"""Of a word that is never negative."""


def stable_order(*columns: Integers) -> Integers:
    """The rows by these columns, the first one most important; equal rows stay in order.

    Where the columns' ranges and the rows' numbers fit in a word together, these words are sorted: several times faster
    than an order by comparing rows.
    """
    rows = np.arange(len(columns[0]))
    if len(rows) < 2 or (len(columns) == 1 and (columns[0][:-1] <= columns[0][1:]).all()):
        return rows
    words, bits = rows, len(rows).bit_length()
    mask = (1 << bits) - 1
    for column in reversed(columns):
        least = int(column.min())
        more = (int(column.max()) - least).bit_length()
        if bits + more > BITS:
            return np.lexsort(columns[::-1])
        if more:
            words = words | (column.astype(np.int64) - least) << bits
        bits += more
    words.sort()
    return words & mask
