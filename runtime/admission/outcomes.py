"""The outcomes of a record: used, adjusted, filtered, discarded for a reason, pending.

This is the one list of them. The ledger, the table of discarded records, `adjusted` of a match and
the kernels of admission all take their words and numbers from here.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Group(Enum):
    """What outcomes have in common."""

    USED = auto()  # an event with its own time
    ADJUSTED = auto()  # an event with another time than its own
    FILTERED = auto()  # an event that an input's filter did not accept
    SIGNAL = auto()  # not an event, but it may advance time or change the engine
    UNRELATED = auto()  # an event type that the query does not mention
    DISCARDED = auto()  # listed as a row, with the reason
    PENDING = auto()  # received, and not definitive yet


class Outcome(IntEnum):
    """What becomes of a record for one query, in the order of the ledger.

    Kernels and saved state use the numbers: those of members must never change. As the reason why a
    record was adjusted, LATE and OUT_OF_ORDER stand for themselves, and 0 means "not adjusted".
    """

    USED = 0
    ADJUSTED_LATE = 6
    ADJUSTED_OUT_OF_ORDER = 7
    FILTERED = 8
    HEARTBEAT = 9
    CONTROL = 10
    TICK = 11
    UNRELATED = 12
    AHEAD = 16  # arrived further in the future than a job allows
    EARLY = 3  # further ahead of its arrival than the limit
    LATE = 1  # further behind its arrival than the largest delay
    OUT_OF_ORDER = 2  # below the bound for another reason
    MALFORMED = 13
    MALFORMED_FILE = 17  # a whole file of a job, counted as one record
    UNKNOWN_TYPE = 14
    NULL_KEY = 4
    NULL_TIME = 5
    PENDING = 15
    FORGOTTEN = 18  # of a key that a user let a job forget before it was used

    @property
    def word(self) -> str:
        """The word in the ledger and in tables."""
        return self.name.lower()

    @property
    def group(self) -> Group:
        """The group in which it is counted."""
        return _GROUPS[self]


_GROUPS = {
    Outcome.USED: Group.USED,
    Outcome.ADJUSTED_LATE: Group.ADJUSTED,
    Outcome.ADJUSTED_OUT_OF_ORDER: Group.ADJUSTED,
    Outcome.FILTERED: Group.FILTERED,
    Outcome.HEARTBEAT: Group.SIGNAL,
    Outcome.CONTROL: Group.SIGNAL,
    Outcome.TICK: Group.SIGNAL,
    Outcome.UNRELATED: Group.UNRELATED,
    Outcome.AHEAD: Group.DISCARDED,
    Outcome.EARLY: Group.DISCARDED,
    Outcome.LATE: Group.DISCARDED,
    Outcome.OUT_OF_ORDER: Group.DISCARDED,
    Outcome.MALFORMED: Group.DISCARDED,
    Outcome.MALFORMED_FILE: Group.DISCARDED,
    Outcome.UNKNOWN_TYPE: Group.DISCARDED,
    Outcome.NULL_KEY: Group.DISCARDED,
    Outcome.NULL_TIME: Group.DISCARDED,
    Outcome.PENDING: Group.PENDING,
    Outcome.FORGOTTEN: Group.DISCARDED,
}

ADMITTED = (Outcome.USED, Outcome.ADJUSTED_LATE, Outcome.ADJUSTED_OUT_OF_ORDER)
"""The outcome of an admitted event, by the reason why it was adjusted (0, LATE, OUT_OF_ORDER)."""

_ADMITTED = np.array(ADMITTED, np.int8)
_WORDS = pa.array([Outcome(number).word if number else None for number in sorted(Outcome)], pa.string())


def reason_words(reasons: NDArray[np.int8]) -> pa.StringArray:
    """The word of each reason; null where there is none (0)."""
    return _WORDS.take(pa.array(reasons))


def after_admission(
    selected: NDArray[np.int8], rows: NDArray[np.int64], refused: NDArray[np.int8], adjusted: NDArray[np.int8]
) -> NDArray[np.int8]:
    """The outcomes of selection, replaced by those of admission for the records at `rows`.

    refused, adjusted: by row of `rows`, the reason; 0 = none
    """
    outcome = selected.copy()
    is_adjusted, is_refused = adjusted > 0, refused > 0
    outcome[rows[is_adjusted]] = _ADMITTED[adjusted[is_adjusted]]
    outcome[rows[is_refused]] = refused[is_refused]
    return outcome
