"""What a step of a replay is, and what its record says of itself.

Timers that expire by a record's arrival are steps before that record. They are reported only if a
user can see an effect: a match, an output, or a definitive time that has reached a held event.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import Plan, QueryPlan
from runtime.admission import BoundRule, KeyTimes, Lengths, Outcome, Selector
from runtime.column_types import has_column
from runtime.columns.arrivals import AT_THE_END, RecordKind, Shape, column_name, event_of, is_moved
from runtime.columns.keys import cells_of_values, chosen, key_cells, key_columns, keys_of_layer
from runtime.engine import Engine
from runtime.input_policies import uses_source_time
from runtime.instants import EARLIEST, LATEST, NEVER, NO_TIME
from runtime.interpreter import OrderKey, PlanWorld, event_text, order_key
from runtime.reading import control_name
from runtime.replay.divided import results_with_steps
from runtime.replay.records import Records
from runtime.results.for_users import Plain, PlainMatches, plain_value
from runtime.results.schemas import Results
from runtime.timestamps import format_time

# Definitive times of keys, record by record: what a replay's steps show of them. For keys whose
# time nothing else moves: without heartbeats, ordering policies, control events and keys that are
# forgotten. The engine decides which records are admitted, and what matches.


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """A key that can be hashed and sorted.

    order: of its parts, by which keys compare and stand
    cells: as of `runtime.columns.keys.key_columns`
    """

    order: OrderKey
    cells: tuple[Any, ...] = field(compare=False)

    @staticmethod
    def of(cells: Iterable[Any]) -> Key:
        """The key with these cells."""
        own = tuple(cells)
        return Key(tuple(map(order_key, own)), own)


def have_own_time(plan: Plan, records: pa.Table, kinds: NDArray[np.int64]) -> bool:
    """Whether only the clock and a key's own records move its time."""
    if plan.stopped or has_column(records, "_shape") or is_moved(records).any():
        return False
    if (kinds == RecordKind.CONTROL).any() or any(query.forget_keys is not None for query in plan.queries):
        return False
    inputs = [item for query in plan.queries for item in query.inputs]
    return all(item.policy is None and item.heartbeat is None for item in inputs)


@dataclass(slots=True)
class _Entry:
    """The times of one key in the query at a place.

    due: when something changes without a record; NEVER = not before one comes
    """

    place: int
    key: Key
    times: KeyTimes[None]
    due: int = NEVER

    def release(self, now: int) -> bool:
        """Lets time advance; whether a pending event is definitive now."""
        released = [*self.times.release(now, 0)]
        self.due = self.times.next_change if self.times.pending else NEVER
        return bool(released)


class TakenEvent(NamedTuple):
    """A routed event that the query at a place takes; parameters as of `StepTimes.take`."""

    place: int
    key: Key
    item: int
    time: int
    now: int
    rule: int


class RoutedEvent(NamedTuple):
    """An event that a query has routed.

    root: the record at its root; -1 = a timer, AT_THE_END = the end of the input
    step: its own; without `definitive` and what it has caused
    concerned: the (query, key) pairs that it concerns, and all queries without keys
    taken: by which queries it is
    """

    root: int
    step: Step
    concerned: Sequence[tuple[int, Key]]
    taken: Sequence[TakenEvent]


@dataclass(frozen=True, slots=True)
class Caused:
    """The results of a call with `_step` as the place of their cause among the records of the call
    and what queries have routed.

    places: of what queries have routed, ascending
    """

    results: Results
    places: Sequence[int]

    @staticmethod
    def of(results: Results, count: int) -> Caused:
        """The results of an engine that tells causes; `count`: of the records of the call."""
        table = results.routed
        if table is None:
            return Caused(results, ())
        before, cause, root = (table.column(name).to_numpy() for name in ("_before", "_cause", "_step"))
        places = np.where(root < AT_THE_END, before, AT_THE_END + 1) + np.arange(len(before))
        of_records = np.arange(count) + np.searchsorted(before, np.arange(count), side="right")
        numbers = np.concatenate([of_records, np.empty(len(before), np.int64)])
        numbers[cause] = places
        moved = results_with_steps(replace(results, routed=None), numbers, 0)
        return Caused(replace(moved, routed=table), places.tolist())

    def routed_at(self, step: int) -> int | None:
        """The number of the routed event at a place; None = there is another cause."""
        found = bisect_left(self.places, step)
        return found if found < len(self.places) and self.places[found] == step else None

    def record_at(self, step: int) -> int:
        """The number of the record at a place."""
        return step - bisect_left(self.places, step)


class StepTimes:
    """The definitive times of all keys of all queries, as far as records have come."""

    def __init__(self, plan: Plan) -> None:
        self._lengths = [Lengths.of(query) for query in plan.queries]
        self._entries: dict[tuple[int, Key], _Entry] = {}
        self._due: list[tuple[int, int, _Entry]] = []
        self._order = count()

    def take(self, place: int, key: Key, item: int, time: int, now: int, rule: int = BoundRule.BY_INPUT) -> bool:
        """A record is admitted as an event of the query at this place, at its arrival `now`, µs.
        Returns whether it makes an event definitive that was pending before.

        rule: as in `runtime.admission.KeyedRows`
        """
        own = self._of(place, key)
        before = len(own.times.pending)
        own.times.admit(item, time, now, next(self._order), None, rule=rule)
        own.release(now)
        self._schedule(own)
        is_definitive = time <= own.times.definitive(now)
        return before + (not is_definitive) > len(own.times.pending)

    def definitive(self, place: int, key: Key, clock: int) -> int | None:
        """The definitive time of a query for a key; None = there is none."""
        reached = self._of(place, key).times.definitive(clock)
        return None if reached == NO_TIME else max(EARLIEST, min(reached, LATEST))

    def due(self) -> int:
        """When time advances next without a record, µs; NEVER = not before one comes."""
        while self._due and self._due[0][0] != self._due[0][2].due:  # a record has come since
            heappop(self._due)
        return self._due[0][0] if self._due else NEVER

    def run(self, moment: int) -> list[tuple[int, Key]]:
        """Lets time advance to a moment; the (query, key) pairs with events that are definitive
        now.
        """
        released = []
        while self.due() <= moment:
            own = heappop(self._due)[2]
            if own.release(moment):
                released.append((own.place, own.key))
            self._schedule(own)
        return released

    def _of(self, place: int, key: Key) -> _Entry:
        found = self._entries.get((place, key))
        if found is None:
            found = self._entries[place, key] = _Entry(place, key, KeyTimes.of(self._lengths[place]))
        return found

    def _schedule(self, own: _Entry) -> None:
        if own.due < NEVER:
            heappush(self._due, (own.due, next(self._order), own))


_NO_KEY = Key.of(())

_JUDGED = (Outcome.USED, Outcome.HEARTBEAT)
CONCERNED = (*_JUDGED, Outcome.NULL_KEY, Outcome.NULL_TIME)


_AT_ONCE = 1_024
"""So many cells of a column become Python values at a time."""


@dataclass(frozen=True, slots=True)
class Step:
    """The effect of one record, of an event that a query has routed, or of the timers of one key.

    Times are microseconds UTC.

    at: arrival time, or when the timers expired
    row: the record's number in its table; None = timers, or a routed event
    event: the name of the event type; None = timers, or a record without one
    source: of an event that a query has routed: `route:` and the query; None = another step
    text: the event as `toString()` prints it, or the text of a record that is not an event
    source_time: source time; None = there is none
    end: end of an interval or end edge; None = there is none
    time: the event's time after adjustment; None = there is none, or the record was discarded
    adjusted: why the time was adjusted; None = it was not
    discarded: why the record was discarded; None = it was not
    definitive: earliest definitive time of the queries concerned after the step; None = unknown
    matches, outputs: as in `--format steps`
    key: key of the timers, or of the record in the first query that it concerns; None = none
    """

    at: int
    row: int | None = None
    event: str | None = None
    text: str | None = None
    source_time: int | None = None
    end: int | None = None
    time: int | None = None
    adjusted: str | None = None
    discarded: str | None = None
    definitive: int | None = None
    matches: Sequence[Plain] = ()
    outputs: Sequence[Plain] = ()
    key: Plain | None = None
    source: str | None = None

    def to_plain(self) -> Plain:
        """The JSON object of `--format steps`."""
        return {
            "at": format_time(self.at),
            "row": self.row,
            "event": self.event,
            **({} if self.source is None else {"source": self.source}),
            "source_time": None if self.source_time is None else format_time(self.source_time),
            "time": None if self.time is None else format_time(self.time),
            "adjusted": self.adjusted,
            "discarded": self.discarded,
            "definitive": None if self.definitive is None else format_time(self.definitive),
            "matches": list(self.matches),
            "outputs": list(self.outputs),
        }


class QueryRecord(NamedTuple):
    """What a record is to the query at a place.

    outcome: an `Outcome`
    time: source time, µs
    input: the number of the input; -1 = a heartbeat
    is_timed: the event happens at its source time, not at arrival
    is_strict: the event is released after its time only, not at it
    """

    place: int
    outcome: int
    time: int
    key: Key
    input: int
    is_timed: bool
    is_strict: bool


class QueryRecords:
    """How queries read the records of a table: what each record is to those that it concerns.

    Of a record that is not for a query nothing is kept: there may be ten thousand queries.
    """

    def __init__(self, plan: Plan, table: pa.Table, kinds: NDArray[np.int64]) -> None:
        self._plan = plan
        self._read: list[QueryRecord] = []
        rows = [self._read_by(place, query, table, kinds) for place, query in enumerate(plan.queries)]
        together = np.concatenate([*rows, np.empty(0, np.int64)])
        self._order = np.argsort(together, kind="stable").tolist()
        self._first = np.searchsorted(np.sort(together), np.arange(len(kinds) + 1)).tolist()

    def of(self, index: int) -> list[QueryRecord]:
        """What a record is to the queries that it concerns, in their order."""
        return [self._read[number] for number in self._order[self._first[index] : self._first[index + 1]]]

    def _read_by(self, place: int, query: QueryPlan, table: pa.Table, kinds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Adds what a query reads; gives the rows of that."""
        selector = Selector(self._plan, query)
        outcome = selector.outcomes(table, kinds)
        rows = np.flatnonzero(np.isin(outcome, CONCERNED))
        if len(rows) < len(kinds):
            table, kinds, outcome = table.take(pa.array(rows)), kinds[rows], outcome[rows]
        if not len(rows):
            return rows
        selection = selector.select(table, kinds)
        columns = key_columns(table, kinds, self._plan, query)
        input_of = selection.input
        for layer, other in enumerate(selector.layers[1:], 1):  # the first input that uses a record
            own = other.select(table, kinds).input
            is_own = (input_of < 0) & (own >= 0)
            input_of = np.where(is_own, own, input_of)
            of_layer = keys_of_layer(table, kinds, self._plan, query, layer)
            columns = [chosen(is_own, *pair) for pair in zip(of_layer, columns, strict=True)]
        cells = [column.to_pylist() for column in columns]
        keys = [Key.of(row) for row in zip(*cells, strict=True)] if cells else [Key.of(())] * len(rows)
        # The last place of both lists, index -1, is for heartbeats, which belong to no input.
        timed = [*(uses_source_time(item) for item in query.inputs), True]
        strict = [*(item.policy is not None and item.policy.is_strict for item in query.inputs), False]
        read = zip(outcome.tolist(), selection.time.tolist(), keys, input_of.tolist(), strict=True)
        self._read += [QueryRecord(place, *own, timed[own[-1]], strict[own[-1]]) for own in read]
        return rows


class Stepping:
    """A replay in progress."""

    def __init__(self, plan: Plan, records: Records, engine: Engine, *, is_for_people: bool = True) -> None:
        """is_for_people: whether steps of records have `text` and `key`, which JSON has not"""
        self.plan = plan
        self.is_for_people = is_for_people
        self.world = PlanWorld(plan)
        self.records = records
        self.engine = engine
        self.engine.tells_causes = True
        self.table = records.arrivals.table
        self.kinds = records.arrivals.system("kind").astype(np.int64)
        self.arrival = records.arrivals.system("arrival")
        self.readings = QueryRecords(plan, self.table, self.kinds)
        self._keyless = [place for place, query in enumerate(plan.queries) if not query.keys]
        shapes = (
            self.table.column("_shape").to_pylist() if has_column(self.table, "_shape") else [None] * len(self.kinds)
        )
        self.is_end = [shape == Shape.END_EDGE for shape in shapes]
        self.ends = self.table.column("_end") if has_column(self.table, "_end") else None
        self._cells: dict[str, list[Any]] = {}
        self._cells_from = 0
        self.plain = PlainMatches(records.row_of())

    def routed(self, results: Results) -> list[RoutedEvent]:
        """What queries have routed to others, in total order."""
        table, discarded = results.routed, results.discarded
        if table is None:
            return []
        refused: dict[tuple[Any, ...], str] = {}
        if discarded is not None:
            reasons_of = discarded.column("reason").to_pylist()
            refused = dict(zip(zip(*_coordinates(discarded), strict=True), reasons_of, strict=True))
        kinds, arrival = table.column("_kind").to_numpy().astype(np.int64), table.column("_arrival").to_pylist()
        coordinates = list(zip(*_coordinates(table, "_"), strict=True))
        readings = QueryRecords(self.plan, table, kinds)
        titles = [query.public_title for query in self.plan.queries] if refused else []
        timed: dict[int, set[int]] = {}
        found = []
        for row, (root, now) in enumerate(zip(table.column("_step").to_pylist(), arrival, strict=True)):
            kind, concerned, taken = int(kinds[row]), readings.of(row), list[TakenEvent]()
            refusals = [refused.get((title, *coordinates[row])) for title in titles]
            reasons = [reason for reason in refusals if reason is not None]
            for item in concerned:
                place = item.place
                if item.outcome == Outcome.USED and (not refusals or refusals[place] is None):
                    if place not in timed:
                        timed[place] = {kind for kind, _ in Selector(self.plan, self.plan.queries[place]).time_from}
                    rule = BoundRule.OUT_OF_ORDER if kind in timed[place] else BoundRule.IN_ORDER
                    time = item.time if item.is_timed else now
                    taken.append(TakenEvent(place, item.key, item.input, time, now, rule))
            source_time = concerned[0].time if concerned else now
            event = self.plan.events[kind]
            cells = {own.name: table.column(column_name(own.name, own.type))[row].as_py() for own in event.fields}
            key = None
            if concerned and self.is_for_people:
                key = self._key(concerned)
            step = Step(
                at=now,
                event=event.name,
                text=event_text(event, event_of(event, cells, self.world).values) if self.is_for_people else None,
                source_time=moment_or_none(source_time),
                time=taken[0].time if taken and not reasons else None,
                discarded=min(reasons, default=None),
                key=key,
                source=coordinates[row][0],
            )
            found.append(RoutedEvent(root, step, list(self.keys_with_time(concerned)), taken))
        return found

    def step_of(
        self,
        index: int,
        concerned: Sequence[QueryRecord],
        *,
        definitive: Sequence[int],
        discarded: Collection[tuple[str | None, str]],
        adjusted: Mapping[str, tuple[int, str]],
        matches: Sequence[Plain],
        outputs: Sequence[Plain],
    ) -> Step:
        """The step of a record.

        concerned: what it is to the queries that it concerns
        definitive: their definitive times
        discarded: the queries that discarded it, with the reason
        adjusted: by query: the time that it was given, with the reason
        """
        source_time, time = self._times_of(index, concerned)
        first = next((adjusted[title] for title in self._titles(concerned) if title in adjusted), (time, None))
        return Step(
            at=int(self.arrival[index]),
            row=int(self.records.rows[index]),
            event=self._event_name(index),
            text=self._event_text(index) if self.is_for_people else None,
            source_time=source_time,
            end=None if self.ends is None else moment_or_none(self.ends[index].as_py()),
            time=None if discarded else first[0],
            adjusted=first[1],
            discarded=min((reason for _, reason in discarded), default=None),
            definitive=min(definitive, default=None),
            matches=matches,
            outputs=outputs,
            key=self._key(concerned) if self.is_for_people else None,
        )

    def keys_with_time(self, concerned: Sequence[QueryRecord]) -> Iterator[tuple[int, Key]]:
        """The queries that a record concerns with its keys, and all queries without keys."""
        yield from ((place, _NO_KEY) for place in self._keyless)
        for item in concerned:
            if item.key.cells and None not in item.key.cells:
                yield item.place, item.key

    def _titles(self, concerned: Sequence[QueryRecord]) -> list[str]:
        return [self.plan.queries[item.place].title for item in concerned]

    def _times_of(self, index: int, concerned: Sequence[QueryRecord]) -> tuple[int | None, int | None]:
        """Source time, and the event's time for the first query that uses it."""
        declared = int(self._cell("_source_time", index))
        source_time = next((item.time for item in concerned), declared)
        judged = next((item for item in concerned if item.outcome in _JUDGED), None)
        time = NO_TIME
        if judged is not None:
            time = judged.time if judged.is_timed else int(self.arrival[index])
        return moment_or_none(source_time), moment_or_none(time)

    def _key(self, concerned: Sequence[QueryRecord]) -> Plain | None:
        return next((named_key(self.plan.queries[item.place], item.key.cells) for item in concerned), None)

    def _event_name(self, index: int) -> str | None:
        kind = int(self.kinds[index])
        if kind >= 0:
            return self.plan.events[kind].name
        text = self._cell("_text", index)
        if kind == RecordKind.CONTROL:
            return control_name(text)
        return text if kind == RecordKind.UNKNOWN_TYPE else None

    def _event_text(self, index: int) -> str | None:
        kind = int(self.kinds[index])
        if kind < 0:
            return None if kind == RecordKind.TICK else self._cell("_text", index)
        event = self.plan.events[kind]
        cells = {field.name: self._cell(column_name(field.name, field.type), index) for field in event.fields}
        return event_text(event, event_of(event, cells, self.world).values)

    def _cell(self, name: str, index: int) -> Any:
        """A cell of a record; records are asked for in order."""
        if not 0 <= index - self._cells_from < _AT_ONCE:
            self._cells, self._cells_from = {}, index
        cells = self._cells.get(name)
        if cells is None:
            cells = self.table.column(name).slice(self._cells_from, _AT_ONCE).to_pylist()
            self._cells[name] = cells
        return cells[index - self._cells_from]


def _coordinates(table: pa.Table, prefix: str = "") -> list[list[Any]]:
    """The coordinates of records; of discarded ones, the query that refused them comes first."""
    names = [f"{prefix}{name}" for name in ("source", "partition", "offset")]
    return [table.column(name).to_pylist() for name in (names if prefix else ["query", *names])]


def named_key(query: QueryPlan, cells: Sequence[Any]) -> Plain:
    """A key of the engine by its names, as JSON has it."""
    return dict(plain_value(dict(zip(query.key_names, key_cells(query, cells), strict=True))))


def key_of_match(plan: Plan, query: QueryPlan, key: Mapping[str, Any]) -> Key:
    """The engine's key of a match, or of an output."""
    return Key.of(cells_of_values(plan, query, list(key.values())))


def moment_or_none(micros: int) -> int | None:
    """The same; NO_TIME is None."""
    return None if micros == NO_TIME else micros
