"""Decide which trailing waits no condition has ended yet, by the events that there are.

What a trailing wait is, and when its timer expires: `runtime.matching.trailing_waits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.plan.expression import Expression, terms_of
from querylang.plan.model import Condition, Plan, QueryPlan, Within, Without, known, mentioned_terms
from querylang.plan.questions import question_of
from runtime.column_types import Integers
from runtime.compiling.compiled import borrowing, inlined
from runtime.exact_times import query_with_exact_times
from runtime.instants import NEVER
from runtime.matching.interface import Ordered, Waiting, columns_of
from runtime.matching.kernel.building import actions_of, build_program
from runtime.matching.kernel.columns import Counted, Reader
from runtime.matching.kernel.compilation import types_with_actions
from runtime.matching.kernel.conditions import first_after, has_without_event, leading_wait_start, range_of
from runtime.matching.kernel.program import PUSHES, NotForKernel, Operand, about_one_event
from runtime.matching.kernel.tables import (
    CONDITION,
    STATE,
    TRANSITION,
    AutomatonTables,
    ConditionKind,
    ConditionTables,
    LateConditions,
    Records,
    condition_tables,
    ends_of,
    followed_windows,
    records,
)
from runtime.matching.kernel.workspace import Events, Query, Workspace, last_position, new_workspace
from runtime.matching.windows import WindowColumns, window_columns


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
    conditions, ranges = query.conditions.conditions, query.conditions.terms
    count, terms = waits.members.shape
    bindings = workspace.search_state.bindings
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
                    ends = _has_without_event(events, query, condition, waits, wait, bindings)
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
    events: Events, query: Query, condition: int, waits: Waits, wait: int, bindings: Integers
) -> bool:
    """Whether an event of a `without` is in a range that ends with the trailing wait.

    For a new wait these are the events in the windows at its latest event, and all later ones. For
    the other waits only new events are checked: all others were there, and did not end it, when it
    was checked before.
    """
    conditions, ranges, program = query.conditions.conditions, query.conditions.terms, query.program
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
            first = first_after(events.time, begin, later, leading_wait_start(events.time, query.leading, bindings))
        if first < later:
            first = _window_start(events, query.windows, conditions[condition].input, first, latest)
        found = has_without_event(events, conditions, program, condition, latest, first, later, bindings)
    # After it: any event, whether or not a later one supersedes it, since it has happened within
    # the range.
    return found or has_without_event(events, conditions, program, condition, -1, later, end, bindings)


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


# Waits of queries with additions. The pass over the waits knows one event per term. So the columns
# of the members are its terms there, several for a run, and lists and programs are written for
# them.


class WaitsOfRuns:
    """The waits of one query; raises NotForKernel if the reference matcher must be asked.

    It must be if a condition up to the wait is about runs, or names a wait between steps.
    """

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        query = query_with_exact_times(query)
        late = [query.conditions[index] for index in query.decided_late]
        for condition in late:
            _refuse(condition, query)
        self._query, self._terms = replace(query, conditions=tuple(late)), len(query.terms)
        self._windows = window_columns(query)
        self._followed = followed_windows(query, self._windows.is_used_later)
        parts: list[tuple[Expression, Sequence[str]]] = []
        counted: list[Counted] = []
        programs, count_rows = [-1] * len(late), [-1] * len(late)
        events = [query.inputs[term.input].event for term in query.terms]
        for number, condition in enumerate(late):
            if not isinstance(condition, Without):
                continue
            about, own = condition.condition, query.inputs[condition.input].event
            if not self._windows.is_unique[condition.input] and _named(condition, self._terms) == frozenset():
                count_rows[number] = len(counted)
                counted.append(Counted(condition.input, Operand(about_one_event(about), (own,)) if about else None))
            elif about is not None:
                programs[number] = len(parts)
                parts.append((about, [*events, own]))
        program = build_program(parts, actions_of(query, types_with_actions(plan)))
        self._reader = Reader(plan, query, program, counted)
        self._conditions = condition_tables(self._query, programs, count_rows, program)
        self._mentions = [sorted(mentioned_terms(condition, self._terms)) for condition in late]
        self._leading = NEVER if query.leading is None else known(query.leading.duration)
        self._within = NEVER if query.within is None else query.within

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """By wait, whether no condition has ended it, by all events that there are now."""
        result = np.ones(len(waiting.key), np.bool_)
        if not len(result) or not len(self._mentions):
            return result
        places = columns_of(waiting.widths, self._terms)
        program, loaded = self._reader.read(events)
        slots = np.array([place.start for place in places] + [places[-1].stop], np.int32)
        code = program.code.copy()
        is_push = np.isin(code[:, 0], PUSHES)
        code[is_push, 2] = slots[code[is_push, 2]]
        workspace = new_workspace(events.start, _NO_AUTOMATON, places[-1].stop, len(self._query.inputs))
        query = Query(
            _NO_AUTOMATON,
            self._ranges(places),
            program._replace(code=code),
            self._windows,
            self._followed,
            self._within,
            self._leading,
            False,
        )
        late = LateConditions(
            np.arange(len(self._mentions)),
            ends_of([len(terms) for terms in self._mentions]),
            np.array([places[term].start for terms in self._mentions for term in terms], np.int64),
        )
        waits = Waits(waiting.key, waiting.members, waiting.latest, waiting.due, waiting.is_new)
        outlive(loaded, query, late, waits, workspace, result)
        return result

    def _ranges(self, places: Sequence[slice]) -> ConditionTables:
        """The conditions, their ranges over columns."""
        table, terms = self._conditions
        ranges = [
            [column for term in terms[item["first_term"] : item["stop_term"]] for column in _columns(places[term])]
            for item in table
        ]
        ends, result = ends_of([len(columns) for columns in ranges]), table.copy()
        result["first_term"], result["stop_term"] = ends[:-1], ends[1:]
        return ConditionTables(result, np.array([column for columns in ranges for column in columns], np.int64))


def _columns(place: slice) -> range:
    return range(place.start, place.stop)


def _named(condition: Without, terms: int) -> frozenset[int]:
    """The terms in the condition of a `without`, its own event not among them."""
    return frozenset() if condition.condition is None else terms_of(condition.condition) - {terms}


def _refuse(condition: Condition, query: QueryPlan) -> None:
    assert isinstance(condition, Within | Without), "no other condition reaches a wait"
    if question_of(condition, query.terms) is not None:
        raise NotForKernel("a condition about runs up to a trailing wait")
    if condition.between is not None and condition.between.middle:
        raise NotForKernel("a range from a wait between steps to a trailing one")
    if isinstance(condition, Without):
        named = _named(condition, len(query.terms))
        if any(query.terms[term].is_optional for term in named):
            raise NotForKernel("a condition about a name that may be unset, up to a trailing wait")


def _nothing(dtype: np.dtype[Any]) -> NDArray[Any]:
    assert dtype.names is not None, "a record has fields"
    return records(dtype, **{name: [] for name in dtype.names})


_NONE = np.empty(0, np.int64)
_NO_AUTOMATON = AutomatonTables(
    _nothing(STATE), _nothing(TRANSITION), _NONE, _nothing(CONDITION), _NONE, np.empty(0, np.bool_), _NONE
)
"""The pass over the waits takes a query, and does not look at its automaton."""
