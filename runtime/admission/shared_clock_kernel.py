"""The pass of a shared clock over the records of one call: verdicts and rising watermarks.

Records come in order of arrival, each with the number of its timeline. Timelines form groups; the
bound of a group is the least bound of its timelines, and each rise is recorded
(`runtime.admission.bound_history`). Timers are logical: an idle timeout that expires at a record's
arrival is processed before the record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.admission.bound_history import TIMER, BoundHistory, Groups, record_bound
from runtime.admission.rules import Settings, judge, moves
from runtime.column_types import Integers
from runtime.columns.arrivals import Shape
from runtime.compiling.compiled import borrowing, inlined
from runtime.instants import NEVER, NO_TIME

ALL_TIMELINES = -1
OWN, IMPORTED = 0, 1
"""The timelines of a clock with an import: its event type, and the one whose bound it copies."""

_END_EDGE = int(Shape.END_EDGE)


class Feed(NamedTuple):
    """The records that concern a clock, in order of arrival; one entry per record.

    row: its number among the new rows of the call
    timeline: its timeline; ALL_TIMELINES = a heartbeat for all of them
    is_heartbeat: whether it only advances its timeline
    time: source time, µs
    arrival: arrival time, µs
    shape: a `Shape`
    end: the end of an event that is not a point, µs; NO_TIME = none
    """

    row: Integers
    timeline: Integers
    is_heartbeat: NDArray[np.bool_]
    time: Integers
    arrival: Integers
    shape: NDArray[np.int8]
    end: Integers


class Rules(NamedTuple):
    """The settings of a clock.

    own: settings of its timelines
    imported: settings of the timeline IMPORTED; the same as `own` if there is none
    has_import: whether the timelines are OWN and IMPORTED
    """

    own: Settings
    imported: Settings
    has_import: bool


class ClockTimelines(NamedTuple):
    """The timelines of a clock, one entry each.

    group: its group
    leaf: its place in the group's tree
    is_registered: whether it had a record
    is_expected: whether its group waits for its first record
    newest: largest time admitted, µs; NO_TIME = none
    bound: its watermark as far as the clock is not concerned, µs; NO_TIME = none
    counted: records since the last one that advanced the bound
    since: the time of that record, µs; NO_TIME = none
    last_arrival: when the last record arrived, µs; NO_TIME = none, or idle since
    """

    group: Integers
    leaf: Integers
    is_registered: NDArray[np.bool_]
    is_expected: NDArray[np.bool_]
    newest: Integers
    bound: Integers
    counted: Integers
    since: Integers
    last_arrival: Integers


class Clock(NamedTuple):
    """The running state of a clock during one call."""

    timelines: ClockTimelines
    groups: Groups
    history: BoundHistory


class Verdicts(NamedTuple):
    """What admission by shared clocks says of the new records, by row.

    refused: the reason (`runtime.admission.rules.Outcome`); 0 = not refused
    adjusted: the reason why the record has another time than its own; 0 = it has its own
    bound: the bound that the record was measured against, µs
    time: its time, possibly adjusted, µs
    """

    refused: NDArray[np.int8]
    adjusted: NDArray[np.int8]
    bound: Integers
    time: Integers


@borrowing
def fill_trees(
    tree: Integers, root: Integers, widths: Integers, owners: Integers, leaf: Integers, bounds: Integers
) -> None:
    """Stores the bounds of timelines at their leaves, and the minima above them.

    `widths`: by group, the number of leaves; `owners`: by timeline, its group.
    """
    for timeline in range(len(owners)):
        tree[root[owners[timeline]] + leaf[timeline]] = bounds[timeline]
    for group in range(len(root)):
        for at in range(widths[group] - 1, 0, -1):
            here = root[group]
            tree[here + at] = min(tree[here + 2 * at], tree[here + 2 * at + 1])


@borrowing
def _raise_bound(clock: Clock, timeline: int, moment: int, row: int) -> None:
    """Updates the group of a timeline whose bound has risen, and records its rise, if any."""
    timelines, groups = clock.timelines, clock.groups
    group = timelines.group[timeline]
    root, at = groups.root[group], timelines.leaf[timeline]
    groups.tree[root + at] = timelines.bound[timeline]
    # Only the ancestors of the leaf depend on it: each is the minimum of its two children again.
    while at > 1:
        at >>= 1
        groups.tree[root + at] = min(groups.tree[root + 2 * at], groups.tree[root + 2 * at + 1])
    least = groups.tree[root + 1]
    if groups.missing[group] == 0 and least > groups.bound[group]:
        groups.bound[group] = least
        record_bound(clock.history, group, moment, row, least)


@borrowing
def _register(clock: Clock, timeline: int, moment: int, row: int) -> None:
    """Adds a timeline at its first record. It starts at its group's bound: that never goes back."""
    timelines, groups = clock.timelines, clock.groups
    group = timelines.group[timeline]
    timelines.is_registered[timeline] = True
    timelines.bound[timeline] = groups.bound[group]
    if timelines.is_expected[timeline] and groups.missing[group] > 0:
        groups.missing[group] -= 1
        if groups.missing[group] == 0:
            groups.complete_moment[group] = moment
            groups.complete_row[group] = row
    _raise_bound(clock, timeline, moment, row)


@borrowing
def _take_over(clock: Clock, moment: int, row: int) -> None:
    """Raises the own timeline to the bound of the imported one."""
    bound = clock.timelines.bound
    if bound[IMPORTED] > bound[OWN]:
        bound[OWN] = bound[IMPORTED]
        _raise_bound(clock, OWN, moment, row)


@borrowing
def advance_idle(rules: Rules, clock: Clock, until: int) -> None:
    """Advances timelines whose idle timeout expires by `until` to just past their newest event.

    Timeouts are processed in their order of time; a timeline that has been advanced is idle until
    its next record.
    """
    timelines = clock.timelines
    while True:
        # Find the earliest timeout; a clock with an idle timeout has at most two timelines.
        first, timeout = -1, NEVER
        for timeline in range(len(timelines.last_arrival)):
            arrival, idle = timelines.last_arrival[timeline], rules.own.idle
            if timeline == IMPORTED:
                idle = rules.imported.idle
            if arrival != NO_TIME and idle < NEVER and arrival + idle < timeout:
                first, timeout = timeline, arrival + idle
        if first < 0 or timeout > until:
            break
        # Advance that timeline. It leaves the search above, so the loop ends.
        timelines.last_arrival[first] = NO_TIME
        if timelines.newest[first] != NO_TIME and timelines.newest[first] + 1 > timelines.bound[first]:
            timelines.bound[first] = timelines.newest[first] + 1
            if rules.has_import and first == IMPORTED:
                _take_over(clock, timeout, TIMER)
            else:
                _raise_bound(clock, first, timeout, TIMER)


@inlined
def _advance_by_record(
    timelines: ClockTimelines, settings: Settings, generates: bool, timeline: int, time: int
) -> bool:
    """Counts an admitted record; whether it advanced its timeline's bound.

    `generates`: False for a timeline that only takes over another one's bound.
    """
    timelines.newest[timeline] = max(timelines.newest[timeline], time)
    timelines.counted[timeline] += 1
    if not (generates and moves(settings, timelines.counted[timeline], timelines.since[timeline], time)):
        return False
    timelines.counted[timeline] = 0
    timelines.since[timeline] = time
    # Stamped by this record, not by the newest: a bound that is ahead of it stays. Where every
    # record advances the bound, both are the same.
    bound = time - settings.disorder
    if bound <= timelines.bound[timeline]:
        return False
    timelines.bound[timeline] = bound
    return True


@inlined
def _admit_record(
    feed: Feed, at: int, rules: Rules, timelines: ClockTimelines, common: int, verdicts: Verdicts
) -> bool:
    """Judges an event; whether it advanced its timeline's bound."""
    row, timeline, arrival = feed.row[at], feed.timeline[at], feed.arrival[at]
    is_imported = rules.has_import and timeline == IMPORTED
    settings = rules.own
    if is_imported:
        settings = rules.imported
    bound = max(timelines.bound[timeline], common)
    if rules.own.late < NEVER:
        bound = max(bound, arrival - rules.own.late)
    judged = judge(settings, bound, feed.time[at], arrival, feed.shape[at], feed.end[at])
    timelines.last_arrival[timeline] = arrival
    # Events of the imported type are judged only for their timeline: if they are an input, its own
    # clock has the say.
    if not is_imported:
        verdicts.bound[row] = judged.bound
        verdicts.time[row] = judged.time
        if judged.is_admitted:
            verdicts.adjusted[row] = judged.reason
        else:
            verdicts.refused[row] = judged.reason
    # An end edge does not advance its timeline: its event was counted with the start edge.
    if not judged.is_admitted or feed.shape[at] == _END_EDGE:
        return False
    return _advance_by_record(timelines, settings, is_imported or not rules.has_import, timeline, judged.time)


@borrowing
def run_records(feed: Feed, rules: Rules, clock: Clock, common: int, verdicts: Verdicts) -> int:
    """Judges the records of a call and advances the timelines; returns the new `common`.

    `common`: the bound by heartbeats for all timelines, µs; NO_TIME = none
    """
    timelines = clock.timelines
    everywhere = len(clock.history.start) - 1
    has_idle = min(rules.own.idle, rules.imported.idle) < NEVER
    for at in range(len(feed.row)):
        row, timeline, time, arrival = feed.row[at], feed.timeline[at], feed.time[at], feed.arrival[at]
        # 1. Timers. Invariant: afterwards no idle timeout up to this arrival is left, so rises are
        #    recorded in order.
        if has_idle:
            advance_idle(rules, clock, arrival)
        # 2. A heartbeat for all timelines. It has a run of its own in the history, which every
        #    group consults; so the groups need not be updated.
        if timeline == ALL_TIMELINES:
            if time > common:
                common = time
                record_bound(clock.history, everywhere, arrival, row, common)
            continue
        # 3. A new timeline. It must be counted before its first record is judged against the
        #    group's bound.
        if not timelines.is_registered[timeline]:
            _register(clock, timeline, arrival, row)
        # 4. The record itself: a heartbeat sets the timeline's bound, an event is judged and may
        #    advance it.
        rises = False
        if feed.is_heartbeat[at]:
            if time > timelines.bound[timeline]:
                timelines.bound[timeline] = time
                rises = True
        else:
            rises = _admit_record(feed, at, rules, timelines, common, verdicts)
        # 5. The group. A timeline's bound never goes back, so without a rise the group's minimum is
        #    unchanged.
        if rises and rules.has_import and timeline == IMPORTED:
            _take_over(clock, arrival, row)
        elif rises:
            _raise_bound(clock, timeline, arrival, row)
    return common
