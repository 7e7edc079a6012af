"""The rules of event time for one record: is it admitted, with which time, does it advance a bound.

Pure functions over numbers, inlined into the kernels of `runtime.admission.per_key` and
`per_key_sorted` (timelines per key) and of `runtime.admission.shared_clock` (those of a source).
A timeline's bound is its watermark: no record admitted from now on has an earlier time. A bound
never goes back.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from runtime.admission.outcomes import Outcome
from runtime.columns.arrivals import Shape
from runtime.compiling.compiled import inlined
from runtime.instants import NEVER, NO_TIME
from runtime.policies.per_input import PolicyColumns


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
