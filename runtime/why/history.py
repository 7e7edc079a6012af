"""The events of one key as a query's engine has admitted and released them, and what it has found.

The engine itself runs over the records of the key alone, and a matcher that is put before its own
keeps what it gets. So nothing here judges times, windows or order by rules of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import Input, Plan, QueryPlan, known
from querylang.plan.routing import has_chains
from runtime.column_types import Integers
from runtime.columns.arrivals import Arrivals, RecordKind, row_events
from runtime.columns.keys import has_keys_apart, have_key, inputs_of_layer, is_of_key, keys_of_layer, layers
from runtime.engine import Engine, QueryParts, are_numbered
from runtime.input_policies import shares_clock
from runtime.instants import NEVER
from runtime.interpreter import PlanWorld, event_numbers
from runtime.matching.interface import Found, Joined, Matcher, Ordered, Waiting, joined_events
from runtime.matching.reference import ReleasedEvent
from runtime.results.matched import Coordinates
from runtime.results.outputs import AS_ROLE
from runtime.results.schemas import Results, match_schema
from runtime.why.matches import PLACE_COLUMNS, FoundMatches, FoundPart, GivenMatches, RowsByPlace

Also = tuple[tuple[int, int], ...]
"""Further inputs that an event serves, each with what supersedes it there."""

KeyValues = tuple[pa.Scalar, ...]
"""The cells of a key, one per part; empty = the query has no key."""

_AT_ONCE = 32
"""So many events become Python values at a time."""

AT_ONCE = 1 << 17
"""So many records are processed at a time."""


@dataclass(frozen=True, slots=True)
class KeyEvent(ReleasedEvent):
    """A released event of the key.

    source_time: µs; NO_TIME = there is none
    place: where it was read
    """

    source_time: int = 0
    place: Coordinates = ("", 0, 0)


class KeyEvents(Sequence[KeyEvent]):
    """All released events of a key in total order; they become Python values when they are read."""

    def __init__(self, plan: Plan, query: QueryPlan, kept: KeptEvents) -> None:
        self._plan, self._query, self._kept = plan, query, kept
        self._world = PlanWorld(plan, query)
        self._made: dict[int, list[KeyEvent]] = {}
        self._served: dict[int, NDArray[np.bool_]] = {}

    def __len__(self) -> int:
        return len(self._kept.time)

    @overload
    def __getitem__(self, position: int) -> KeyEvent: ...
    @overload
    def __getitem__(self, position: slice) -> list[KeyEvent]: ...
    def __getitem__(self, position: int | slice) -> KeyEvent | list[KeyEvent]:
        if isinstance(position, slice):
            return [self[place] for place in range(*position.indices(len(self)))]
        block = self._made.get(position // _AT_ONCE)
        if block is None:
            block = self._made[position // _AT_ONCE] = self._block(position // _AT_ONCE * _AT_ONCE)
        return block[position % _AT_ONCE]

    def forget(self, position: int) -> None:
        """Drops what was made of events before a position."""
        for block in [block for block in self._made if (block + 1) * _AT_ONCE <= position]:
            del self._made[block]

    @property
    def table(self) -> pa.Table:
        """By position, the columns."""
        return self._kept.table

    @property
    def superseded(self) -> Integers:
        """By position, that of the next event to supersede it in its first input; NEVER = none."""
        return self._kept.superseded if len(self._kept.superseded) else np.broadcast_to(NEVER, len(self))

    @property
    def also(self) -> Mapping[int, Also]:
        """By position, of those that serve several inputs: the others."""
        return self._kept.also

    @property
    def numbers(self) -> Integers:
        """By position, the running number among the events of the key."""
        return self._kept.number if len(self._kept.number) else np.broadcast_to(np.int64(0), len(self))

    @property
    def times(self) -> Integers:
        """By position, µs."""
        return self._kept.time

    @property
    def first_inputs(self) -> NDArray[np.integer[Any]]:
        """By position, the input, of those that serve several the first one."""
        return self._kept.input

    @property
    def places(self) -> RowsByPlace:
        """By coordinates the position."""
        return RowsByPlace(self._kept.table)

    def inputs_at(self, position: int) -> tuple[int, ...]:
        """The inputs that an event serves; the first one is first."""
        return int(self._kept.input[position]), *(item for item, _ in self._kept.also.get(position, ()))

    def serve(self, item: int) -> NDArray[np.bool_]:
        """By position, whether the event serves an input."""
        if item not in self._served:
            found = self._kept.input == item
            found[[place for place, also in self._kept.also.items() if any(item == other for other, _ in also)]] = True
            self._served[item] = found
        return self._served[item]

    def windows_at(
        self, latest: int, inputs: Sequence[Input], scope: range, unsuperseded: int = -1
    ) -> dict[int, tuple[int, ...]] | None:
        """As `windows_at` of the reference matcher, in columns; None = events serve several inputs.

        scope: the positions up to the latest one
        unsuperseded: an input of which nothing counts as superseded
        """
        if self._kept.also:
            return None
        own, part = self._kept.input[scope.start : scope.stop], slice(scope.start, scope.stop)
        age, is_there = self.times[latest] - self.times[part], np.zeros(len(own), np.bool_)
        for number, item in enumerate(inputs):
            is_own = own == number
            if item.within is not None:
                is_own &= age < known(item.within)
            if number != unsuperseded:
                is_own &= self.superseded[part] > latest
            if item.retain is not None:
                newer = np.cumsum((own == number)[::-1])[::-1]
                is_own &= newer <= known(item.retain)
            is_there |= is_own
        places = np.flatnonzero(is_there)[::-1]
        numbers = [(item,) for item in own[places].tolist()]
        return dict(zip((places + scope.start).tolist(), numbers, strict=True))

    def _block(self, first: int) -> list[KeyEvent]:
        kept, rows = self._kept, slice(first, first + _AT_ONCE)
        table = kept.table.slice(first, _AT_ONCE)
        inputs, times = kept.input[rows], kept.time[rows].tolist()
        superseded, numbers = self.superseded[rows].tolist(), self.numbers[rows].tolist()
        values: list[KeyEvent | None] = [None] * len(times)
        own = [table.column(name).to_pylist() for name in ("_arrival", "_source_time", *PLACE_COLUMNS)]
        for number, item in enumerate(self._query.inputs):
            places = np.flatnonzero(inputs == number)
            if not len(places):
                continue
            chosen = table.take(pa.array(places))
            events = row_events(
                self._plan.event(item.event), chosen, self._world, [times[place] for place in places.tolist()]
            )
            for place, event in zip(places.tolist(), events, strict=True):
                arrival, source_time, *coordinates = (column[place] for column in own)
                values[place] = KeyEvent(
                    number,
                    times[place],
                    event,
                    superseded[place],
                    numbers[place],
                    arrival,
                    kept.also.get(first + place, ()),
                    source_time=source_time,
                    place=(coordinates[0], coordinates[1], coordinates[2]),
                )
        return [value for value in values if value is not None]


@dataclass(frozen=True, slots=True)
class KeptEvents:
    """By position: the columns of the events of the key.

    superseded, number: empty, as in `Ordered`, where the query does not ask for it
    also: of events that serve several inputs, the others
    """

    table: pa.Table
    input: NDArray[np.integer[Any]]
    time: Integers
    superseded: Integers
    number: Integers
    also: Mapping[int, Also] = field(default_factory=dict)


@dataclass(slots=True)
class _Call:
    """What the matcher got of the key in one call, in the order of positions.

    superseded, number: empty, as in `Ordered`, where the query does not ask for it
    kept: how many of them were there before
    also: of those that serve several inputs, the others
    found: what the matcher found
    """

    table: pa.Table
    input: NDArray[np.integer[Any]]
    time: Integers
    superseded: Integers
    number: Integers
    kept: int
    found: FoundPart
    also: dict[int, Also] = field(default_factory=dict)
    errors: list[tuple[int, str]] = field(default_factory=list)


class Recorder:
    """Stands before the matcher of a query, and keeps what it gets of one key."""

    only_finds = False
    takes_may_end = False

    def __init__(self, parts: QueryParts, key: KeyValues) -> None:
        self._parts, self._key, self._matcher = parts, key, parts.matcher
        self.calls: list[_Call] = []
        self.run = 0

    def match(self, events: Ordered) -> Found:
        """As the matcher has it."""
        found = self._matcher.match(events)
        joined = joined_events(events)
        for number in self._numbers(events):
            self.calls.append(self._call(joined, events, found, number))
        return found

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """As the matcher has it."""
        return self._matcher.outlives(events, waiting)

    def _numbers(self, events: Ordered) -> list[int]:
        """The numbers of the key in the call; it has several if it was forgotten in between."""
        has_events = np.flatnonzero(events.start[1:] > events.start[:-1])
        if not self._key or not len(has_events):
            return [int(number) for number in has_events]
        first = events.table.take(pa.array(events.row[events.start[has_events]].astype(np.int64)))
        return [int(number) for number in has_events[is_of_key(self._parts.keys_of(first), self._key)]]

    def _call(self, joined: Joined, given: Ordered, found: Found, number: int) -> _Call:
        """given: with a position for each input of an event; here each event has one place."""
        events = joined.ordered(given)
        begin, fresh, end = (int(at) for at in (events.start[number], events.fresh[number], events.start[number + 1]))
        places = slice(begin, end)
        superseded = events.superseded[places] if len(given.superseded) else events.superseded[:0]

        def moved(by: int) -> int:
            return by if by >= NEVER else by - begin

        call = _Call(
            table=_rows_of(events.table, events.row[places]),
            input=events.input[places],
            time=events.time[places],
            superseded=np.where(superseded < NEVER, superseded - begin, NEVER),
            number=events.number[places],
            kept=fresh - begin,
            found=self._found(joined, found, begin, end),
            also={
                event - begin: tuple((item, moved(by)) for item, by in also)
                for event, also in joined.also(given).items()
                if begin <= event < end
            },
        )
        of = joined.of
        call.errors = [(int(of[at]) - begin, text) for at, text in found.errors if begin <= of[at] < end]
        return call

    def _found(self, joined: Joined, found: Found, begin: int, end: int) -> FoundPart:
        """What was found with a latest event of some positions, which are counted from `begin`."""
        latest = joined.of[found.latest]
        chosen = np.flatnonzero((latest >= begin) & (latest < end))
        members = found.members[chosen]
        members = np.where(members >= 0, joined.of[members] - begin, -1)
        return FoundPart(self.run, latest[chosen] - begin, found.latest[chosen], members, found.widths)


def _rows_of(table: pa.Table, rows: NDArray[np.int32]) -> pa.Table:
    """Some rows; those that follow each other are not copied."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
        return table.slice(int(rows[0]), len(rows))
    return table.take(pa.array(rows))


@dataclass(frozen=True)
class KeyHistory:
    """What an engine has made of the records of one key.

    events: those that were released, in total order
    found: what the matcher found
    errors: by position, what ended the search
    records: those of the run
    results: matches, discards and all else of the run
    clock: where the engine's clock is, µs; None = there were no records
    definitive: the watermark of the query and key, µs; None = there is none
    lives: of a key that is forgotten, the position with which each of its lives begins
    bounds: by input, how far its own records and heartbeats have brought it, µs
    """

    plan: Plan
    query: QueryPlan
    key: KeyValues
    events: KeyEvents
    found: FoundMatches
    errors: Mapping[int, str]
    records: pa.Table
    results: Sequence[Results]
    clock: int | None
    definitive: int | None
    lives: Sequence[int]
    bounds: Mapping[int, int]

    def life(self, position: int) -> range:
        """The positions of the life of the key to which an event belongs."""
        begins = [*self.lives, len(self.events)]
        life = bisect_right(begins, position, hi=len(begins) - 1)
        return range(begins[life - 1], begins[life])

    @cached_property
    def places(self) -> RowsByPlace:
        """By coordinates the position of an event."""
        return self.events.places

    @cached_property
    def given(self) -> GivenMatches:
        """The rows of matches that were given out."""
        empty = match_schema(self.plan, self.query).empty_table()
        tables = [results.matches.get(self.query.title, empty) for results in self.results]
        return GivenMatches(self.query, tables, self.found, self.places)

    @cached_property
    def refused(self) -> Mapping[Coordinates, Mapping[int, dict[str, Any]]]:
        """The rows of records of the key that were discarded, by their coordinates and input.

        What another role of a type has refused is of this key only if the record has it there.
        """
        found: dict[Coordinates, dict[int, dict[str, Any]]] = {}
        shared, inputs = self.query.shared_types, enumerate(self.query.inputs)
        by_name = {
            f"{item.event}{AS_ROLE}{item.role}" if item.event in shared else item.event: index for index, item in inputs
        }
        tables = [results.discarded for results in self.results if results.discarded is not None]
        for row in (row for table in tables for row in table.to_pylist(maps_as_pydicts="lossy")):
            place, item = (row["source"], row["partition"], row["offset"]), by_name.get(row["event"], -1)
            is_own = place not in self._elsewhere.get(item, ())
            if row["query"] in (None, self.query.public_title) and is_own:
                found.setdefault(place, {})[item] = row
        return found

    @cached_property
    def _elsewhere(self) -> Mapping[int, frozenset[Coordinates]]:
        """By input whose key may be another one than that of its type's first input: the records
        of the history that are not of the key as its events."""
        query, records = self.query, self.records
        if not has_keys_apart(query):
            return {}
        kinds = records.column("_kind").to_numpy().astype(np.int64)
        found: dict[int, frozenset[Coordinates]] = {}
        for layer in layers(query):
            is_other = ~is_of_key(keys_of_layer(records, kinds, self.plan, query, layer), self.key)
            others = frozenset(_places(records.filter(pa.array(is_other))))
            found |= dict.fromkeys(inputs_of_layer(query, layer), others)
        return found


@dataclass(frozen=True, slots=True)
class Ending:
    """How the time of a replay ends; as of `runtime.replay.measured_replay`.

    last: arrival of the last record of all, µs; None = there are none
    """

    until: int | None
    flush: bool
    last: int | None


def rows_of_key(
    plan: Plan, query: QueryPlan, table: pa.Table, key: KeyValues, is_own: NDArray[np.bool_] | None = None
) -> pa.Table:
    """The records that matter for a key: its own, heartbeats for every key, control events.

    All of them where keys share a clock, or queries feed each other.

    is_own: by record, whether it has the key as an event of any input; None = not known yet
    """
    if has_chains(plan.queries) or shares_clock(query) or not key:
        return table
    kinds = table.column("_kind").to_numpy().astype(np.int64)
    numbers = event_numbers(plan)
    everywhere = [
        item.heartbeat.event for item in query.inputs if item.heartbeat is not None and not item.heartbeat.keys
    ]
    wanted = np.isin(kinds, [RecordKind.CONTROL, *(numbers[event] for event in everywhere if event in numbers)])
    wanted |= have_key(table, kinds, plan, query, key) if is_own is None else is_own
    return table if wanted.all() else table.filter(pa.array(wanted))


def engine_of(plan: Plan, query: QueryPlan) -> Engine:
    """An engine for a query, and for all others where they feed each other.

    No block runs where nothing is routed: it changes no match, and would run for each of the key.
    """
    if has_chains(plan.queries):
        return Engine(plan)
    return Engine(replace(plan, queries=(replace(query, block=()),), stopped=()))


def at_the_end(engine: Engine, ending: Ending) -> list[Results]:
    """What comes when the records have ended."""
    if ending.until is not None:
        return [engine.process(Arrivals.empty(engine.plan), now=ending.until)]
    return [engine.flush()] if ending.flush else []


def results_over(plan: Plan, query: QueryPlan, table: pa.Table, ending: Ending) -> list[Results]:
    """What an engine gives for records; `table`: in order of arrival."""
    engine = engine_of(plan, query)
    return [engine.process(Arrivals(table), now=ending.last), *at_the_end(engine, ending)]


def key_history(plan: Plan, query: QueryPlan, table: pa.Table, key: KeyValues, ending: Ending) -> KeyHistory:
    """Runs an engine over the records of a key.

    table: records in order of arrival, at least those of `rows_of_key`
    """
    engine = engine_of(plan, query)
    recorders: list[Recorder] = []

    def watch(parts: QueryParts) -> Matcher:
        recorders.append(Recorder(parts, key))
        return recorders[-1]

    engine.watch(query.title, watch)
    results = list[Results]()
    pieces = _pieces(plan, query, table)
    for piece in pieces:
        is_last = len(results) == len(pieces) - 1
        results.append(engine.process(Arrivals(piece), now=ending.last if is_last else None))
        recorders[0].run = len(results)
    results += at_the_end(engine, ending)
    joined = _joined(recorders[0].calls, query, _schema(plan, table))
    definitive = engine.definitive(query.title, tuple(part.as_py() for part in key))
    events = KeyEvents(plan, query, joined.kept)
    bounds = _bounds(engine.stored()[query.title].bounds, key)
    return KeyHistory(
        plan,
        query,
        key,
        events,
        joined.found,
        joined.errors,
        table,
        results,
        engine.clock,
        definitive,
        joined.lives,
        bounds,
    )


def _pieces(plan: Plan, query: QueryPlan, table: pa.Table) -> list[pa.Table]:
    """The records of a run in pieces, which need less memory than all at once.

    In one where lives of a key are told apart by calls, where an event may be superseded once it is
    not stored any more, where events are numbered, and where several queries are of one step.
    """
    is_unique = any(item.unique for item in query.inputs)
    if is_unique or are_numbered(query) or query.forget_keys is not None or has_chains(plan.queries):
        return [table]
    return [table.slice(first, AT_ONCE) for first in range(0, max(1, len(table)), AT_ONCE)]


def _bounds(table: pa.Table, key: KeyValues) -> dict[int, int]:
    if key and len(table):
        table = table.filter(pa.array(is_of_key([table.column(f"key{place}") for place in range(len(key))], key)))
    pairs = zip(table.column("input").to_pylist(), table.column("bound").to_pylist(), strict=True)
    return {item: bound for item, bound in pairs if item >= 0}


def _schema(plan: Plan, table: pa.Table) -> pa.Schema:
    return Arrivals.empty(plan).table.schema if not len(table) else table.schema


@dataclass(frozen=True, slots=True)
class _Joined:
    """The events of all calls, each once, and what was found by their positions.

    lives: as of `KeyHistory`
    """

    kept: KeptEvents
    lives: Sequence[int]
    found: FoundMatches
    errors: dict[int, str]


def _joined(calls: Sequence[_Call], query: QueryPlan, schema: pa.Schema) -> _Joined:
    last: tuple[pa.Table, Integers] | None = None
    tables, superseded, lives = list[pa.Table](), list[Integers](), [0]
    found = list[FoundPart]()
    errors: dict[int, str] = {}
    count = 0
    later: dict[tuple[int, int], int] = {}
    also: dict[int, Also] = {}
    for number, call in enumerate(calls):
        if not call.kept and number and query.forget_keys is not None:
            lives.append(count)
        before = np.empty(0, np.int64) if last is None else _positions(call.table.slice(0, call.kept), *last)
        new = len(call.time) - call.kept
        position = np.concatenate([before, np.arange(count, count + new)])
        is_over = call.superseded < NEVER
        moved = np.full(len(is_over), NEVER)  # none, where nothing supersedes
        moved[is_over] = position[call.superseded[is_over]]
        for at, others in call.also.items():
            own = tuple((item, by if by >= NEVER else int(position[by])) for item, by in others)
            if at >= call.kept:
                also[int(position[at])] = own
            note(later, int(position[at]), own)
        old = slice(call.kept if len(moved) else 0)
        for at, item, by in zip(before[old].tolist(), call.input[old].tolist(), moved[old].tolist(), strict=True):
            note(later, at, ((item, by),))
        superseded.append(moved[call.kept :])
        tables.append(call.table.slice(call.kept))
        last = call.table, position
        found.append(call.found.moved(position))
        errors |= {int(position[at]): text for at, text in call.errors}
        count += new
    nothing = np.empty(0, np.int64)
    inputs = np.concatenate([np.empty(0, np.int16), *(call.input[call.kept :] for call in calls)])
    kept = KeptEvents(
        pa.concat_tables(tables, promote_options="default") if tables else schema.empty_table(),
        inputs,
        np.concatenate([nothing, *(call.time[call.kept :] for call in calls)]),
        last_superseded(np.concatenate([nothing, *superseded]), inputs, later),
        np.concatenate([nothing, *(call.number[call.kept :] for call in calls)]),
        {at: tuple((item, later.get((at, item), by)) for item, by in own) for at, own in also.items()},
    )
    return _Joined(kept, lives, FoundMatches(found, query), errors)


def _positions(kept: pa.Table, before: pa.Table, position: Integers) -> Integers:
    """The positions of events that are stored since the call before.

    kept: these, in total order; all of them are in `before`, whose rows have these positions
    """
    offsets, own = (table.column(PLACE_COLUMNS[-1]).to_numpy() for table in (before, kept))
    rows = np.flatnonzero(np.isin(offsets, own))
    if len(rows) != len(own):  # other sources have equal offsets
        known = {place: row for row, place in enumerate(_places(before))}
        rows = np.array([known[place] for place in _places(kept)], np.int64)
    return position[rows]


def note(later: dict[tuple[int, int], int], at: int, own: Also) -> None:
    """Notes what supersedes an event in some of its inputs; `later`: as of `last_superseded`."""
    for item, by in own:
        later[at, item] = min(by, later.get((at, item), NEVER))


def last_superseded(
    known: Integers, inputs: NDArray[np.integer[Any]], later: Mapping[tuple[int, int], int]
) -> Integers:
    """By position, what supersedes an event in its first input; empty = nothing does.

    later: the same by position and input, where it was not known when the event was new
    """
    for (at, item), by in later.items() if len(known) else ():
        if inputs[at] == item:
            known[at] = min(int(known[at]), by)
    return known


def _places(table: pa.Table) -> list[Coordinates]:
    columns = (table.column(name).to_pylist() for name in PLACE_COLUMNS)
    return list(zip(*columns, strict=True))
