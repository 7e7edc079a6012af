"""Bound histories: when the watermarks of a shared clock rose during one call.

A group's watermark is the largest of three: its recorded bound, the bound by heartbeats for all
groups, and the clock less the tolerated delay. The first two are step functions of the arrival
time, recorded here. The third is computed.

A *step* is a pair (moment, row): the arrival time, and the record that was processed then. Timers
have the row TIMER and run before the records of their moment.
"""

from __future__ import annotations

from typing import NamedTuple

from runtime.column_types import Integers
from runtime.compiling.compiled import borrowing, inlined
from runtime.instants import NEVER, NO_TIME

TIMER = -1


class BoundHistory(NamedTuple):
    """The steps at which bounds rose: a run of entries per group, then one for heartbeats for all.

    In a run, steps never decrease and bounds strictly increase.

    start: by group, its first entry
    end: by group, behind its last entry
    moment: by entry, the arrival time of the rise, µs; NO_TIME = before the call
    row: by entry, the record that caused the rise; TIMER = none
    bound: by entry, the bound from then on, µs
    """

    start: Integers
    end: Integers
    moment: Integers
    row: Integers
    bound: Integers


class Groups(NamedTuple):
    """The groups of timelines; keys of one group have the same watermark. One entry per group.

    missing: how many timelines it expects that had no record yet
    bound: the least bound of its timelines, µs; NO_TIME while timelines are missing
    complete_moment: when the last missing timeline appeared, µs; NO_TIME = in an earlier call,
        NEVER = not yet
    complete_row: the record that brought it
    root: where the group's tree begins in `tree`
    tree: heap-ordered minima over the bounds of the timelines; the root of a group's tree is at
        `root + 1`
    """

    missing: Integers
    bound: Integers
    complete_moment: Integers
    complete_row: Integers
    root: Integers
    tree: Integers


class ClockLag(NamedTuple):
    """How far behind the clock watermarks are at most.

    late: µs behind the clock; NEVER = watermarks do not follow the clock
    missing: µs more while timelines of the group are missing
    strict: 1 = an event at the watermark itself is not definitive yet; 0 = it is
    """

    late: int
    missing: int
    strict: int


@inlined
def record_bound(history: BoundHistory, group: int, moment: int, row: int, bound: int) -> None:
    """Appends a rise to a group's run."""
    entry = history.end[group]
    history.moment[entry] = moment
    history.row[entry] = row
    history.bound[entry] = bound
    history.end[group] = entry + 1


@inlined
def _first_reaching(history: BoundHistory, group: int, time: int, guess: int) -> int:
    """A group's first entry with a bound of `time` or more, its end if there is none.

    `guess`: the entry to start from, any number is allowed. Consecutive queries are often close to
    each other.
    """
    # Invariant: entries before `low` are below `time`, entries from `high` on reach it. Bounds
    # increase in a run, so each probe decides for all entries on one side of it.
    low, high, stride = history.start[group], history.end[group], 1
    # Phase 1: from the guess, double the stride until `time` lies between two probes.
    if low <= guess < high:
        if history.bound[guess] < time:
            low = guess + 1
            while guess + stride < high and history.bound[guess + stride] < time:
                low = guess + stride + 1
                stride *= 2
            high = min(high, guess + stride)
        else:
            high = guess
            while guess - stride >= low and history.bound[guess - stride] >= time:
                high = guess - stride
                stride *= 2
            low = max(low, guess - stride + 1)
    # Phase 2: halve what is left.
    while low < high:
        middle = (low + high) >> 1
        if history.bound[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _step_by_clock(groups: Groups, lag: ClockLag, group: int, time: int) -> tuple[int, int]:
    """The step at which the clock alone advances a group's watermark to `time`."""
    if lag.late >= NEVER:
        return NEVER, TIMER
    # With the lag of an incomplete group this is too early if the group completes before; with the
    # lag of a complete group it is too early if it completes later. If neither holds, the
    # completion itself is the step.
    complete, soonest = groups.complete_moment[group], time + lag.late
    if soonest + lag.missing <= complete:
        return soonest + lag.missing, TIMER
    if soonest <= complete:
        return complete, groups.complete_row[group]
    return soonest, TIMER


@borrowing
def find_definitive(
    history: BoundHistory,
    groups: Groups,
    lag: ClockLag,
    group: Integers,
    time: Integers,
    moment: Integers,
    row: Integers,
) -> None:
    """Finds the step at which each time becomes definitive for its group.

    (`moment`, `row`) are replaced where the step found is later: an event needs the consent of all
    its clocks. `group`: -1 = the record has no group and nothing is changed.
    """
    everywhere = len(history.start) - 1
    has_common = history.end[everywhere] > history.start[everywhere]
    guess, common_guess = -1, -1
    for at in range(len(time)):
        if group[at] < 0:
            continue
        # The watermark is a maximum of three, so the step is the earliest of the three steps.
        wanted = time[at] + lag.strict
        found, cause = _step_by_clock(groups, lag, group[at], wanted)
        guess = _first_reaching(history, group[at], wanted, guess)
        if guess < history.end[group[at]]:
            other, record = history.moment[guess], history.row[guess]
            if other < found or (other == found and record < cause):
                found, cause = other, record
        if has_common:
            common_guess = _first_reaching(history, everywhere, wanted, common_guess)
            if common_guess < history.end[everywhere]:
                other, record = history.moment[common_guess], history.row[common_guess]
                if other < found or (other == found and record < cause):
                    found, cause = other, record
        if found > moment[at] or (found == moment[at] and cause > row[at]):
            moment[at] = found
            row[at] = cause


@inlined
def _is_reached(history: BoundHistory, entry: int, moment: int, row: int) -> bool:
    """Whether an entry's step is not after (moment, row)."""
    if row >= 0 and history.row[entry] >= 0:
        return history.row[entry] <= row  # records are numbered in order of arrival
    if row < 0 and history.row[entry] >= 0:
        return history.moment[entry] < moment  # timers run before the records of their moment
    return history.moment[entry] <= moment


@inlined
def _bound_at(history: BoundHistory, group: int, moment: int, row: int) -> int:
    """A group's recorded bound at (moment, row); NO_TIME = none."""
    low, high = history.start[group], history.end[group]
    # Invariant: entries before `low` are reached, entries from `high` on are not; steps never
    # decrease in a run.
    while low < high:
        middle = (low + high) >> 1
        if _is_reached(history, middle, moment, row):
            low = middle + 1
        else:
            high = middle
    if low == history.start[group]:
        return NO_TIME
    return history.bound[low - 1]


@borrowing
def limit_to_watermarks(
    history: BoundHistory,
    groups: Groups,
    lag: ClockLag,
    group: Integers,
    moment: Integers,
    row: Integers,
    bound: Integers,
) -> None:
    """Lowers each `bound` to its group's watermark at (`moment`, `row`); group -1 = not lowered."""
    everywhere = len(history.start) - 1
    for at in range(len(moment)):
        if group[at] < 0:
            continue
        watermark = max(
            _bound_at(history, group[at], moment[at], row[at]), _bound_at(history, everywhere, moment[at], row[at])
        )
        if lag.late < NEVER:
            # While a timeline is missing, the group may be behind by what that may still bring.
            complete, last = groups.complete_moment[group[at]], groups.complete_row[group[at]]
            is_complete = complete < moment[at] or (complete == moment[at] and last <= row[at])
            behind = lag.late if is_complete else lag.late + lag.missing
            watermark = max(watermark, moment[at] - behind)
        bound[at] = min(bound[at], watermark)
