"""What matches select (`select e as n` without `every`): a column of values for each clause.

A value is null if it mentions a name that is unset. A match for which a value cannot be computed
becomes a row of kind `error` instead.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.expression import Call, EndOf, EventOf, Expression, FieldOf, Fold, Type, terms_of, type_of, walk
from querylang.plan.lookups import LOOKUP, failed_name, with_stored
from runtime.column_types import Integers, arrow_type, has_column, one_chunk
from runtime.columns.arrivals import column_name, from_cell, row_events, to_cell
from runtime.columns.expressions import over_columns
from runtime.columns.keys import key_values
from runtime.columns.rows import plain_cells, taken_cells
from runtime.exact_times import with_exact_times
from runtime.interpreter import Context, EvaluationError, Event, PlanWorld, Value, evaluate, run_action, seconds
from runtime.matching.interface import columns_of
from runtime.results.match_table import match_ids
from runtime.results.matched import OrderedMatches, taken_columns
from runtime.results.outputs import Moments, error_outputs
from runtime.results.schemas import NO_OUTPUTS


def with_selected(later: OrderedMatches) -> tuple[OrderedMatches | None, pa.Table]:
    """The matches with what they select, and the error rows of those that have no value.

    The matches are None if none is left.
    """
    found = _Matches(later)
    problems: dict[int, str] = {}
    events = later.query.selected_events
    columns = [
        found.column(item.value, f"select {item.name}", problems)
        for item in later.query.selects
        if item.name not in events
    ]
    return _without(replace(later, matched=replace(later.matched, selected=tuple(columns))), problems)


def with_compared(later: OrderedMatches) -> tuple[OrderedMatches | None, list[pa.Array], pa.Table]:
    """The matches, the values that `at most` compares, and the error rows of matches without one.

    The matches are None if none is left. A `find every` has computed its values behind those that
    it selects, and then what failed (`runtime.matching.find_every`).
    """
    problems: dict[int, str] = {}
    own = later.matched.selected
    assert later.query.at_most is not None, "there is a limit"
    if later.query.every is None:
        found = _Matches(later)
        columns = [found.column(value, AT_MOST, problems) for value in later.query.at_most.values]
        selected = own
    else:
        first = len(own) - len(later.query.at_most.values) - 1
        selected, columns = own[:first], list(own[first:-1])
        failed = zip(np.flatnonzero(own[-1].is_valid()).tolist(), own[-1].drop_null().to_pylist(), strict=True)
        problems = {number: f"{AT_MOST}: {text}" for number, text in failed}
    later = replace(later, matched=replace(later.matched, selected=(*selected, *columns)))
    left, errors = _without(later, problems)
    if left is None:
        return None, [], errors
    columns = list(left.matched.selected[len(selected) :])
    return (
        replace(left, matched=replace(left.matched, selected=left.matched.selected[: len(selected)])),
        columns,
        errors,
    )


AT_MOST = "at most"
"""Begins what is said of a value that cannot be computed."""


def _without(later: OrderedMatches, problems: dict[int, str]) -> tuple[OrderedMatches | None, pa.Table]:
    """The matches that have all values, and the error rows of the others."""
    if not problems:
        return later, NO_OUTPUTS
    bad = np.array(sorted(problems), np.int64)
    good = np.setdiff1d(np.arange(len(later.matched)), bad)
    errors = _errors(later, bad, [problems[number] for number in bad.tolist()])
    return (replace(later, matched=later.matched.take(good)) if len(good) else None), errors


def _errors(later: OrderedMatches, bad: Integers, texts: list[str]) -> pa.Table:
    matched = later.matched.take(bad)
    keys = taken_columns(later.keys, matched.latest)
    ids = match_ids(later.query, later.table, matched, keys)
    at = Moments(matched.time, matched.emitted, matched.step, matched.rank)
    return error_outputs(later.plan, later.query, keys, at, texts, ids)


@dataclass(frozen=True, slots=True)
class _Matches:
    """The matches whose values are computed."""

    later: OrderedMatches

    def column(self, written: Expression, clause: str, problems: dict[int, str]) -> pa.Array:
        """The values of a clause, null where a name is unset; adds the matches that have none."""
        value, matched = with_exact_times(written), self.later.matched
        is_set = np.ones(len(matched), np.bool_)
        for term in sorted(terms_of(value) - self._runs):
            is_set &= self._members(term) >= 0
        computed = self._over_columns(value)
        # A field that is null is null in the output; everything else that has no value failed.
        if isinstance(value, FieldOf):
            assert computed is not None, "a field is a column"
            return computed
        wanted = np.flatnonzero(is_set if computed is None else is_set & _is_null(computed))
        if not len(wanted) and computed is not None:
            return computed
        cells = [None] * len(matched) if computed is None else computed.to_pylist()
        for number, found in zip(wanted.tolist(), self._one_by_one(value, wanted), strict=True):
            if isinstance(found, EvaluationError):
                problems.setdefault(number, f"{clause}: {found}")
            else:
                cells[number] = to_cell(found)
        return pa.array(cells, arrow_type(type_of(value), self.later.plan))

    @property
    def _runs(self) -> frozenset[int]:
        """The terms that are runs."""
        return frozenset(index for index, term in enumerate(self.later.query.terms) if term.group is not None)

    def _columns(self, term: int) -> slice:
        """Where the members of a term are."""
        return columns_of(self.later.matched.widths, len(self.later.query.terms))[term]

    def _members(self, term: int) -> Integers:
        """The rows of a term's events, or the first ones of a run; negative = unset."""
        rows: Integers = self.later.matched.members[:, self._columns(term).start]
        return rows

    def _over_columns(self, value: Expression) -> pa.Array | None:
        """The values; None if the expression needs whole events, or the events of a run."""
        if self._runs and any(isinstance(node, Fold | EndOf) for node in walk(value)):
            return None
        if self.later.query.tables:
            known_value = with_stored(value, self._stored)
            if known_value is None or self._has_failed(known_value):
                return None
            value = known_value
        plan, query, matched = self.later.plan, self.later.query, self.later.matched
        known: dict[Expression, pa.Array] = {}
        events = 0
        for node in walk(value):
            match node:
                case FieldOf(type=type_, term=term, field=field):
                    known[node] = self._field(term, field, type_)
                case Call(method="getTime" | "microseconds", receiver=EventOf(term=term)):
                    known[node] = self._time(term, node.type)
                    events -= 1
                case EventOf():
                    events += 1
        if events:
            return None
        keys = key_values(query, taken_columns(self.later.keys, matched.latest))
        arrivals = self._arrivals if query.tables else None
        return over_columns(value, known, plan, query, keys, len(matched), arrivals)

    @property
    def _arrivals(self) -> Integers:
        """By match, when its latest event has arrived, µs."""
        arrivals: Integers = self.later.table.column("_arrival").to_numpy()[self.later.matched.latest]
        return arrivals

    @property
    def _stored(self) -> frozenset[str]:
        """The names of the lookups that are stored with events."""
        names: list[str] = self.later.table.column_names
        return frozenset(name.rpartition(":")[0] for name in names if name.startswith(LOOKUP))

    def _has_failed(self, value: Expression) -> bool:
        """Whether a stored lookup of some match has failed."""
        for node in walk(value):
            if isinstance(node, FieldOf) and node.field.startswith(LOOKUP):
                rows = self._members(node.term)
                failed = self.later.table.column(failed_name(node.field)).to_numpy()
                if failed[rows[rows >= 0]].any():
                    return True
        return False

    def _field(self, term: int, field: str, type_: Type) -> pa.Array:
        table, rows = self.later.table, self._members(term)
        name = column_name(field, type_)
        if not has_column(table, name):
            return pa.nulls(len(rows), arrow_type(type_, self.later.plan))
        return taken_cells(one_chunk(table.column(name)), pa.array(rows, mask=rows < 0))

    def _time(self, term: int, type_: Type | None) -> pa.Array:
        """The events' times: seconds as a float, or microseconds as an integer."""
        unset = self._members(term) < 0
        times = self.later.matched.times[:, self._columns(term).start]
        return pa.array(times if type_ == Type.INTEGER else [seconds(time) for time in times.tolist()], mask=unset)

    def _one_by_one(self, value: Expression, matches: Integers) -> list[Value | EvaluationError]:
        """The values of some matches, evaluated in Python; a failure instead of a value."""
        plan, query = self.later.plan, self.later.query
        world = PlanWorld(plan, query)
        terms = terms_of(value)
        runs = {term: self._events_of_run(term, matches, world) for term in terms & self._runs}
        events = [
            self._events(term, self._columns(term).start, matches, world) if term in terms - self._runs else []
            for term in range(len(query.terms))
        ]
        latest = self.later.matched.latest[matches]
        keys = [
            [from_cell(cell, key.type, world) for cell in column.to_pylist()]
            for key, column in zip(query.keys, key_values(query, taken_columns(self.later.keys, latest)), strict=True)
        ]
        arrivals = self._arrivals[matches] if query.tables else None
        found = list[Value | EvaluationError]()
        for number in range(len(matches)):
            context = Context(
                [own[number] if own else None for own in events],
                runs={term: own[number] for term, own in runs.items()},
                keys=[values[number] for values in keys],
                world=world,
                as_of=None if arrivals is None else int(arrivals[number]),
                invoke=run_action,
            )
            try:
                found.append(evaluate(value, context))
            except EvaluationError as error:
                found.append(error)
        return found

    def _events_of_run(self, term: int, matches: Integers, world: PlanWorld) -> list[list[Event]]:
        """By match, the events of a run in order of time."""
        found: list[list[Event]] = [[] for _ in range(len(matches))]
        columns = self._columns(term)
        for column in range(columns.start, columns.stop):
            is_set = np.flatnonzero(self.later.matched.members[matches, column] >= 0)
            for number, event in zip(is_set.tolist(), self._events(term, column, matches[is_set], world), strict=True):
                found[number].append(event)
        return found

    def _events(self, term: int, column: int, matches: Integers, world: PlanWorld) -> list[Event]:
        """The events in a column of a term, which is set in all of these matches."""
        event = self.later.plan.event(self.later.query.inputs[self.later.query.terms[term].input].event)
        rows = self.later.table.take(pa.array(self.later.matched.members[matches, column]))
        return row_events(event, plain_cells(rows), world, self.later.matched.times[matches, column].tolist())


def _is_null(column: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return found
