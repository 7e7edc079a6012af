"""Which records of a call arrive later than they say, and when they would without idle sources."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Moves:
    """Moved records of a call.

    is_moved: by record, whether its arrival was before the clock or that of the record before it
    without_idle: by record, when it would arrive if time had waited for every silent source, µs
    """

    is_moved: NDArray[np.bool_]
    without_idle: NDArray[np.int64]


NO_MOVES = Moves(np.empty(0, np.bool_), np.empty(0, np.int64))
"""Of a call without records."""
