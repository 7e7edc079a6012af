"""Decide which trailing waits no condition has ended yet, by the events that there are.

What a trailing wait is, and when its timer expires: `runtime.matching.trailing_waits`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.compiling.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.conditions import first_after, has_without_event, leading_wait_start, range_of
from runtime.matching.kernel.evaluator import LoadedProgram, Stacks
from runtime.matching.kernel.tables import ConditionKind, Records
from runtime.matching.kernel.workspace import Events, Query, Workspace, last_position
from runtime.matching.windows import WindowColumns
from runtime.number_arrays import Integers


class LateConditions(NamedTuple):
    """The conditions whose range ends with the trailing wait.

    conditions: their numbers
    first: where each one's part of `mentions` begins; one more entry for the end
    mentions: the terms that each mentions
    """

    conditions: Integers
    first: Integers
    mentions: Integers


class Waits(NamedTuple):
    """Pending waits as the kernel reads them: `runtime.matching.interface.Waiting`."""

    key: Integers
    members: Integers
    latest: Integers
    due: Integers
    is_new: NDArray[np.bool_]


@borrowing
def outlive(
    events: Events, query: Query, late: LateConditions, waits: Waits, workspace: Workspace, result: NDArray[np.bool_]
) -> None:
    """Sets `result`, by wait, to false where an event so far has ended it; it was true before."""
    conditions, ranges, program, windows = (
        query.conditions.conditions,
        query.conditions.terms,
        query.program,
        query.windows,
    )
    count, terms = waits.members.shape
    bindings, stacks = workspace.search_state.bindings, workspace.stacks
    for wait in range(count):
        for term in range(terms):
            bindings[term] = waits.members[wait, term]
        bindings[terms] = waits.latest[wait]
        # Each condition, until one ends the wait; one that mentions a name that is unset ends none.
        for index in range(len(late.conditions)):
            is_unset = False
            for at in range(late.first[index], late.first[index + 1]):
                is_unset = is_unset or bindings[late.mentions[at]] < 0
            if result[wait] and not is_unset:
                condition = late.conditions[index]
                # A `within` depends on nothing that is still to come, but a wait that repeats has
                # another end each time.
                if conditions[condition].kind == ConditionKind.WITHIN:
                    ends = _is_too_long(events, conditions, ranges, condition, query.leading, bindings, waits.due[wait])
                else:
                    ends = _has_without_event(
                        events,
                        conditions,
                        ranges,
                        program,
                        windows,
                        condition,
                        query.leading,
                        waits,
                        wait,
                        bindings,
                        stacks,
                    )
                result[wait] = not ends


@inlined
def _is_too_long(
    events: Events, conditions: Records, ranges: Integers, condition: int, leading: int, bindings: Integers, due: int
) -> bool:
    """Whether the range of a `within` that ends with the trailing wait is too long."""
    oldest, _ = range_of(ranges, conditions[condition].first_term, conditions[condition].stop_term, bindings)
    since = due
    if oldest < NEVER:
        since = events.time[oldest]
    if conditions[condition].is_leading:
        since = min(since, leading_wait_start(events.time, leading, bindings))
    return due - since >= conditions[condition].length


@inlined
def _has_without_event(
    events: Events,
    conditions: Records,
    ranges: Integers,
    program: LoadedProgram,
    windows: WindowColumns,
    condition: int,
    leading: int,
    waits: Waits,
    wait: int,
    bindings: Integers,
    stacks: Stacks,
) -> bool:
    """Whether an event of a `without` is in a range that ends with the trailing wait.

    For a new wait these are the events in the windows at its latest event, and all later ones. For
    the other waits only new events are checked: all others were there, and did not end it, when it
    was checked before.
    """
    key, latest, found = waits.key[wait], last_position(events, waits.latest[wait]), False
    # The wait's end is outside of the range, so events at `due` or later do not count.
    later = latest + 1 if waits.is_new[wait] else events.fresh[key]
    end = first_after(events.time, later, events.start[key + 1], waits.due[wait] - 1)
    # Up to the latest event: from the range's beginning, and only what was in the window then.
    if waits.is_new[wait]:
        begin = events.start[key]
        oldest, _ = range_of(ranges, conditions[condition].first_term, conditions[condition].stop_term, bindings)
        first = last_position(events, oldest) + 1
        if conditions[condition].is_leading:
            first = first_after(events.time, begin, later, leading_wait_start(events.time, leading, bindings))
        if first < later:
            first = _window_start(events, windows, conditions[condition].input, first, latest)
        found = has_without_event(events, conditions, program, condition, latest, first, later, bindings, stacks)
    # After it: any event, whether or not a later one supersedes it, since it has happened within
    # the range.
    return found or has_without_event(events, conditions, program, condition, -1, later, end, bindings, stacks)


@borrowing
def _window_start(events: Events, windows: WindowColumns, item: int, begin: int, latest: int) -> int:
    """The first position from `begin` on in an input's window just after the event `latest`."""
    oldest = first_after(events.time, begin, latest + 1, events.time[latest] - windows.within[item])
    if windows.retain[item] < NEVER:
        # Newest first: the first event beyond the `retain` most recent ends the window.
        count = 0
        for position in range(latest, oldest - 1, -1):
            count += events.input[position] == item
            if count > windows.retain[item]:
                return position + 1
    return oldest
