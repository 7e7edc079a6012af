"""What queries route to each other in a call: records for those that take them.

A routed record arrives when its match is found. Its place in the total order is behind what caused
it, depth first: a *path* names the record or timer at its root, and per hop the routing query, the
match and the output. Paths are compared element by element; a path comes before those that it
begins. So all that an event causes is processed before the next event of the same cause.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan, QueryPlan
from querylang.plan.routing import ROUTE_SOURCE, levels, taken_types
from runtime.admission import Moves
from runtime.columns.arrivals import AT_THE_END, Arrivals, arrivals_schema, column_name, to_cell
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
    """A routed event as a record. `query`: what routed it."""

    path: Path
    routed: Routed
    query: QueryPlan


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
        self._sources = ChainRecords(records, np.empty(0, np.int64), {})

    def records_for(self, query: QueryPlan) -> ChainRecords:
        """The records for a query; all that feed it have run."""
        taken = taken_types(query).intersection(self._types) if self._routed else ()
        routed = [item for item in self._routed if item.routed.event.type.name in taken]
        return self._merged(sorted(routed, key=attrgetter("path"))) if routed else self._sources

    def add(self, query: QueryPlan, given: ChainRecords, outcome: QueryOutcome) -> QueryOutcome:
        """Adds what a query has routed; its outcome, with steps of the records from sources.

        given: the records that the query has had
        """
        for item in outcome.routed:
            hop = query.name, query.instance, item.match, item.output
            self._routed.append(RoutedRecord((*given.cause(item.step, item.emitted), hop), item, query))
        return outcome.with_steps(given.steps) if len(given.steps) else outcome

    def table(self) -> pa.Table | None:
        """All that has been routed, in total order, as `Results.routed`."""
        if not self._routed:
            return None
        routed = sorted(self._routed, key=attrgetter("path"))
        table = self._table(routed, np.array([item.routed.emitted for item in routed], np.int64))
        return table.append_column("_step", pa.array([_step_of(item.path) for item in routed], pa.int64()))

    def _merged(self, routed: Sequence[RoutedRecord]) -> ChainRecords:
        records, count = self._records, len(self._records.table)
        before = np.array([self._place(item.path) for item in routed], np.int64)
        places = before + np.arange(len(routed))
        is_routed = np.zeros(count + len(routed), np.bool_)
        is_routed[places] = True
        order = np.empty(len(is_routed), np.int64)
        order[~is_routed], order[is_routed] = np.arange(count), count + np.arange(len(routed))
        moments = np.array([item.routed.emitted for item in routed], np.int64)
        table = Arrivals.concat([Arrivals(records.table), Arrivals(self._table(routed, moments))]).table
        arrival = np.concatenate([records.arrival, moments])[order]
        numbers = np.arange(count) + np.searchsorted(before, np.arange(count), side="right")
        roots = np.array([_step_of(item.path) for item in routed], np.int64)
        kinds = event_numbers(self._plan)
        own = np.array([kinds[item.routed.event.type.name] for item in routed], np.int64)
        merged = replace(
            records,
            table=table.take(pa.array(order)),
            kinds=np.concatenate([records.kinds, own])[order],
            arrival=arrival,
            moves=_moves(records, moments, order),
            controls=_renumbered(records.controls, numbers),
            now=max(records.now, int(arrival[-1])),
            is_routed=is_routed,
        )
        paths = dict(zip(places.tolist(), (item.path for item in routed), strict=True))
        return ChainRecords(merged, np.concatenate([np.arange(count), roots])[order], paths)

    def _place(self, path: Path) -> int:
        """How many records from sources come before a routed one."""
        moment, kind, record = path[0]
        if kind == _OF_RECORD:
            return int(record) + 1
        if kind == _OF_END:
            return len(self._records.table)
        return int(np.searchsorted(self._records.arrival, moment, side="left"))

    def _table(self, routed: Sequence[RoutedRecord], moments: Integers) -> pa.Table:
        """Routed events as `Arrivals`. Their coordinates are made from the identity of the match
        and the number of the output."""
        kinds, count = event_numbers(self._plan), len(routed)
        ids = [item.routed.identity for item in routed]
        columns: dict[str, Any] = {
            "_kind": [kinds[item.routed.event.type.name] for item in routed],
            "_arrival": moments,
            "_source": [f"{ROUTE_SOURCE}{item.query.name}" for item in routed],
            "_partition": [_signed(int(text[:16], 16)) for text in ids],
            "_offset": [
                _signed(int(text[16:], 16) + item.routed.output) for text, item in zip(ids, routed, strict=True)
            ],
            "_source_time": moments,
            "_text": [None] * count,
            "_place": np.zeros(count, np.int64),
        }
        cells: dict[str, list[Any]] = {}
        for row, item in enumerate(routed):
            event = item.routed.event
            for field in event.type.fields:
                column = cells.setdefault(column_name(field.name, field.type), [None] * count)
                column[row] = to_cell(event.values.get(field.name))
        schema = arrivals_schema(self._plan)
        arrays = {name: pa.array(values, schema.field(name).type) for name, values in (columns | cells).items()}
        return pa.table(arrays)


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


def _renumbered(controls: ControlEvents, numbers: Integers) -> ControlEvents:
    """Control events with other numbers of records."""
    first, *leeways = controls.leeways
    return ControlEvents(
        [first, *((int(numbers[record]), change) for record, change in leeways)],
        {int(numbers[record]): event for record, event in controls.heartbeats.items()},
        [(int(numbers[record]), text) for record, text in controls.errors],
    )
