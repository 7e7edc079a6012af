"""The model of time, step by step: whether a record is admitted, with which time, and how far it moves its timeline.

Pure functions over numbers, compiled into the kernels of `runtime.admission.per_key` (timelines by key) and `runtime.admission.shared_clock`
(timelines of a source). A timeline's bound says that no record admitted from now on has an earlier time; it never goes back.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from runtime.compiled import inlined
from runtime.instants import NEVER, NO_TIME


class Action(IntEnum):
    """What becomes of a record below the bound."""

    DROP = 0
    ADJUST = 1  # its time becomes the bound
    CLIP = 2  # the same, if it reaches beyond the bound


class Settings(NamedTuple):
    """A timeline's settings as numbers, µs. `early`, `late`: NEVER: no limit. `every`: records from one move of the bound to
    the next, 0: by `span` of event time; both 0: records move nothing. `idle`: NEVER: quiet moves nothing."""

    early: int
    late: int
    disorder: int
    every: int
    span: int
    idle: int
    action: int


class Judged(NamedTuple):
    """`is_admitted` with `time`; `reason`: an `Outcome`, 0: none; `bound`: what the record was measured against."""

    is_admitted: bool
    reason: int
    time: int
    bound: int


@inlined
def judge(settings: Settings, floor: int, time: int, arrival: int, shape: int, end: int) -> Judged:
    """Measures a record against its timeline's bound `floor`, in which `arrival - settings.late` is contained.

    Comparisons are strict: exactly early, exactly late and exactly at the bound are admitted. An end edge is measured by its end.
    """
    oldest = NO_TIME
    if settings.late < NEVER:
        oldest = arrival - settings.late
    moment = time
    if shape == 3:
        moment = end
    result = Judged(True, 0, time, floor)
    if moment - arrival > settings.early:
        result = Judged(False, 3, time, arrival + settings.early)
    elif moment < floor:
        reason = 2
        if moment < oldest:
            reason = 1
        if settings.action == 1:
            result = Judged(True, reason, floor, floor)
        else:
            clips = settings.action == 2 and (shape == 2 or (shape == 1 and end > floor))
            result = Judged(clips, reason, floor if clips else time, floor)
    return result


@inlined
def moves(settings: Settings, counted: int, since: int, time: int) -> bool:
    """Whether an admitted record of this time moves its timeline's bound: it is number `counted` since the last that did, which had
    the time `since`."""
    if settings.every > 0:
        return counted >= settings.every
    return settings.span > 0 and (since == NO_TIME or time - since >= settings.span)
