"""`find every`: evaluate `having` and `select` over the aggregates of each match.

The aggregates come as columns, from either matcher. What an aggregate means is defined in
`runtime.interpreter.aggregates`; the kernel computes some of them itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field
from querylang.plan.expression import Aggregate, Expression, SelectOf, Type, type_of, walk
from querylang.plan.model import EventType, Every, MatchLimit, Plan, QueryPlan
from runtime.column_types import Integers, arrow_type
from runtime.columns.arrivals import from_cell, row_events, to_cell
from runtime.columns.expressions import over_columns
from runtime.columns.keys import key_columns, key_values
from runtime.exact_times import with_exact_times
from runtime.interpreter import Context, EvaluationError, Event, PlanWorld, Value, World, evaluate, run_action


def aggregates_of(query: QueryPlan) -> tuple[Aggregate, ...]:
    """The different aggregates of a query's `select`, `having` and `at most`, in text order."""
    if query.every is None:
        return ()
    compared = () if query.at_most is None else query.at_most.values
    written = (*(select.value for select in query.every.selects), *query.every.having, *compared)
    expressions = [with_exact_times(query.every.expanded(item)) for item in written]
    found = [node for expression in expressions for node in walk(expression) if isinstance(node, Aggregate)]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Selected:
    """The matches that pass all `having` clauses.

    matches: their numbers
    values: a column for each select that is not an event, by these matches
    events: (match, select that is an event), its position; -1 = it is unset
    compared: a column for each value that `at most` compares, then one that says what failed,
        null = nothing; empty without `at most`
    """

    matches: Integers
    values: tuple[pa.Array, ...]
    events: Integers
    compared: tuple[pa.Array, ...] = ()


def selected(
    plan: Plan,
    query: QueryPlan,
    aggregates: tuple[pa.Array, ...],
    table: pa.Table,
    latest: Integers,
    order: NDArray[np.int32],
) -> Selected:
    """What the matches select that pass all `having` clauses.

    aggregates: one column per aggregate, by match, as in `runtime.matching.interface.Found`
    table: the events' columns; `_time` holds their times
    latest: by match, the row of its latest event in `table`
    order: by position, the row of its event
    """
    assert query.every is not None, "only `find every` has selects"
    kinds = table.column("_kind").to_numpy()
    keys = [key.take(pa.array(latest)) for key in key_values(query, key_columns(table, kinds, plan, query))]
    arrivals = table.column("_arrival").to_numpy()[latest] if query.tables else None
    row = _Row(plan, query, keys, _Events(table, order), len(latest), arrivals)
    for node, column in zip(aggregates_of(query), aggregates, strict=True):
        if query.every.term_of(node) is None:
            row.columns[node] = column
        else:
            row.positions[node] = column.fill_null(-1).to_numpy()
    for number, select in enumerate(query.every.selects):
        own = SelectOf(type_of(select.value), number)
        if select.value in row.positions:
            row.positions[own] = row.positions[select.value]
        else:
            row.columns[own] = row.value(with_exact_times(query.every.expanded(select.value)))
    passed = np.ones(len(latest), np.bool_)
    for condition in query.every.having:
        asked = with_exact_times(query.every.expanded(condition))
        passed &= row.value(asked).fill_null(False).to_numpy(zero_copy_only=False)
    chosen = np.flatnonzero(passed)
    selects = pa.array(chosen)
    values = tuple(column.take(selects) for node, column in row.columns.items() if isinstance(node, SelectOf))
    events = [positions[chosen] for node, positions in row.positions.items() if isinstance(node, SelectOf)]
    compared = () if query.at_most is None else _compared(row, query.every, query.at_most, chosen)
    return Selected(chosen, values, np.array(events, np.int64).reshape(len(events), len(chosen)).T, compared)


def _compared(row: _Row, every: Every, limit: MatchLimit, chosen: Integers) -> tuple[pa.Array, ...]:
    """As `Selected.compared`, of the chosen matches."""
    columns, failed = list[pa.Array](), dict[int, str]()
    for value in limit.values:
        asked = with_exact_times(every.expanded(value))
        column = row.value(asked).take(pa.array(chosen))
        # A null is a value; only evaluating tells it from a failure.
        nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        for place, found in zip(nulls.tolist(), row.evaluated(asked, chosen[nulls]), strict=True):
            if isinstance(found, EvaluationError):
                failed.setdefault(place, str(found))
        columns.append(column)
    return *columns, pa.array([failed.get(place) for place in range(len(chosen))], pa.string())


@dataclass(frozen=True, slots=True)
class _Events:
    """The events of a call; `table` and `order` as in `selected`."""

    table: pa.Table
    order: NDArray[np.int32]

    def at(self, positions: Integers, event: EventType, world: World) -> list[Event | None]:
        """The events of one type at these positions; -1 = none."""
        is_set = positions >= 0
        rows = self.table.take(pa.array(self.order[positions[is_set]].astype(np.int64)))
        events = iter(row_events(event, rows, world, rows.column("_time").to_pylist()))
        return [next(events) if there else None for there in is_set.tolist()]


@dataclass(frozen=True, slots=True)
class _Row:
    """What `select` and `having` may mention besides keys.

    count: how many matches
    arrivals: by match, when its latest event has arrived, µs; None = nothing is looked up
    columns: by expression, one value per match
    positions: by expression that is an event, its position per match; -1 = none
    """

    plan: Plan
    query: QueryPlan
    keys: list[pa.Array]
    events: _Events
    count: int
    arrivals: Integers | None
    columns: dict[Expression, pa.Array] = field(default_factory=dict)
    positions: dict[Expression, Integers] = field(default_factory=dict)

    def value(self, expression: Expression) -> pa.Array:
        """By match, an expression over aggregates, keys and selects; null = no value."""
        if any(node in self.positions for node in walk(expression)):
            return self._value_of_events(expression)
        return over_columns(expression, self.columns, self.plan, self.query, self.keys, self.count, self.arrivals)

    def _value_of_events(self, expression: Expression) -> pa.Array:
        """The same for expressions that mention whole events, match by match."""
        found = self.evaluated(expression, np.arange(self.count))
        cells = [None if isinstance(item, EvaluationError) else to_cell(item) for item in found]
        return pa.array(cells, arrow_type(type_of(expression), self.plan))

    def evaluated(self, expression: Expression, rows: Integers) -> list[Value | EvaluationError]:
        """The values of some matches, one by one; a failure instead of a value."""
        if not len(rows):
            return []
        world = PlanWorld(self.plan, self.query)
        names = list(dict.fromkeys(node for node in walk(expression) if isinstance(node, Aggregate | SelectOf)))
        columns = [self._values(node, world) for node in names]
        keys = [_from_cells(column, key.type, world) for column, key in zip(self.keys, self.query.keys, strict=True)]
        found = list[Value | EvaluationError]()
        for row in rows.tolist():
            known = {node: values[row] for node, values in zip(names, columns, strict=True)}
            context = Context(
                keys=[values[row] for values in keys],
                selects={node.index: value for node, value in known.items() if isinstance(node, SelectOf)},
                aggregates={node: value for node, value in known.items() if isinstance(node, Aggregate)},
                world=world,
                as_of=None if self.arrivals is None else int(self.arrivals[row]),
                invoke=run_action,
            )
            try:
                found.append(evaluate(expression, context))
            except EvaluationError as error:
                found.append(error)
        return found

    def _values(self, node: Aggregate | SelectOf, world: World) -> Sequence[Value]:
        """An aggregate or a select, by match; None = no value."""
        if node in self.positions:
            return self.events.at(self.positions[node], self.plan.event(type_of(node).name), world)
        return _from_cells(self.columns[node], type_of(node), world)


def _from_cells(column: pa.Array, type_: Type, world: World) -> list[Value]:
    return [from_cell(cell, type_, world) for cell in column.to_pylist()]
