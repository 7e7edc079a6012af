"""The timelines of one policy through the records of a call: who is admitted, and how far all of them have come, moment by moment.

Takes records in order of arrival with the number of their timeline; fills verdicts and times, and writes down each rise of a
group's bound: the least over the group's timelines. Timers are logical: what is due by a record's arrival has
happened before it. See `runtime.admission.shared_clock` for what the numbers stand for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.admission.rules import Settings, judge, moves
from runtime.compiled import borrowing, inlined
from runtime.instants import NEVER, NO_TIME

Integers = NDArray[np.int64]


class Feed(NamedTuple):
    """The records that move the clock, in order of arrival; `row`: their number among the call's new rows.

    `timeline`: -1 for punctuation of all of them. `is_beat`: punctuation. `shape`, `end`: as in `runtime.columns.arrivals`.
    """

    row: Integers
    timeline: Integers
    is_beat: NDArray[np.bool_]
    time: Integers
    arrival: Integers
    shape: NDArray[np.int8]
    end: Integers


class Timelines(NamedTuple):
    """One entry a timeline. `group`, `leaf`: its group, and its place in `Groups.tree`; `is_owed`: its group waits to hear of it.

    `newest`: the largest time admitted; `bound`: how far it has come without the clock; `counted`, `since`: records, and the time of
    the last one that moved the bound; `heard`: when the last record came, until quiet has moved the bound: then NO_TIME.
    """

    group: Integers
    leaf: Integers
    is_seen: NDArray[np.bool_]
    is_owed: NDArray[np.bool_]
    newest: Integers
    bound: Integers
    counted: Integers
    since: Integers
    heard: Integers


class Groups(NamedTuple):
    """One entry a group. `unseen`: how many timelines have yet to be heard of; `bound`: the least over its timelines once there is
    none such. `complete_moment`, `complete_row`: which record brought the last of them; NEVER: none has; NO_TIME: an earlier call.

    `tree[root[g]:]` is a heap-ordered tree of minima over the group's timelines, its root at place 1.
    """

    unseen: Integers
    bound: Integers
    complete_moment: Integers
    complete_row: Integers
    root: Integers
    tree: Integers


class Curve(NamedTuple):
    """How bounds rise: entries `start[g]` to `end[g]` of group g, the last group being punctuation for all; `row` -1: a timer."""

    start: Integers
    end: Integers
    moment: Integers
    row: Integers
    bound: Integers


class Verdicts(NamedTuple):
    """By new row: see `runtime.admission.rules.Judged`; `adjusted` is the reason of what was admitted with another time."""

    refused: NDArray[np.int8]
    adjusted: NDArray[np.int8]
    bound: Integers
    time: Integers


@borrowing
def fill_trees(
    tree: Integers, root: Integers, widths: Integers, owners: Integers, leaf: Integers, bounds: Integers
) -> None:
    """Puts the timelines' bounds at their leaves, and minima above them."""
    for timeline in range(len(owners)):
        tree[root[owners[timeline]] + leaf[timeline]] = bounds[timeline]
    for group in range(len(root)):
        for at in range(widths[group] - 1, 0, -1):
            here = root[group]
            tree[here + at] = min(tree[here + 2 * at], tree[here + 2 * at + 1])


@inlined
def _write(curve: Curve, group: int, moment: int, row: int, bound: int) -> None:
    """The next entry of a group."""
    at = curve.end[group]
    curve.moment[at] = moment
    curve.row[at] = row
    curve.bound[at] = bound
    curve.end[group] = at + 1


@borrowing
def _lift(timelines: Timelines, groups: Groups, curve: Curve, timeline: int, moment: int, row: int) -> None:
    """A timeline's bound has risen: its group's may have."""
    group = timelines.group[timeline]
    root, at = groups.root[group], timelines.leaf[timeline]
    groups.tree[root + at] = timelines.bound[timeline]
    while at > 1:
        at >>= 1
        groups.tree[root + at] = min(groups.tree[root + 2 * at], groups.tree[root + 2 * at + 1])
    least = groups.tree[root + 1]
    if groups.unseen[group] == 0 and least > groups.bound[group]:
        groups.bound[group] = least
        _write(curve, group, moment, row, least)


@borrowing
def _greet(timelines: Timelines, groups: Groups, curve: Curve, timeline: int, moment: int, row: int) -> None:
    """A timeline is heard of for the first time: it begins where its group has come to."""
    group = timelines.group[timeline]
    timelines.is_seen[timeline] = True
    timelines.bound[timeline] = groups.bound[group]
    if timelines.is_owed[timeline] and groups.unseen[group] > 0:
        groups.unseen[group] -= 1
        if groups.unseen[group] == 0:
            groups.complete_moment[group] = moment
            groups.complete_row[group] = row
    _lift(timelines, groups, curve, timeline, moment, row)


@borrowing
def _import(timelines: Timelines, groups: Groups, curve: Curve, is_import: bool, moment: int, row: int) -> None:
    """Takes over what the other event type has come to: timeline 1 of two."""
    if is_import and timelines.bound[1] > timelines.bound[0]:
        timelines.bound[0] = timelines.bound[1]
        _lift(timelines, groups, curve, 0, moment, row)


@borrowing
def run_quiet(timelines: Timelines, groups: Groups, curve: Curve, idle: Integers, is_import: bool, until: int) -> None:
    """The ends of quiet that are due at `until`: each moves its timeline behind all that it has had. `idle`: how long quiet lasts,
    for each of one timeline or two."""
    while True:
        first, due = -1, NEVER
        for timeline in range(len(timelines.heard)):
            heard = timelines.heard[timeline]
            if heard != NO_TIME and idle[timeline] < NEVER and heard + idle[timeline] < due:
                first, due = timeline, heard + idle[timeline]
        if first < 0 or due > until:
            break
        timelines.heard[first] = NO_TIME
        if timelines.newest[first] != NO_TIME and timelines.newest[first] + 1 > timelines.bound[first]:
            timelines.bound[first] = timelines.newest[first] + 1
            if is_import and first == 1:
                _import(timelines, groups, curve, is_import, due, -1)
            else:
                _lift(timelines, groups, curve, first, due, -1)


@borrowing
def run_records(
    feed: Feed,
    settings: Settings,
    other: Settings,
    is_import: bool,
    idle: Integers,
    timelines: Timelines,
    groups: Groups,
    common: int,
    curve: Curve,
    verdicts: Verdicts,
) -> int:
    """Judges all records; gives how far punctuation for all timelines has come, `common` before.

    `other`: the settings of timeline 1 where timeline 0 takes over its bound (`is_import`).
    """
    everywhere, with_quiet = len(curve.start) - 1, min(idle[0], idle[1]) < NEVER
    for at in range(len(feed.row)):
        row, timeline, arrival = feed.row[at], feed.timeline[at], feed.arrival[at]
        if with_quiet:
            run_quiet(timelines, groups, curve, idle, is_import, arrival)
        if timeline < 0:
            if feed.time[at] > common:
                common = feed.time[at]
                _write(curve, everywhere, arrival, row, common)
            continue
        if not timelines.is_seen[timeline]:
            _greet(timelines, groups, curve, timeline, arrival, row)
        is_other = is_import and timeline == 1
        rises = feed.is_beat[at] and feed.time[at] > timelines.bound[timeline]
        if rises:
            timelines.bound[timeline] = feed.time[at]
        if not feed.is_beat[at]:
            floor = max(timelines.bound[timeline], common)
            if settings.late < NEVER:
                floor = max(floor, arrival - settings.late)
            own = settings
            if is_other:
                own = other
            judged = judge(own, floor, feed.time[at], arrival, feed.shape[at], feed.end[at])
            timelines.heard[timeline] = arrival
            if not is_other:
                verdicts.bound[row] = judged.bound
                verdicts.time[row] = judged.time
                if judged.is_admitted:
                    verdicts.adjusted[row] = judged.reason
                else:
                    verdicts.refused[row] = judged.reason
            if judged.is_admitted and feed.shape[at] != 3:
                timelines.newest[timeline] = max(timelines.newest[timeline], judged.time)
                timelines.counted[timeline] += 1
                generates = is_other or not is_import
                if generates and moves(own, timelines.counted[timeline], timelines.since[timeline], judged.time):
                    timelines.counted[timeline] = 0
                    timelines.since[timeline] = judged.time
                    reached = timelines.newest[timeline] - own.disorder
                    if reached > timelines.bound[timeline]:
                        timelines.bound[timeline] = reached
                        rises = True
        if rises and is_other:
            _import(timelines, groups, curve, is_import, arrival, row)
        elif rises:
            _lift(timelines, groups, curve, timeline, arrival, row)
    return common


@inlined
def _first_reaching(curve: Curve, group: int, time: int, guess: int) -> int:
    """The first entry of a group with a bound of `time` or more, its end if there is none. `guess`: where to begin to look."""
    low, high, step = curve.start[group], curve.end[group], 1
    if low <= guess < high:
        if curve.bound[guess] < time:
            low = guess + 1
            while guess + step < high and curve.bound[guess + step] < time:
                low = guess + step + 1
                step *= 2
            high = min(high, guess + step)
        else:
            high = guess
            while guess - step >= low and curve.bound[guess - step] >= time:
                high = guess - step
                step *= 2
            low = max(low, guess - step + 1)
    while low < high:
        middle = (low + high) >> 1
        if curve.bound[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


class Growth(NamedTuple):
    """How bounds grow with the arrival clock: they are `late` behind it (NEVER: they do not grow), and by `unknown` more while
    a group has unseen timelines. `strict`: 1 if what is at the bound is not released, else 0."""

    late: int
    unknown: int
    strict: int


@inlined
def _by_clock(groups: Groups, growth: Growth, group: int, time: int) -> tuple[int, int]:
    """When the clock alone brings a group to `time`."""
    if growth.late >= NEVER:
        return NEVER, -1
    complete, sooner = groups.complete_moment[group], time + growth.late
    if sooner + growth.unknown <= complete:
        return sooner + growth.unknown, -1
    if sooner <= complete:
        return complete, groups.complete_row[group]
    return sooner, -1


@borrowing
def find_ready(
    curve: Curve, groups: Groups, growth: Growth, group: Integers, time: Integers, moment: Integers, row: Integers
) -> None:
    """When each `time` is definitive for its group, by (moment, row); later ones than given replace `moment` and `row`.

    A row of -1 is a timer, before the records of its moment.
    """
    everywhere = len(curve.start) - 1
    guess, shared = -1, -1
    for at in range(len(time)):
        if group[at] < 0:
            continue
        wanted = time[at] + growth.strict
        ready, by = _by_clock(groups, growth, group[at], wanted)
        guess = _first_reaching(curve, group[at], wanted, guess)
        if guess < curve.end[group[at]]:
            other, record = curve.moment[guess], curve.row[guess]
            if other < ready or (other == ready and record < by):
                ready, by = other, record
        if curve.end[everywhere] > curve.start[everywhere]:
            shared = _first_reaching(curve, everywhere, wanted, shared)
            if shared < curve.end[everywhere]:
                other, record = curve.moment[shared], curve.row[shared]
                if other < ready or (other == ready and record < by):
                    ready, by = other, record
        if ready > moment[at] or (ready == moment[at] and by > row[at]):
            moment[at] = ready
            row[at] = by


@inlined
def _has_happened(curve: Curve, entry: int, moment: int, row: int) -> bool:
    """Whether an entry is not after (moment, row)."""
    if row >= 0 and curve.row[entry] >= 0:
        return curve.row[entry] <= row
    if row < 0 and curve.row[entry] >= 0:
        return curve.moment[entry] < moment
    return curve.moment[entry] <= moment


@inlined
def _value_at(curve: Curve, group: int, moment: int, row: int) -> int:
    """A group's bound at (moment, row)."""
    low, high = curve.start[group], curve.end[group]
    while low < high:
        middle = (low + high) >> 1
        if _has_happened(curve, middle, moment, row):
            low = middle + 1
        else:
            high = middle
    if low == curve.start[group]:
        return NO_TIME
    return curve.bound[low - 1]


@borrowing
def find_bounds(
    curve: Curve, groups: Groups, growth: Growth, group: Integers, moment: Integers, row: Integers, bound: Integers
) -> None:
    """Lowers `bound` to how far each group had come at (moment, row)."""
    everywhere = len(curve.start) - 1
    for at in range(len(moment)):
        if group[at] < 0:
            continue
        reached = max(
            _value_at(curve, group[at], moment[at], row[at]), _value_at(curve, everywhere, moment[at], row[at])
        )
        if growth.late < NEVER:
            complete, last = groups.complete_moment[group[at]], groups.complete_row[group[at]]
            is_complete = complete < moment[at] or (complete == moment[at] and last <= row[at])
            behind = growth.late if is_complete else growth.late + growth.unknown
            reached = max(reached, moment[at] - behind)
        bound[at] = min(bound[at], reached)
