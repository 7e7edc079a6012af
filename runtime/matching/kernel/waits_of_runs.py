"""Decide which trailing waits of queries with additions no condition has ended yet.

The pass over the waits is that of other queries (`runtime.matching.kernel.waits`), which knows one
event per term. So the columns of the members are its terms here, several for a run, and lists and
programs are written for these columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querylang.plan.expression import Expression, terms_of
from querylang.plan.model import Condition, Plan, QueryPlan, Within, Without, known, mentioned_terms
from querylang.plan.questions import question_of
from runtime.exact_times import query_with_exact_times
from runtime.instants import NEVER
from runtime.matching.interface import Ordered, Waiting, columns_of
from runtime.matching.kernel.building import actions_of, build_program
from runtime.matching.kernel.columns import Counted, Reader
from runtime.matching.kernel.compilation import types_with_actions
from runtime.matching.kernel.program import PUSHES, NotForKernel, Operand, about_one_event
from runtime.matching.kernel.tables import (
    CONDITION,
    STATE,
    TRANSITION,
    AutomatonTables,
    ConditionTables,
    condition_tables,
    ends_of,
    followed_windows,
    records,
)
from runtime.matching.kernel.waits import LateConditions, Waits, outlive
from runtime.matching.kernel.workspace import Query, new_workspace
from runtime.matching.windows import window_columns


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
