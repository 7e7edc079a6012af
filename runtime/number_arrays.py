"""Arrays of numbers: their type, and what all parts ask of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def different_numbers(numbers: Integers, limit: int) -> tuple[Integers, Integers]:
    """The different ones, ascending, and by place which of them it has.

    They are from 0 to below `limit`, so none is compared with others unless they are few.
    """
    if limit > 8 * len(numbers):
        different, places = np.unique(numbers, return_inverse=True)
        return different, places.astype(np.int64)
    is_there = np.zeros(limit, np.bool_)
    is_there[numbers] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[numbers]
