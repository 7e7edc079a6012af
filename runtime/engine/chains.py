"""What queries route to each other in a call: records for those that take them.

A routed record arrives when its match is found. Its place in the total order is behind what caused
it (`runtime.engine.paths`): all that an event causes is processed before the next event of the same
cause.

Queries that feed each other may be in several engines, each with some of the keys (`Crossing`):
then all that is routed leaves the engine, and comes back to those that have the keys of the queries
that take it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.dataclass import dataclass, replace
from querylang.plan.model import Plan, QueryPlan
from querylang.plan.routing import levels, taken_types
from runtime.admission import Moves
from runtime.column_types import Integers
from runtime.columns.arrivals import AT_THE_END, PLACE, Arrivals, arrivals_schema, column_name, field_columns
from runtime.engine.call_rows import CallRecords
from runtime.engine.paths import OF_END, OF_RECORD, OF_TIMER, Causes, RoutedOrder, RoutedRecords
from runtime.engine.query_runner import QueryOutcome, QueryRunner
from runtime.engine.shared_admission import SharedAdmission
from runtime.interpreter import event_numbers
from runtime.reading import ControlEvents
from runtime.results.matched import routed_places
from runtime.results.outputs import Routed


@dataclass(frozen=True, slots=True)
class Crossing:
    """Queries that feed each other in several engines, which work in rounds: a level in each.

    levels: by a query's title, how many routes lead to it one after the other, at most; of those
        that feed others, or are fed
    taken: the event types that some of them take
    """

    levels: Mapping[str, int]
    taken: frozenset[str]

    @property
    def rounds(self) -> int:
        """How many levels there are."""
        return max(self.levels.values(), default=0) + 1


class _Places:
    """Where the records of a call are in the order of all records.

    Within an engine their numbers say the same, for paths that do not leave it.
    """

    def __init__(self, records: CallRecords) -> None:
        self._records = records

    @cached_property
    def _columns(self) -> list[Integers]:
        return [self._records.table.column(name).to_numpy() for name in PLACE]

    def of(self, records: Integers) -> Integers:
        """The places of records of the call, each in a column; 0 where there are no records."""
        if not len(self._records.table):
            return np.zeros((len(PLACE), len(records)), np.int64)
        return np.stack([column[records] for column in self._columns])

    def before_caused_by(self, records: Integers) -> Integers:
        """How many records come before what each of these causes."""
        followers = np.minimum(records + 1, len(self._records.table) - 1)
        before, is_one = records + 1, followers > records
        for own in self._columns:
            if not is_one.any():
                break
            is_one &= own[records] == own[followers]
        before[is_one] = self._not_behind(self.of(records[is_one]))
        return before

    def before(self, roots: Integers) -> Integers:
        """How many records come before routed ones; `roots`: as of `Paths`."""
        moments, kind, places = roots[0], roots[1], roots[2:]
        found = np.full(len(kind), len(self._records.table))
        is_record, is_timer = kind == OF_RECORD, kind == OF_TIMER
        found[is_record] = self._not_behind(places[:, is_record])
        found[is_timer] = self.before_timers(moments[is_timer])
        return found

    def _not_behind(self, places: Integers) -> Integers:
        """How many records are not behind each of these places; found by halves."""
        first, end = (np.searchsorted(self._columns[0], places[0], side) for side in ("left", "right"))
        while (is_open := first < end).any():
            middle = (first + end) // 2
            at = np.where(is_open, middle, 0)
            is_before, is_equal = np.zeros(len(at), np.bool_), np.ones(len(at), np.bool_)
            for column, place in zip(self._columns, places, strict=True):
                is_before |= is_equal & (column[at] < place)
                is_equal &= column[at] == place
            is_before |= is_equal
            first = np.where(is_open & is_before, middle + 1, first)
            end = np.where(is_open & ~is_before, middle, end)
        return first

    def before_timers(self, moments: Integers) -> Integers:
        """How many records come before timers of these moments."""
        return np.searchsorted(self._records.arrival, moments, side="left")


@dataclass(frozen=True, slots=True)
class ChainRecords:
    """The records of a call, with what has been routed to some queries.

    steps: by record, the record of the call that is at its root; -1 = a timer is; empty = nothing
        has been routed
    causes: by record, its number among those of the call; of a routed one, that among what has been
        routed, behind them
    """

    records: CallRecords
    steps: Integers
    causes: Integers


class Chains:
    """Which queries of a plan feed which.

    crossing: those of several engines; None = they feed each other within this one
    """

    def __init__(self, plan: Plan, runners: Sequence[QueryRunner], crossing: Crossing | None = None) -> None:
        self._plan, self.crossing = plan, crossing
        taken = frozenset[str]().union(*map(taken_types, plan.queries)) if plan.queries else frozenset[str]()
        taken = taken if crossing is None else taken | crossing.taken
        for runner in runners:
            runner.feeds = taken.intersection(runner.query.routes)
        self._routed = frozenset[str]().union(*(runner.feeds for runner in runners))
        if crossing is not None:
            self._levels, self._routed = crossing.levels, self._routed | crossing.taken
        else:
            self._levels = levels(plan.queries) if self._routed else {}

    def in_order(
        self, members: Mapping[SharedAdmission, list[QueryRunner]]
    ) -> Mapping[SharedAdmission, list[QueryRunner]]:
        """The same; those that feed come before those that are fed."""
        if not self._routed:
            return members
        return dict(sorted(members.items(), key=lambda item: self.level(item[1])))

    def level(self, members: Sequence[QueryRunner]) -> int:
        """The level of queries that share an admission; of those without a chain 0."""
        return max(self._levels.get(runner.query.title, 0) for runner in members)

    @property
    def exchanges(self) -> int:
        """How many rounds of a call end with what other engines have routed."""
        return 0 if self.crossing is None else self.crossing.rounds - 1

    def feed(self, query: QueryPlan) -> bool:
        """Whether any query routes events to this one."""
        return bool(self._routed) and not self._routed.isdisjoint(taken_types(query))

    def exchanges_before(self, members: Sequence[QueryRunner]) -> int:
        """How many of them end before queries that share an admission run."""
        return min(self.exchanges, self.level(members)) if self.exchanges else 0

    def of_call(self, records: CallRecords, began: int, *, tells_causes: bool = False) -> CallChains:
        """The chains of one call.

        records: from sources
        began: the clock before the call, µs
        tells_causes: as of `Engine`
        """
        crosses = self.crossing is not None
        return CallChains(self._plan, records, self._routed, began, crosses=crosses, tells_causes=tells_causes)


class CallChains:
    """What has been routed so far in one call.

    Where queries cross, what they route is first in what leaves the engine.
    """

    def __init__(
        self,
        plan: Plan,
        records: CallRecords,
        types: Collection[str],
        began: int,
        *,
        crosses: bool,
        tells_causes: bool = False,
    ) -> None:
        self._plan, self._records, self._types, self._began, self._crosses = plan, records, types, began, crosses
        self._tells_causes = tells_causes
        self._kinds = event_numbers(plan)
        self._places = _Places(records)
        self._order = RoutedOrder()
        self._tables: list[pa.Table] = []
        self._leaving: list[RoutedRecords] = []
        self._given: dict[tuple[frozenset[str], int], ChainRecords] = {}
        self._sources = ChainRecords(records, np.empty(0, np.int64), np.empty(0, np.int64))

    def records_for(self, query: QueryPlan) -> ChainRecords:
        """The records for a query, with the columns of the types it takes; all that feed it have
        run."""
        if not len(self._order):
            return self._sources
        types = taken_types(query)
        asked = types, len(self._order)
        if asked not in self._given:
            wanted = [self._kinds[name] for name in types.intersection(self._types)]
            rows = self._order.rows()
            rows = rows[np.isin(self._all().column("_kind").to_numpy(), wanted)[rows]]
            self._given[asked] = self._merged(rows, self._columns(types)) if len(rows) else self._sources
        return self._given[asked]

    def _columns(self, types: Collection[str]) -> list[str]:
        """The columns of the call that a query may ask for; `types`: those that it takes."""
        fields = field_columns(self._plan.event(name) for name in types)
        return [name for name in self._records.table.column_names if name.startswith("_") or name in fields]

    def add(self, query: QueryPlan, given: ChainRecords, outcome: QueryOutcome) -> QueryOutcome:
        """Adds what a query has routed; its outcome, with steps of the records from sources.

        given: the records that the query has had
        """
        for routed in outcome.routed:
            causes, table = self._causes_of(routed, given), self._table(query, routed)
            if self._crosses:
                places = self._places.of(causes.record)
                self._leaving.append(RoutedRecords(table, self._order.paths(query, routed, causes, places)))
            else:
                self._order.add(query, routed, causes)
                self._tables.append(table)
        steps = given.causes if self._tells_causes else given.steps
        return outcome.with_steps(steps) if len(steps) else outcome

    def add_all(
        self, outcomes: Mapping[str, QueryOutcome], runners: Mapping[str, QueryRunner]
    ) -> dict[str, QueryOutcome]:
        """Adds what queries have routed that nothing feeds; their outcomes. Both by title."""
        return {
            title: self.add(runners[title].query, self._sources, outcome) if outcome.routed else outcome
            for title, outcome in outcomes.items()
        }

    def _causes_of(self, routed: Routed, given: ChainRecords) -> Causes:
        """What has caused routed events; given: the records of the query."""
        own, count = routed.step, len(self._records.table)
        is_record = (own >= 0) & (own < AT_THE_END)
        cause = np.where(is_record, own, -1)
        if len(given.causes):
            cause = np.where(is_record, given.causes[cause], -1)
        parent = np.where(cause >= count, cause - count, -1)
        is_source, is_routed = is_record & (parent < 0), parent >= 0
        kind = np.where(is_source, OF_RECORD, np.where(own < 0, OF_TIMER, OF_END))
        record, before = np.where(is_source, cause, 0), np.empty(len(own), np.int64)
        before[is_source] = self._places.before_caused_by(record[is_source])
        before[kind == OF_TIMER] = self._places.before_timers(routed.emitted[kind == OF_TIMER])
        before[kind == OF_END] = count
        moment = routed.emitted.copy()
        if is_routed.any():
            for column, of_known in zip((moment, kind, record, before), self._order.causes, strict=False):
                column[is_routed] = of_known[parent[is_routed]]
        return Causes(moment, kind, record, before, parent)

    def receive(self, routed: Sequence[RoutedRecords]) -> None:
        """Adds what has been routed, here or in other engines."""
        for item in routed:
            self._order.receive(item.paths, self._places.before(item.paths.roots))
            self._tables.append(item.table)

    def leave(self) -> RoutedRecords | None:
        """What has been routed since this was asked last, for all engines; None = nothing."""
        found, self._leaving = self._leaving, []
        return RoutedRecords.concat(found) if found else None

    def table(self) -> pa.Table | None:
        """All that has been routed, in total order, as `Results.routed`; None = nothing, or queries
        cross."""
        if not len(self._order) or self._crosses:
            return None
        rows = self._order.rows()
        table = self._taken(rows).append_column("_step", pa.array(self._order.causes.steps()[rows]))
        if self._tells_causes:
            table = table.append_column("_cause", pa.array(rows + len(self._records.table)))
            table = table.append_column("_before", pa.array(self._order.causes.before[rows]))
        return table

    def _all(self) -> pa.Table:
        """All routed records."""
        if len(self._tables) > 1:
            self._tables = [Arrivals.concat([Arrivals(table) for table in self._tables]).table]
        return self._tables[0]

    def _taken(self, rows: Integers) -> pa.Table:
        """These of all routed records, as `Arrivals`."""
        return self._all().take(pa.array(rows))

    def _merged(self, rows: Integers, columns: Sequence[str]) -> ChainRecords:
        """These columns of the call, with these routed records in total order."""
        records, count = self._records, len(self._records.table)
        before, roots = self._order.causes.before[rows], self._order.causes.steps()[rows]
        places = before + np.arange(len(rows))
        is_routed = np.zeros(count + len(rows), np.bool_)
        is_routed[places] = True
        order = np.empty(len(is_routed), np.int64)
        order[~is_routed], order[is_routed] = np.arange(count), count + np.arange(len(rows))
        own = self._taken(rows)
        # the clock of another engine may be behind this one, once timers were run to their end
        moments = np.maximum(own.column("_arrival").to_numpy(), np.append(self._began, records.arrival)[before])
        table = Arrivals.concat([Arrivals(records.table.select(columns)), Arrivals(own)]).table
        arrival = np.concatenate([records.arrival, moments])[order]
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
        causes = np.concatenate([np.arange(count), count + rows])[order]
        return ChainRecords(merged, np.concatenate([np.arange(count), roots])[order], causes)

    def _table(self, query: QueryPlan, routed: Routed) -> pa.Table:
        """What a query has routed as `Arrivals`. Coordinates are made from the identity of the
        match and the number of the output."""
        count, schema, moments = len(routed.match), arrivals_schema(self._plan), pa.array(routed.emitted)
        source, partitions, offsets = routed_places(query.name, routed.identity, routed.output)
        columns: dict[str, Any] = {
            "_kind": np.full(count, self._kinds[routed.type.name]),
            "_arrival": moments,
            "_source": pa.repeat(source, count),
            "_partition": partitions,
            "_offset": offsets,
            "_source_time": moments,
            "_text": pa.nulls(count),
            "_place": np.zeros(count, np.int64),
        }
        for field, cells in zip(routed.type.fields, routed.fields, strict=True):
            columns[column_name(field.name, field.type)] = cells
        return pa.table({name: _as_column(cells, schema.field(name).type) for name, cells in columns.items()})


def _as_column(cells: Any, type_: pa.DataType) -> pa.Array:
    return cells.cast(type_) if isinstance(cells, pa.Array) else pa.array(cells, type_)


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
