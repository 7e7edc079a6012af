"""What queries route to each other in a call: records for those that take them.

A routed record arrives when its match is found. Its place in the total order is behind what caused
it, depth first: a *path* names the record or timer at its root, and per hop the routing query, the
match and the output. Paths are compared element by element; a path comes before those that it
begins. So all that an event causes is processed before the next event of the same cause.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan, QueryPlan
from querylang.plan.routing import ROUTE_SOURCE, levels, taken_types
from runtime.admission import Moves
from runtime.columns.arrivals import AT_THE_END, Arrivals, arrivals_schema, column_name, field_columns, to_cell
from runtime.engine.call_rows import CallRecords
from runtime.engine.query_runner import QueryOutcome, QueryRunner
from runtime.engine.shared_admission import SharedAdmission
from runtime.interpreter import event_numbers
from runtime.number_arrays import Integers
from runtime.reading import ControlEvents
from runtime.results.outputs import Routed

Path = tuple[tuple[Any, ...], ...]
"""The root (moment in µs, kind, record), then by hop (query, instance, match, output)."""

_OF_TIMER, _OF_RECORD, _OF_END = 0, 1, 2
"""The kinds of roots, in the order of one moment."""

_WORD = 1 << 64


@dataclass(frozen=True, slots=True)
class RoutedRecord:
    """A routed event as a record."""

    path: Path
    routed: Routed


@dataclass(frozen=True, slots=True)
class ChainRecords:
    """The records of a call, with what has been routed to some queries.

    steps: by record, the record of the call that is at its root; -1 = a timer is; empty = nothing
        has been routed
    paths: of routed records, by their number
    """

    records: CallRecords
    steps: Integers
    paths: Mapping[int, Path]

    def cause(self, step: int, emitted: int) -> Path:
        """The path of what has found a match; parameters as of `Routed`."""
        if step in self.paths:
            return self.paths[step]
        if step < 0:
            return ((emitted, _OF_TIMER, 0),)
        if step >= AT_THE_END:
            return ((emitted, _OF_END, 0),)
        return ((emitted, _OF_RECORD, int(self.steps[step]) if len(self.steps) else step),)


class Chains:
    """Which queries of a plan feed which."""

    def __init__(self, plan: Plan, runners: Sequence[QueryRunner]) -> None:
        self._plan = plan
        taken = frozenset[str]().union(*map(taken_types, plan.queries)) if plan.queries else frozenset[str]()
        for runner in runners:
            runner.feeds = taken.intersection(runner.query.routes)
        self._routed = frozenset[str]().union(*(runner.feeds for runner in runners))
        self._levels = levels(plan.queries) if self._routed else {}

    def in_order(
        self, members: Mapping[SharedAdmission, list[QueryRunner]]
    ) -> Mapping[SharedAdmission, list[QueryRunner]]:
        """The same; those that feed come before those that are fed."""
        if not self._routed:
            return members

        def level(item: tuple[SharedAdmission, list[QueryRunner]]) -> int:
            return max(self._levels[runner.query.name] for runner in item[1])

        return dict(sorted(members.items(), key=level))

    def of_call(self, records: CallRecords) -> CallChains:
        """The chains of one call; `records`: from sources."""
        return CallChains(self._plan, records, self._routed)


class CallChains:
    """What has been routed so far in one call."""

    def __init__(self, plan: Plan, records: CallRecords, types: Collection[str]) -> None:
        self._plan, self._records, self._types = plan, records, types
        self._routed: list[RoutedRecord] = []
        self._tables: list[pa.Table] = []
        self._given: dict[tuple[frozenset[str], int], ChainRecords] = {}
        self._sources = ChainRecords(records, np.empty(0, np.int64), {})

    def records_for(self, query: QueryPlan) -> ChainRecords:
        """The records for a query, with the columns of the types it takes; all that feed it have
        run."""
        if not self._routed:
            return self._sources
        types = taken_types(query)
        asked = types, len(self._routed)
        if asked not in self._given:
            taken = types.intersection(self._types)
            rows = [row for row, item in enumerate(self._routed) if item.routed.event.type.name in taken]
            rows.sort(key=lambda row: self._routed[row].path)
            self._given[asked] = self._merged(rows, self._columns(types)) if rows else self._sources
        return self._given[asked]

    def _columns(self, types: Collection[str]) -> list[str]:
        """The columns of the call that a query may ask for; `types`: those that it takes."""
        fields = field_columns(self._plan.event(name) for name in types)
        return [name for name in self._records.table.column_names if name.startswith("_") or name in fields]

    def add(self, query: QueryPlan, given: ChainRecords, outcome: QueryOutcome) -> QueryOutcome:
        """Adds what a query has routed; its outcome, with steps of the records from sources.

        given: the records that the query has had
        """
        for item in outcome.routed:
            hop = query.name, query.instance, item.match, item.output
            self._routed.append(RoutedRecord((*given.cause(item.step, item.emitted), hop), item))
        if outcome.routed:
            self._tables.append(self._table(query, outcome.routed))
        return outcome.with_steps(given.steps) if len(given.steps) else outcome

    def table(self) -> pa.Table | None:
        """All that has been routed, in total order, as `Results.routed`."""
        if not self._routed:
            return None
        rows = sorted(range(len(self._routed)), key=lambda row: self._routed[row].path)
        steps = [_step_of(self._routed[row].path) for row in rows]
        return self._taken(rows).append_column("_step", pa.array(steps, pa.int64()))

    def _taken(self, rows: Sequence[int]) -> pa.Table:
        """These of all routed records, as `Arrivals`."""
        if len(self._tables) > 1:
            self._tables = [Arrivals.concat([Arrivals(table) for table in self._tables]).table]
        return self._tables[0].take(pa.array(rows, pa.int64()))

    def _merged(self, rows: Sequence[int], columns: Sequence[str]) -> ChainRecords:
        """These columns of the call, with these routed records in total order."""
        records, count = self._records, len(self._records.table)
        paths = [self._routed[row].path for row in rows]
        before = np.array([self._place(path) for path in paths], np.int64)
        places = before + np.arange(len(rows))
        is_routed = np.zeros(count + len(rows), np.bool_)
        is_routed[places] = True
        order = np.empty(len(is_routed), np.int64)
        order[~is_routed], order[is_routed] = np.arange(count), count + np.arange(len(rows))
        own = self._taken(rows)
        moments = own.column("_arrival").to_numpy()
        table = Arrivals.concat([Arrivals(records.table.select(columns)), Arrivals(own)]).table
        arrival = np.concatenate([records.arrival, moments])[order]
        roots = np.array([_step_of(path) for path in paths], np.int64)
        merged = replace(
            records,
            table=table.take(pa.array(order)),
            kinds=np.concatenate([records.kinds, own.column("_kind").to_numpy()])[order],
            arrival=arrival,
            moves=_moves(records, moments, order),
            controls=_renumbered(records.controls, before),
            now=max(records.now, int(arrival[-1])),
            is_routed=is_routed,
        )
        by_place = dict(zip(places.tolist(), paths, strict=True))
        return ChainRecords(merged, np.concatenate([np.arange(count), roots])[order], by_place)

    def _place(self, path: Path) -> int:
        """How many records from sources come before a routed one."""
        moment, kind, record = path[0]
        if kind == _OF_RECORD:
            return int(record) + 1
        if kind == _OF_END:
            return len(self._records.table)
        return int(np.searchsorted(self._records.arrival, moment, side="left"))

    def _table(self, query: QueryPlan, routed: Sequence[Routed]) -> pa.Table:
        """What a query has routed as `Arrivals`. Coordinates are made from the identity of the
        match and the number of the output."""
        kinds, count, schema = event_numbers(self._plan), len(routed), arrivals_schema(self._plan)
        moments = [item.emitted for item in routed]
        ids = [item.identity for item in routed]
        columns: dict[str, Any] = {
            "_kind": [kinds[item.event.type.name] for item in routed],
            "_arrival": moments,
            "_source": [f"{ROUTE_SOURCE}{query.name}"] * count,
            "_partition": [_signed(int(text[:16], 16)) for text in ids],
            "_offset": [_signed(int(text[16:], 16) + item.output) for text, item in zip(ids, routed, strict=True)],
            "_source_time": moments,
            "_text": [None] * count,
            "_place": [0] * count,
        }
        types = {item.event.type.name: item.event.type for item in routed}
        for type_ in types.values():
            rows = [row for row, item in enumerate(routed) if item.event.type.name == type_.name]
            for field in type_.fields:
                column = columns.setdefault(column_name(field.name, field.type), [None] * count)
                for row in rows:
                    column[row] = to_cell(routed[row].event.values.get(field.name))
        return pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()})


def _signed(word: int) -> int:
    word %= _WORD
    return word - _WORD if word >= _WORD // 2 else word


def _step_of(path: Path) -> int:
    """The step at the root of a path."""
    _, kind, record = path[0]
    return int(record) if kind == _OF_RECORD else -1 if kind == _OF_TIMER else AT_THE_END


def _moves(records: CallRecords, moments: Integers, order: Integers) -> Moves:
    """As of `records`; routed ones do not move. `order`: of both together."""
    own = records.moves
    is_moved = own.is_moved if len(own.is_moved) else np.zeros(len(records.table), np.bool_)
    without_idle = own.without_idle if len(own.without_idle) else records.arrival
    return Moves(
        np.concatenate([is_moved, np.zeros(len(moments), np.bool_)])[order],
        np.concatenate([without_idle, moments])[order],
    )


def _renumbered(controls: ControlEvents, before: Integers) -> ControlEvents:
    """Control events with other numbers of records; `before`: by routed record, how many records
    from sources come before it."""

    def number(record: int) -> int:
        return record + int(np.searchsorted(before, record, side="right"))

    first, *leeways = controls.leeways
    return ControlEvents(
        [first, *((number(record), change) for record, change in leeways)],
        {number(record): event for record, event in controls.heartbeats.items()},
        [(number(record), text) for record, text in controls.errors],
    )
