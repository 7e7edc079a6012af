"""The fast matcher: one compiled search for every query, driven by the automaton and the conditions' program as tables.

Takes ordered events as columns; operands of conditions are computed as columns first, then each new event starts a depth-first
search backwards in time (`runtime.matching.kernel.search`). No partial matches are kept; windows, `within` and conditions, checked as
early as they can be decided, cut the search.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.expression import Aggregate, Expression, Type, terms_of
from querylang.plan.model import Condition, Plan, QueryPlan, Where, Without, known, mentioned_terms
from runtime.instants import NEVER
from runtime.matching.find_every import aggregates_of
from runtime.matching.interface import Found, Ordered, Waiting
from runtime.matching.kernel.aggregates import Aggregated, Arguments, Function, Gathering, Running
from runtime.matching.kernel.columns import Counted, Reader
from runtime.matching.kernel.conditions import Events, Query
from runtime.matching.kernel.program import (
    KernelProgram,
    NotForKernel,
    Operand,
    about_one_event,
    build_program,
    operand_of,
)
from runtime.matching.kernel.search import search
from runtime.matching.kernel.steps import Memory, new_memory
from runtime.matching.kernel.tables import (
    ConditionTables,
    automaton_tables,
    condition_tables,
    ends_of,
    followed_windows,
    is_ambiguous,
)
from runtime.matching.kernel.waits import Late, Waits, outlive
from runtime.matching.windows import WindowColumns, window_columns

Integers = NDArray[np.int64]


class KernelMatcher:
    """A matcher for one query; raises NotForKernel if it needs the reference matcher."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._plan, self._query = plan, query
        self._terms = len(query.terms)
        self._is_every = query.every is not None
        self._is_ambiguous = is_ambiguous(query)
        self._windows: WindowColumns = window_columns(query)
        self._followed = followed_windows(query, self._windows.remembered)
        self._within = NEVER if query.within is None else query.within
        self._leading = NEVER if query.leading is None else known(query.leading.duration)
        self._aggregates = aggregates_of(query)
        self._functions = [_function(node) for node in self._aggregates]
        self._compile(query.conditions, query)
        self._late = _late(query)
        self._last: tuple[Ordered, tuple[Events, Query]] | None = None

    def _compile(self, conditions: Sequence[Condition], query: QueryPlan) -> None:
        """The program of all expressions over several events, and where each condition and aggregate finds its own."""
        events = [query.inputs[term.input].event for term in query.terms]
        parts: list[tuple[Expression, Sequence[str]]] = []
        programs, counted = [], []
        without: list[Counted] = []
        for condition in conditions:
            program = row = -1
            if isinstance(condition, Without) and self._is_counted(condition):
                row, about = len(without), condition.condition
                event = query.inputs[condition.input].event
                without.append(Counted(condition.input, Operand(about_one_event(about), (event,)) if about else None))
            elif isinstance(condition, Where | Without) and condition.condition is not None:
                program = len(parts)
                own = query.inputs[condition.input].event if isinstance(condition, Without) else events[0]
                parts.append((condition.condition, [*events, own]))
            programs.append(program)
            counted.append(row)
        first = len(parts)
        parts += [(node.arguments[0], [*events, events[0]]) for node in self._aggregates if node.arguments]
        self._program: KernelProgram = build_program(parts)
        self._arguments = _arguments(self._aggregates, self._functions, query, self._program, first)
        self._conditions: ConditionTables = condition_tables(query, programs, counted, self._program)
        self._automaton = automaton_tables(query, self._conditions.conditions, self._program)
        self._reader = Reader(self._plan, query, self._program, without)

    def _is_counted(self, condition: Without) -> bool:
        """Whether its events can be told without looking at a candidate, or at which of them are current."""
        about = frozenset() if condition.condition is None else terms_of(condition.condition)
        return about <= {self._terms} and not self._windows.is_unique[condition.input]

    def match(self, events: Ordered) -> Found:
        """One compiled search over all keys."""
        ordered, query = self._tables(events)
        most = int((events.start[1:] - events.fresh).sum())
        latest = np.empty(most, np.int64)
        members = np.empty((most, 0 if self._is_every else self._terms), np.int64)
        gathering = self._gathering(most)
        found = search(ordered, query, self._memory(ordered), self._is_ambiguous, gathering, latest, members)
        columns = tuple(_column(node, place, gathering.results, found) for place, node in enumerate(self._aggregates))
        return Found(latest[:found], members[:found], columns)

    def _gathering(self, most: int) -> Gathering:
        """Room for the aggregates of so many matches."""
        count = len(self._aggregates)
        shape = (count, most)
        results = Aggregated(np.zeros(shape, np.int64), np.zeros(shape, np.float64), np.zeros(shape, np.bool_))
        best = np.full((count, self._terms), -1, np.int64)
        running = Running(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.float64), best)
        return Gathering(self._is_every, self._arguments, running, results)

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """One compiled pass over all waits."""
        ordered, query = self._tables(events)
        waits = Waits(waiting.key, waiting.members, waiting.latest, waiting.due, waiting.is_new)
        result = np.ones(len(waiting.key), np.bool_)
        outlive(ordered, query, self._late, waits, self._memory(ordered), result)
        self._last = None
        return result

    def _memory(self, events: Events) -> Memory:
        return new_memory(events.start, self._automaton, self._terms, len(self._windows.within))

    def _tables(self, events: Ordered) -> tuple[Events, Query]:
        """Events and query as the kernel takes them; those of a `match` serve the `outlives` behind it too."""
        if self._last is not None and self._last[0] is events:
            return self._last[1]
        tables = self._new_tables(events)
        if self._query.trailing is not None:
            self._last = events, tables
        return tables

    def _new_tables(self, events: Ordered) -> tuple[Events, Query]:
        program, counts = self._reader.read(events)
        ordered = Events(events.start, events.fresh, events.input, events.time, events.superseded, counts)
        windows = self._windows, self._followed
        return ordered, Query(self._automaton, self._conditions, program, *windows, self._within, self._leading)


def _arguments(
    nodes: Sequence[Aggregate], functions: Sequence[Function], query: QueryPlan, program: KernelProgram, first: int
) -> Arguments:
    """The aggregates as the kernel takes them; their arguments' programs are numbered from `first` on."""
    programs, mentions = [], []
    for node in nodes:
        programs.append(first if node.arguments else -1)
        first += bool(node.arguments)
        mentions.append([term for term in sorted(terms_of(node)) if query.terms[term].is_optional])
    pushed = [None if number < 0 else operand_of(program, number) for number in programs]
    return Arguments(
        function=np.array([int(function) for function in functions], np.int64),
        program=np.array(programs, np.int64),
        operand=np.array([-1 if item is None else item[0] for item in pushed], np.int64),
        term=np.array([-1 if item is None else item[1] for item in pushed], np.int64),
        is_float=np.array([[argument.type for argument in node.arguments] == [Type.FLOAT] for node in nodes], np.bool_),
        first=ends_of([len(terms) for terms in mentions]),
        mentions=np.array([term for terms in mentions for term in terms], np.int64),
    )


_FUNCTIONS = {
    "sum": Function.SUM,
    "avg": Function.MEAN,
    "mean": Function.MEAN,
    "min": Function.MIN,
    "max": Function.MAX,
    "first": Function.FIRST,
    "last": Function.LAST,
}


def _function(node: Aggregate) -> Function:
    """The kernel's function for an aggregate; raises NotForKernel."""
    types = [argument.type for argument in node.arguments]
    if not types and node.function == "count":
        return Function.COUNT
    if types == [Type.BOOLEAN] and node.function == "count":
        return Function.COUNT_TRUE
    if types == [Type.FLOAT] and node.function == "count":
        return Function.COUNT_NUMBERS
    if node.function in _FUNCTIONS and types in ([Type.INTEGER], [Type.FLOAT], [Type.BOOLEAN]):
        return _FUNCTIONS[node.function]
    raise NotForKernel(f"the aggregate `{node.function}` of {' and '.join(map(str, types))}")


def _column(node: Aggregate, place: int, results: Aggregated, found: int) -> pa.Array:
    missing = ~results.is_valid[place, :found]
    values = (results.real if node.type == Type.FLOAT else results.whole)[place, :found]
    if node.type == Type.BOOLEAN:
        values = values != 0
    return pa.array(values, mask=missing if missing.any() else None)


def _late(query: QueryPlan) -> Late:
    mentions = [sorted(mentioned_terms(query.conditions[index], len(query.terms))) for index in query.decided_late]
    return Late(
        np.array(query.decided_late, np.int64),
        ends_of([len(terms) for terms in mentions]),
        np.array([term for terms in mentions for term in terms], np.int64),
    )
