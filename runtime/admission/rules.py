"""The rules of event time for one record: is it admitted, with which time, what becomes of it.

Pure functions over numbers, inlined into the kernels of `runtime.admission.per_key` and
`per_key_sorted` (timelines per key) and of `runtime.admission.shared_clock` (those of a source).
A timeline's bound is its watermark: no record admitted from now on has an earlier time. A bound
never goes back.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from runtime.columns.arrivals import Shape
from runtime.compiling.compiled import inlined
from runtime.input_policies import PolicyColumns
from runtime.instants import NEVER, NO_TIME

# The outcomes of a record: used, adjusted, filtered, discarded for a reason, pending. This is the
# one list of them. The ledger, the table of discarded records, `adjusted` of a match and the
# kernels of admission all take their words and numbers from here.


class Group(Enum):
    """What outcomes have in common."""

    USED = auto()  # an event with its own time
    ADJUSTED = auto()  # an event with another time than its own
    FILTERED = auto()  # an event that an input's filter did not accept
    REPEATED = auto()  # an event that `new by` does not count
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
    NOT_NEW = 19  # not the first of its values for so long (`new by`)
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
    Outcome.NOT_NEW: Group.REPEATED,
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


class Action(IntEnum):
    """What happens to a record below the bound."""

    DROP = 0
    ADJUST = 1  # its time becomes the bound
    CLIP = 2  # its start becomes the bound if it is an interval that ends above the bound; otherwise it is dropped


class Settings(NamedTuple):
    """A timeline's settings; lengths in µs.

    early: how far a time may be ahead of its arrival; NEVER = no limit
    late: how far a time may be behind its arrival; NEVER = no limit
    disorder: how far the bound stays behind the newest record
    every: the bound advances with every so many records; 0 = see `span`
    span: the bound advances once per so much event time; 0 with `every` 0 = records do not advance
        it
    idle: idle timeout; NEVER = none
    action: an `Action`
    """

    early: int
    late: int
    disorder: int
    every: int
    span: int
    idle: int
    action: int


class Judged(NamedTuple):
    """The outcome for one record.

    is_admitted: whether it becomes an event
    reason: the `Outcome` of a refused or adjusted record; USED = none
    time: its time, possibly adjusted
    bound: what it was measured against
    """

    is_admitted: bool
    reason: int
    time: int
    bound: int


@inlined
def judge(settings: Settings, bound: int, time: int, arrival: int, shape: int, end: int) -> Judged:
    """Measures a record against its timeline's bound, which is never below `arrival -
    settings.late`.

    Comparisons are strict: exactly early, exactly late and exactly at the bound are admitted.
    `shape` is a `Shape`; an end edge is measured by its end.
    """
    # `oldest` only tells LATE from OUT_OF_ORDER: the bound is never below it
    oldest = NO_TIME
    if settings.late < NEVER:
        oldest = arrival - settings.late
    measured = time
    if shape == Shape.END_EDGE:
        measured = end
    result = Judged(True, Outcome.USED, time, bound)
    if measured - arrival > settings.early:
        result = Judged(False, Outcome.EARLY, time, arrival + settings.early)
    elif measured < bound:
        reason = Outcome.OUT_OF_ORDER
        if measured < oldest:
            reason = Outcome.LATE
        # below the bound: refused, or moved to the bound
        if settings.action == Action.ADJUST:
            result = Judged(True, reason, bound, bound)
        else:
            ends_above = shape == Shape.START_EDGE or (shape == Shape.INTERVAL and end > bound)
            clips = settings.action == Action.CLIP and ends_above
            result = Judged(clips, reason, bound if clips else time, bound)
    return result


@inlined
def moves(settings: Settings, counted: int, since: int, time: int) -> bool:
    """Whether an admitted record advances its timeline's bound.

    `counted`: its number since the last record that did; `since`: that record's time, NO_TIME
        before there is one.
    """
    if settings.every > 0:
        return counted >= settings.every
    return settings.span > 0 and (since == NO_TIME or time - since >= settings.span)


@inlined
def own_settings(policies: PolicyColumns, item: int) -> Settings:
    """The settings of an input's timelines per key: every record in time advances its bound to its
    own time."""
    return Settings(
        early=policies.early[item],
        late=policies.delay[item],
        disorder=0,
        every=1,
        span=0,
        idle=NEVER,
        action=Action.DROP,
    )


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
