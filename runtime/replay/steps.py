"""A replay step by step: one step per record, and one per key and expired timer.

Timers that expire by a record's arrival are steps before that record. They are reported only if a
user can see an effect: a match, an output, or a definitive time that has reached a held event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan
from runtime.admission.outcomes import Outcome
from runtime.admission.selection import Selector
from runtime.columns.arrivals import Arrivals, RecordKind, Shape, column_name
from runtime.columns.cell_values import event_of
from runtime.columns.keys import key_columns
from runtime.columns.timestamps import format_time
from runtime.engine.engine import Engine
from runtime.instants import NO_TIME
from runtime.interpreter.context import PlanWorld
from runtime.interpreter.value_text import event_text
from runtime.policies.per_input import uses_source_time
from runtime.reading.control_events import control_name
from runtime.replay.replay import Records, in_order, matches_in_order
from runtime.results.json_objects import Plain, RowOf, plain_matches, plain_outputs, plain_value
from runtime.results.schemas import Results

Key = tuple[Any, ...]
"""A key that can be hashed and sorted: a location is a tuple of names and values."""

_JUDGED = (Outcome.USED, Outcome.HEARTBEAT)
_CONCERNED = (*_JUDGED, Outcome.NULL_KEY, Outcome.NULL_TIME)


@dataclass(frozen=True, slots=True)
class Step:
    """The effect of one record, or of the timers of one key. Times are microseconds UTC.

    at: arrival time, or when the timers expired
    row: the record's number in its table; None = timers
    event: the name of the event type; None = timers, or a record without one
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

    def to_plain(self) -> Plain:
        """The JSON object of `--format steps`."""
        return {
            "at": format_time(self.at),
            "row": self.row,
            "event": self.event,
            "source_time": None if self.source_time is None else format_time(self.source_time),
            "time": None if self.time is None else format_time(self.time),
            "adjusted": self.adjusted,
            "discarded": self.discarded,
            "definitive": None if self.definitive is None else format_time(self.definitive),
            "matches": list(self.matches),
            "outputs": list(self.outputs),
        }


def replay_steps(
    plan: Plan, records: Records, *, until: int | None = None, flush: bool = True, matcher: str = "auto"
) -> Iterator[Step]:
    """All steps of a replay; `until` and `flush` as in `replay_records`."""
    records = records.until(until)
    stepping = _Stepping(plan, records, matcher)
    for index in range(len(records.rows)):
        yield from stepping.timers(int(stepping.arrival[index]))
        yield stepping.record(index)
    if until is not None:
        yield from stepping.timers(until)
    elif flush:
        yield from stepping.end()
        yield from stepping.timers(None)


@dataclass(frozen=True, slots=True)
class _Role:
    """How one query reads the records; all by record.

    outcome: an `Outcome`
    time: source time, µs
    keys: the key
    timed: the event happens at its source time, not at arrival
    strict: the event is released after its time only, not at it
    """

    outcome: Sequence[int]
    time: Sequence[int]
    keys: Sequence[Key]
    timed: Sequence[bool]
    strict: Sequence[bool]


class _Stepping:
    """A replay in progress.

    held: by query and key: the definitive times for which held events wait
    """

    def __init__(self, plan: Plan, records: Records, matcher: str) -> None:
        self.plan = plan
        self.world = PlanWorld(plan)
        self.records = records
        self.engine = Engine(plan, matcher)
        self.table = records.arrivals.table
        self.kinds = records.arrivals.system("kind").astype(np.int64)
        self.arrival = records.arrivals.system("arrival")
        self.roles = [self._role(index) for index in range(len(plan.queries))]
        shapes = (
            self.table.column("_shape").to_pylist() if "_shape" in self.table.column_names else [None] * len(self.kinds)
        )
        self.is_end = [shape == Shape.END_EDGE for shape in shapes]
        self.ends = self.table.column("_end") if "_end" in self.table.column_names else None
        self.held: dict[tuple[int, Key], list[int]] = {}
        self.row_of = row_numbers(records)

    def _role(self, index: int) -> _Role:
        query = self.plan.queries[index]
        selection = Selector(self.plan, query).select(self.table, self.kinds)
        columns = [column.to_pylist() for column in key_columns(self.table, self.kinds, self.plan, query)]
        keys = [_key_of(cells) for cells in zip(*columns, strict=True)] if columns else [()] * len(self.kinds)
        # The last place of both lists, index -1, is for heartbeats, which belong to no input.
        timed_by_input = [*(uses_source_time(item) for item in query.inputs), True]
        timed = [timed_by_input[place] for place in selection.input.tolist()]
        strict_by_input = [*(item.policy is not None and item.policy.is_strict for item in query.inputs), False]
        strict = [strict_by_input[place] for place in selection.input.tolist()]
        return _Role(selection.outcome.tolist(), selection.time.tolist(), keys, timed, strict)

    def record(self, index: int) -> Step:
        """Process one record."""
        results = self.engine.process(Arrivals(self.table.slice(index, 1)))
        discarded = {(row["query"], row["reason"]) for row in _discards(results)}
        concerned = [place for place, role in enumerate(self.roles) if role.outcome[index] in _CONCERNED]
        definitive = self._definitives(index)
        adjusted = {row["query"]: (row["time"], row["reason"]) for row in _rows(results.adjusted)}
        for place in concerned:
            title = self.plan.queries[place].title
            moment, _ = adjusted.get(title, (None, None))
            self._hold(place, index, moment, is_discarded=title in {name for name, _ in discarded})
        source_time, time = self._times(index, concerned)
        first = next((adjusted[title] for title in self._titles(concerned) if title in adjusted), (time, None))
        self._release()
        return Step(
            at=int(self.arrival[index]),
            row=int(self.records.rows[index]),
            event=self._event_name(index),
            text=self._event_text(index),
            source_time=source_time,
            end=None if self.ends is None else _moment(self.ends[index].as_py()),
            time=None if discarded else first[0],
            adjusted=first[1],
            discarded=min((reason for _, reason in discarded), default=None),
            definitive=min(definitive, default=None),
            matches=self._matches(results),
            outputs=self._outputs(results),
            key=self._key(index, concerned),
        )

    def timers(self, until: int | None) -> Iterator[Step]:
        """Let the timers up to a time expire; None = until no timer is left."""
        # Nothing to show is left when only keys are still to be forgotten: time ends before that.
        next_timer = self.engine.next_release if until is None else self.engine.next_wake
        while (due := next_timer()) is not None and (until is None or due <= until):
            results = self.engine.process(Arrivals.empty(self.plan), now=due)
            following = next_timer()
            assert following is None or following > due, "all timers up to now have run"
            yield from self._timer_steps(due, results)

    def end(self) -> Iterator[Step]:
        """The end of the input, which makes all events definitive if their policy is final."""
        results = self.engine.end()
        if self.engine.clock is not None:
            yield from self._timer_steps(self.engine.clock, results)

    def _timer_steps(self, due: int, results: Results) -> Iterator[Step]:
        matches, outputs = self._matches(results), self._outputs(results)
        for place, key in sorted({*self._release(), *self._matched(results)}):
            query = self.plan.queries[place]
            named = dict(zip(query.key_names, _cells_of(key), strict=True))
            own: Plain = {"query": query.name, "instance": query.instance, "key": plain_value(named)}
            its = [match for match in matches if {name: match[name] for name in own} == own]
            yield Step(
                at=due,
                key=own["key"],
                definitive=self.engine.definitive(query.title, _cells_of(key)),
                matches=its,
                outputs=[output for output in outputs if {name: output[name] for name in own} == own],
            )

    def _matched(self, results: Results) -> Iterator[tuple[int, Key]]:
        """The (query, key) pairs that have matches."""
        for place, query in enumerate(self.plan.queries):
            table = results.matches.get(query.title)
            for key in table.column("key").to_pylist() if table is not None else []:
                yield place, _key_of(key.values())

    def _titles(self, places: Sequence[int]) -> list[str]:
        return [self.plan.queries[place].title for place in places]

    def _hold(self, place: int, index: int, adjusted: int | None, *, is_discarded: bool) -> None:
        """Store the definitive time that an event waits for."""
        role = self.roles[place]
        if role.outcome[index] == Outcome.USED and not is_discarded and not self.is_end[index]:
            time = role.time[index] if role.timed[index] else int(self.arrival[index])
            time = time if adjusted is None else adjusted
            self.held.setdefault((place, role.keys[index]), []).append(time + role.strict[index])

    def _release(self) -> list[tuple[int, Key]]:
        """Release events that definitive time has reached; return their (query, key) pairs."""
        released = []
        for (place, key), times in list(self.held.items()):
            definitive = self.engine.definitive(self.plan.queries[place].title, _cells_of(key))
            still_held = [time for time in times if definitive is None or time > definitive]
            if len(still_held) < len(times):
                released.append((place, key))
            self.held[place, key] = still_held
            if not still_held:
                del self.held[place, key]
        return sorted(released)

    def _definitives(self, index: int) -> list[int]:
        """The definitive times of the queries concerned, and of all queries without keys."""
        found = []
        for query, role in zip(self.plan.queries, self.roles, strict=True):
            if query.keys and (role.outcome[index] not in _CONCERNED or None in role.keys[index]):
                continue
            definitive = self.engine.definitive(query.title, _cells_of(role.keys[index]))
            if definitive is not None:
                found.append(definitive)
        return found

    def _times(self, index: int, concerned: Sequence[int]) -> tuple[int | None, int | None]:
        """Source time, and the event's time for the first query that uses it."""
        declared = int(self.table.column("_source_time")[index].as_py())
        source_time = next((self.roles[place].time[index] for place in concerned), declared)
        judged = [self.roles[place] for place in concerned if self.roles[place].outcome[index] in _JUDGED]
        time = NO_TIME
        if judged:
            time = judged[0].time[index] if judged[0].timed[index] else int(self.arrival[index])
        return _moment(source_time), _moment(time)

    def _key(self, index: int, concerned: Sequence[int]) -> Plain | None:
        for place in concerned:
            cells = _cells_of(self.roles[place].keys[index])
            return dict(plain_value(dict(zip(self.plan.queries[place].key_names, cells, strict=True))))
        return None

    def _outputs(self, results: Results) -> list[Plain]:
        return plain_outputs(in_order(self.plan, results).outputs) if len(results.outputs) else []

    def _matches(self, results: Results) -> list[Plain]:
        if not results.matches:
            return []
        ordered = in_order(self.plan, results)
        plain = {name: plain_matches(table, self.row_of) for name, table in ordered.matches.items()}
        return [plain[name][row] for name, row in matches_in_order(self.plan, ordered)]

    def _event_name(self, index: int) -> str | None:
        kind = int(self.kinds[index])
        if kind >= 0:
            return self.plan.events[kind].name
        text = self.table.column("_text")[index].as_py()
        if kind == RecordKind.CONTROL:
            return control_name(text)
        return text if kind == RecordKind.UNKNOWN_TYPE else None

    def _event_text(self, index: int) -> str | None:
        kind = int(self.kinds[index])
        if kind < 0:
            return None if kind == RecordKind.TICK else self.table.column("_text")[index].as_py()
        event = self.plan.events[kind]
        cells = {
            field.name: self.table.column(column_name(field.name, field.type))[index].as_py() for field in event.fields
        }
        return event_text(event, event_of(event, cells, self.world).values)


def row_numbers(records: Records) -> RowOf:
    """A function from a record's source, partition and offset to its row."""
    offset = records.arrivals.system("offset")
    if (offset == records.rows).all():
        return lambda _source, _partition, offset: offset
    table = records.arrivals.table
    places = zip(*(table.column(name).to_pylist() for name in ("_source", "_partition", "_offset")), strict=True)
    rows = dict(zip(places, records.rows.tolist(), strict=True))
    return lambda source, partition, offset: rows[source, partition, offset]


def _key_of(cells: Iterable[Any]) -> Key:
    return tuple(tuple(cell.items()) if isinstance(cell, dict) else cell for cell in cells)


def _cells_of(key: Key) -> tuple[Any, ...]:
    """The inverse of `_key_of`."""
    return tuple(dict(part) if isinstance(part, tuple) else part for part in key)


def _discards(results: Results) -> list[dict[str, Any]]:
    if results.discarded is None or not len(results.discarded):
        return []
    return results.discarded.select(["query", "reason"]).to_pylist()


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist() if len(table) else []


def _moment(micros: int) -> int | None:
    return None if micros == NO_TIME else micros
