"""The fast matcher: one compiled search for every query, driven by the automaton and the conditions' program as tables.

Takes ordered events as columns; operands of conditions are computed as columns first, then each new event starts a depth-first
search backwards in time (`runtime.kernel_search`). No partial matches are kept; windows, `within` and conditions, checked as
early as they can be decided, cut the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.expression import Aggregate, Expression, Invoke, KeyOf, Type, terms_of, walk
from querylang.plan import Condition, Plan, QueryPlan, Where, Without, known, mentioned_terms
from runtime.compiled import kernel
from runtime.controls import NEVER
from runtime.every import aggregates_of
from runtime.expressions import as_array, with_keys
from runtime.kernel_program import Conditions, KernelProgram, NotForKernel, Operand, about_one_event, build_program
from runtime.kernel_search import (
    Aggregated,
    Arguments,
    Events,
    Function,
    Late,
    Memory,
    Query,
    Running,
    Waits,
    new_memory,
    outlive,
    search,
    search_every,
)
from runtime.kernel_tables import (
    ConditionColumns,
    automaton_columns,
    condition_columns,
    ends_of,
    is_ambiguous,
)
from runtime.keys import key_columns
from runtime.matcher import Found, Ordered, Waiting
from runtime.windows import WindowColumns, window_columns

Integers = NDArray[np.int64]


class KernelMatcher:
    """A matcher for one query; raises NotForKernel if it needs the reference matcher."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._plan, self._query = plan, query
        self._terms = len(query.terms)
        self._is_every = query.every is not None
        self._is_ambiguous = is_ambiguous(query)
        self._windows: WindowColumns = window_columns(query)
        self._within = NEVER if query.within is None else query.within
        self._leading = NEVER if query.leading is None else known(query.leading.duration)
        self._automaton = automaton_columns(query)
        self._aggregates = aggregates_of(query)
        self._functions = [_function(node) for node in self._aggregates]
        self._compile(query.conditions, query)
        self._late = _late(query)

    def _compile(self, conditions: Sequence[Condition], query: QueryPlan) -> None:
        """The program of all expressions over several events, and where each condition and aggregate finds its own."""
        events = [query.inputs[term.input].event for term in query.terms]
        parts: list[tuple[Expression, Sequence[str]]] = []
        programs, counted = [], []
        self._counted: list[tuple[int, Expression | None, str]] = []
        for condition in conditions:
            program = row = -1
            if isinstance(condition, Without) and self._is_counted(condition):
                row = len(self._counted)
                event = query.inputs[condition.input].event
                self._counted.append((condition.input, condition.condition, event))
            elif isinstance(condition, Where | Without) and condition.condition is not None:
                program = len(parts)
                own = query.inputs[condition.input].event if isinstance(condition, Without) else events[0]
                parts.append((condition.condition, [*events, own]))
            programs.append(program)
            counted.append(row)
        self._conditions: ConditionColumns = condition_columns(query, programs, counted)
        self._arguments = _arguments(self._aggregates, self._functions, len(parts))
        parts += [(node.arguments[0], [*events, events[0]]) for node in self._aggregates if node.arguments]
        self._program: KernelProgram = build_program(parts)
        operands = (*self._program.float_operands, *self._program.integer_operands)
        computed = [*(item.expression for item in operands), *(about for _, about, _ in self._counted if about)]
        asks = any(isinstance(node, KeyOf | Invoke) for part in computed for node in walk(part))
        self._may_ask_for_keys = asks and bool(query.keys)

    def _is_counted(self, condition: Without) -> bool:
        """Whether its events can be told without looking at a candidate, or at which of them are current."""
        about = frozenset() if condition.condition is None else terms_of(condition.condition)
        return about <= {self._terms} and not self._windows.is_unique[condition.input]

    def match(self, events: Ordered) -> Found:
        """One compiled search over all keys."""
        ordered, query = self._tables(events)
        starts = np.zeros(len(self._windows.within), np.bool_)
        starts[self._automaton.input if self._is_every else self._automaton.input[: self._automaton.first[1]]] = True
        most = int(starts[ordered.input].sum())
        latest = np.empty(most, np.int64)
        if not self._is_every:
            members = np.empty((most, self._terms), np.int64)
            found = search(ordered, query, self._memory(ordered), self._is_ambiguous, latest, members)
            return Found(latest[:found], members[:found])
        shape = (len(self._aggregates), most)
        results = Aggregated(np.zeros(shape, np.int64), np.zeros(shape, np.float64), np.zeros(shape, np.bool_))
        count = len(self._aggregates)
        best = np.full((count, self._terms), -1, np.int64)
        running = Running(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.float64), best)
        memory, is_ambiguous = self._memory(ordered), self._is_ambiguous
        found = search_every(ordered, query, memory, is_ambiguous, self._arguments, running, latest, results)
        columns = tuple(_column(node, place, results, found) for place, node in enumerate(self._aggregates))
        return Found(latest[:found], np.empty((found, 0), np.int64), columns)

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """One compiled pass over all waits."""
        ordered, query = self._tables(events)
        waits = Waits(waiting.key, waiting.members, waiting.latest, waiting.due, waiting.is_new)
        result = np.ones(len(waiting.key), np.bool_)
        outlive(ordered, query, self._late, waits, self._memory(ordered), result)
        return result

    def _memory(self, events: Events) -> Memory:
        return new_memory(events.start, self._terms, len(self._windows.within), self._automaton.memory)

    def _tables(self, events: Ordered) -> tuple[Events, Query]:
        row, program = events.row, self._program
        table = self._with_keys(events.table)
        floats = _operands([self._operand(item, table) for item in program.float_operands], row, np.float64)
        integers, constants = self._integers(table, row)
        code = Conditions(program.code, program.ends, constants, program.floats, *integers, *floats)
        ordered = Events(
            events.start,
            events.fresh,
            events.input,
            events.time,
            events.superseded,
            self._counts(events, table),
        )
        return ordered, Query(self._automaton, self._conditions, code, self._windows, self._within, self._leading)

    def _with_keys(self, table: pa.Table) -> pa.Table:
        if not self._may_ask_for_keys:
            return table
        kinds = table.column("_kind").to_numpy()
        return with_keys(table, self._query, key_columns(table, kinds, self._plan, self._query))

    def _operand(self, item: Operand, table: pa.Table) -> pa.Array:
        return as_array(item.expression, table, self._plan, self._plan.event(item.event), self._query)

    def _integers(self, table: pa.Table, row: NDArray[np.int32]) -> tuple[_Operands, Integers]:
        """Integer, boolean and string operands; strings, the constants too, as ranks over all that occur here."""
        program = self._program
        columns = [self._operand(item, table) for item in program.integer_operands]
        constants = program.integers
        if program.strings or any(pa.types.is_string(column.type) for column in columns):
            columns, constants = _ranked(columns, program.strings, constants)
        return _operands(columns, row, np.int64), constants

    def _counts(self, events: Ordered, table: pa.Table) -> NDArray[np.int32]:
        """By (`without`, position): how many of its events stand before."""
        row, count = events.row, len(events.row)
        counts = np.zeros((max(1, len(self._counted)), count + 1 if self._counted else 1), np.int32)
        for number, (taken, condition, event) in enumerate(self._counted):
            is_one = events.input == taken
            if condition is not None:
                operand = self._operand(Operand(about_one_event(condition), event), table)
                is_one &= operand.fill_null(False).to_numpy(zero_copy_only=False)[row]
            np.cumsum(is_one, out=counts[number, 1:])
        return counts


def _arguments(nodes: Sequence[Aggregate], functions: Sequence[Function], first: int) -> Arguments:
    """The aggregates as the kernel takes them; their arguments' programs are numbered from `first` on."""
    programs, mentions = [], []
    for node in nodes:
        programs.append(first if node.arguments else -1)
        first += bool(node.arguments)
        mentions.append(sorted(terms_of(node)))
    return Arguments(
        function=np.array([int(function) for function in functions], np.int64),
        program=np.array(programs, np.int64),
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


_Operands = tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.int32]]
"""Values by (operand, position); masks; and for each operand its row in the masks, -1 where it has a value everywhere."""


@kernel
def gather(values: NDArray[Any], row: NDArray[np.int32], into: NDArray[Any]) -> None:
    """The values of these rows, one after the other."""
    for position in range(len(row)):
        into[position] = values[row[position]]


def _operands(columns: Sequence[pa.Array], row: NDArray[np.int32], kind: type) -> _Operands:
    values: NDArray[Any] = np.empty((max(1, len(columns)), len(row)), kind)
    mask = np.full(max(1, len(columns)), -1, np.int32)
    valid: list[NDArray[np.bool_]] = []
    for index, column in enumerate(columns):
        if column.null_count:
            mask[index] = len(valid)
            valid.append(column.is_valid().to_numpy(zero_copy_only=False)[row])
            column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)  # noqa: PLW2901
        gather(column.to_numpy(zero_copy_only=False), row, values[index])
    return values, np.array(valid) if valid else np.ones((1, 1), np.bool_), mask


def _ranked(
    columns: Sequence[pa.Array], strings: Sequence[tuple[int, str]], constants: Integers
) -> tuple[list[pa.Array], Integers]:
    """Strings replaced by their rank in code point order among all strings of these columns and constants."""
    texts = [index for index, column in enumerate(columns) if pa.types.is_string(column.type)]
    parts = [columns[index] for index in texts]
    parts.append(pa.array([value for _, value in strings], pa.string()))
    encoded = pa.concat_arrays(parts).dictionary_encode()
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    ranks = pa.array(rank).take(encoded.indices)
    result, at = list(columns), 0
    for index, part in zip(texts, parts, strict=False):
        result[index] = ranks.slice(at, len(part))
        at += len(part)
    constants = constants.copy()
    for offset, (place, _) in enumerate(strings):
        constants[place] = ranks[at + offset].as_py()
    return result, constants
