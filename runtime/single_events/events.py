"""What single events bring, asked in Python, because a call of the engine costs more.

It knows the events in the windows, as the engine does, and searches with the reference matcher. So
open queries answer most events without the engine, which processes them later, many at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.dataclass import dataclass, field, replace
from querylang.plan.expression import Type
from querylang.plan.model import Plan, QueryPlan, known
from querylang.plan.routing import has_chains
from runtime.admission import KeyTimes, Lengths, Release
from runtime.columns.arrivals import row_events, to_cell
from runtime.engine import Engine, StoredEvents
from runtime.input_policies import NO_WAIT
from runtime.instants import EARLIEST, LATEST, NEVER, NO_TIME
from runtime.interpreter import Context, EvaluationError, Event, PlanWorld, evaluate, event_numbers, run_action
from runtime.results import schemas
from runtime.results.matched import match_id, seeds_of
from runtime.results.outputs import block_outputs
from runtime.single_events.windows import FoundMatch, Key, Known, SingleEvent, UnforeseenError, Windows, part_of_key
from runtime.timestamps import microseconds

# What single events bring, with the engine's tables for those who read them.

# Matches of single events as rows of the engine's tables of matches.

Row = dict[str, Any]
"""Nested, with the columns of `match_schema`; times in µs."""

Step = int
"""Which record of the call has found a match; -1 = a timer. See `runtime.results.schemas.ORDER`."""


class MatchRows:
    """Makes the table of matches of one query from single ones."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._query, self._seeds, self._told = query, seeds_of(query), schemas.told_cells(query)
        self._type = pa.struct(list(schemas.match_schema(plan, query)))
        self._terms = {name: schemas.term_event(plan, query, term).name for name, term in _named_terms(query).items()}
        waits = (query.leading, query.trailing)
        self._leading, self._trailing = (None if query.every or wait is None else wait for wait in waits)

    def table(self, found: Sequence[tuple[Step, FoundMatch]]) -> pa.Table:
        """The matches (`match_schema`)."""
        rows = pa.array([self.row(step, finding) for step, finding in found], self._type)
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows)])

    def row(self, step: Step, found: FoundMatch) -> Row:
        """One match."""
        query = self._query
        events = dict(zip(self._terms, map(_member, self._terms.values(), found.members), strict=True))
        places = [found.latest] if query.every is not None else found.members
        row: Row = {
            "match_id": match_id(self._seeds, found.key, [None if event is None else event.place for event in places]),
            "query": query.name,
            "instance": query.instance,
            "key": dict(zip(query.key_names, found.key, strict=True)),
            "time": _moment(found.time),
            "definitive": _moment(found.definitive),
            "emitted": _moment(found.emitted),
            "waited": found.waited.name.lower(),
            **self._told,
            "members": events if query.every is None else {},
            "_step": step,
            "_rank": found.rank,
        }
        if query.every is not None:
            row["selected"] = {name: to_cell(value) for name, value in found.selected.items()} | events
        row["points"] = self._points(found)
        return row

    def _points(self, found: FoundMatch) -> Row:
        """Named waits: the moment when a leading one starts, and when a trailing one ends."""
        points: Row = {}
        if self._leading is not None and self._leading.name is not None:
            first = min(event.time for event in found.members if event is not None)
            points[self._leading.name] = _moment(first - known(self._leading.duration))
        if self._trailing is not None and self._trailing.name is not None:
            points[self._trailing.name] = _moment(found.time)
        return points


def _named_terms(query: QueryPlan) -> Mapping[str, int]:
    """By name of a member of a finding: its term."""
    if query.every is not None:
        return query.every.event_terms
    return {term.name: index for index, term in enumerate(query.terms)}


def _member(name: str, event: Known | None) -> Row | None:
    """A `runtime.results.schemas.member_struct`."""
    if event is None:
        return None
    assert event.place is not None, "it has been asked for"
    source, partition, offset = event.place
    return {
        "event": name,
        "time": _moment(event.time),
        "source_time": _moment(event.source_time),
        "arrival": _moment(event.arrival),
        "source": source,
        "partition": partition,
        "offset": offset,
        "fields": {field: to_cell(value) for field, value in event.value.values.items()},
    }


def _moment(micros: int) -> int | None:
    """As a timestamp, in the years 1 to 9999."""
    return None if micros == NO_TIME else max(EARLIEST, min(micros, LATEST))


FoundInSteps = Mapping[str, Sequence[tuple[Step, FoundMatch]]]
"""Matches by the title of their query."""


class CallResults:
    """Makes the results of calls with a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows = {query.title: MatchRows(plan, query) for query in plan.queries}
        self.nothing = EarlyResults(self, {})

    def of(self, brought: Sequence[tuple[Step, QueryPlan, FoundMatch]]) -> EarlyResults:
        """The results of a call."""
        if not brought:
            return self.nothing
        found: dict[str, list[tuple[Step, FoundMatch]]] = {}
        for step, query, finding in brought:
            found.setdefault(query.title, []).append((step, finding))
        return EarlyResults(self, found)


class EarlyResults:
    """The results of a call. Its tables are made when somebody reads them, which costs more."""

    def __init__(self, call: CallResults, found: FoundInSteps) -> None:
        self._call, self._found = call, found

    def __len__(self) -> int:
        """How many matches there are."""
        return sum(map(len, self._found.values()))

    def rows(self) -> list[Row] | None:
        """The matches in order; None = the tables have to say in which order they are."""
        if any(len(items) > 1 for items in self._found.values()):
            return None
        titles = [query.title for query in self._call.plan.queries if query.title in self._found]
        rows = [self._call.rows[title].row(*self._found[title][0]) for title in titles]
        return sorted(rows, key=itemgetter(*schemas.ORDER))

    @cached_property
    def tables(self) -> schemas.Results | None:
        """The results in order, without a ledger; None = only the engine knows the outputs."""
        plan = self._call.plan
        discarded = schemas.no_discards(plan)
        if not self._found:
            return schemas.Results(discarded=discarded)
        matches = {title: self._call.rows[title].table(items) for title, items in self._found.items()}
        outputs = [schemas.NO_OUTPUTS]
        for query in plan.queries:
            if query.block and query.title in matches:
                # The engine counts how often blocks of a key are cut off by a limit.
                cut_off = np.zeros(len(matches[query.title]), np.int64)
                outputs.append(block_outputs(plan, query, matches[query.title], np.arange(len(cut_off)), cut_off)[0])
                if cut_off.any():
                    return None
        return schemas.in_order(plan, schemas.Results(matches, schemas.rows_of(schemas.NO_OUTPUTS, outputs), discarded))


# One query for single events: when each is released, and what it finds then.

_MOST_KEYS = 1_000
"""So many keys have timelines at least before those that do not matter any more are forgotten."""


@dataclass(slots=True)
class Brought:
    """What an event or a timer brings; `is_known` False: the engine knows more."""

    found: list[FoundMatch] = field(default_factory=list)
    is_known: bool = True


class SingleQuery:
    """The windows, pending events and pending matches of a query."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self.query, self.windows = query, Windows(plan, query)
        self._wait = 0 if query.trailing is None else known(query.trailing.duration)
        self._inputs = {item.event: number for number, item in enumerate(query.inputs)}
        self._lengths = Lengths.of(query)
        self._times: dict[Key, KeyTimes[Known | FoundMatch]] = {}
        self._waits: dict[Key, dict[int, FoundMatch]] = {}
        self._timers: list[tuple[int, int, Key]] = []
        # By key the earliest of its timers, µs; later ones are void.
        self._due: dict[Key, int] = {}
        self._number, self._most = 0, _MOST_KEYS

    def take(self, event: SingleEvent, source_time: int) -> Brought:
        """Adds an event that arrives now; `source_time`: µs, NO_TIME = none.

        Raises UnforeseenError; then this object is of no use any more.
        """
        item = self._inputs.get(event.type.name)
        if item is None:
            return Brought()
        has_wait = self._lengths.delay[item] != NO_WAIT
        time = source_time if has_wait else event.arrival
        value = Event(event.type, dict(event.values), time)
        new = Known(item, time, value, arrival=event.arrival, source_time=source_time, place=event.place)
        if not self.windows.is_selected(new):
            return Brought()
        key = self.windows.key_of(new)
        times = self._times_of(key)
        if has_wait and (time == NO_TIME or times.refuses(item, time, event.arrival)):
            return Brought(is_known=False)  # the engine has words for the reason
        times.admit(item, time, event.arrival, self._next_number(), new)
        return self._released(key, times, times.release(event.arrival, self._number))

    def expire(self, now: int) -> Brought:
        """Runs the timers that expire up to now, µs. Raises UnforeseenError as `take`."""
        brought = Brought()
        while self._timers and self._timers[0][0] <= now:
            due, _, key = heappop(self._timers)
            if self._due.get(key) != due:
                continue
            del self._due[key]
            times = self._times.get(key)
            if times is not None:
                more = self._released(key, times, times.expire(now))
                brought.found += more.found
                brought.is_known &= more.is_known
        if len(self._times) > self._most:
            self._times = {key: times for key, times in self._times.items() if times.matters(now)}
            self._most = max(_MOST_KEYS, 2 * len(self._times))
        return brought

    def load_pending(self, event: Known, until: int) -> None:
        """Adds an event that was not released yet; `until`: as in `KeyTimes.load`."""
        key = self.windows.key_of(event)
        self._times_of(key).load(event.input, event.time, self._next_number(), until, event)

    def load_bound(self, key: Key, item: int, bound: int) -> None:
        """Adds the bound of a timeline, µs."""
        self._times_of(key).bound[item] = bound

    def load_wait(self, found: FoundMatch, due: int) -> None:
        """Adds a match that waits until `due`, µs."""
        key = self.windows.key_of(found.latest)
        self._begin(key, self._times_of(key), replace(found, time=due))

    def loaded(self) -> None:
        """All that was stored has been added."""
        for key, times in self._times.items():
            self._set_timer(key, times)

    def _times_of(self, key: Key) -> KeyTimes[Known | FoundMatch]:
        times = self._times.get(key)
        if times is None:
            times = self._times[key] = KeyTimes.of(self._lengths)
        return times

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _released(
        self, key: Key, times: KeyTimes[Known | FoundMatch], releases: Iterable[Release[Known | FoundMatch]]
    ) -> Brought:
        brought = Brought()
        for release in releases:
            entry = release.entry
            if isinstance(entry, FoundMatch):
                self._end(key, entry)
                found: list[FoundMatch] | None = [entry]
            else:
                for wait in list(self._waits.get(key, {}).values()):
                    if not self.windows.outlives(wait, entry):
                        times.forget(wait.rank)
                        self._end(key, wait)
                found = self.windows.take(key, entry, release.definitive)
                if self.query.trailing is not None:
                    found = self._begun(key, times, found)
            told = found or []
            brought.is_known &= found is not None and all(item.has_places for item in told)
            brought.found += [_at(release, item) for item in told]
        self._set_timer(key, times)
        return brought

    def _begun(self, key: Key, times: KeyTimes[Known | FoundMatch], found: list[FoundMatch] | None) -> list[FoundMatch]:
        """These matches wait; nothing is found before they have waited."""
        if found is None:
            raise UnforeseenError
        for item in found:
            self._begin(key, times, replace(item, time=item.time + self._wait))
        return []

    def _begin(self, key: Key, times: KeyTimes[Known | FoundMatch], found: FoundMatch) -> None:
        numbered = replace(found, rank=self._next_number())
        self._waits.setdefault(key, {})[numbered.rank] = numbered
        times.wait(numbered.time, numbered.rank, numbered)

    def _end(self, key: Key, found: FoundMatch) -> None:
        del self._waits[key][found.rank]
        if not self._waits[key]:
            del self._waits[key]

    def _set_timer(self, key: Key, times: KeyTimes[Known | FoundMatch]) -> None:
        if times.pending:
            due = times.next_change
            if due < self._due.get(key, NEVER + 1):
                self._due[key] = due
                heappush(self._timers, (due, self._next_number(), key))
        elif not self._lengths.longest:
            del self._times[key]


def _at(release: Release[Known | FoundMatch], found: FoundMatch) -> FoundMatch:
    return replace(found, definitive=release.definitive, emitted=release.moment, waited=release.waited)


_KEYS = (Type.BOOLEAN, Type.INTEGER, Type.FLOAT, Type.STRING)

Found = Sequence[tuple[QueryPlan, FoundMatch]]
"""Matches with their queries."""


def can_foresee(plan: Plan) -> bool:
    """Whether it is known here when events count: by the clock and their own times."""
    if has_chains(plan.queries):
        return False
    sources = [event for event, _ in plan.time_sources()]
    return not plan.stopped and len(sources) == len(set(sources)) and all(map(_is_simple, plan.queries))


def _is_simple(query: QueryPlan) -> bool:
    if (
        query.has_runs
        or query.remembers
        or query.tables
        or query.forget_keys is not None
        or query.optional_keys
        or query.shared_types
        or any(key.type not in _KEYS for key in query.keys)
    ):
        return False
    if query.gaps or query.edition or query.starts is not None or query.ends is not None:
        return False  # control events have changed it
    if query.trailing is not None and query.trailing.most > 1:
        return False
    lengths = [item.wait for item in query.inputs] + [None if query.trailing is None else query.trailing.duration]
    if any(length is not None and known(length) <= 0 for length in lengths):
        return False
    return not any(item.policy or item.heartbeat for item in query.inputs)


class SingleEvents:
    """What is kept for the queries of a plan that `can_foresee`.

    clock: arrival of the latest event, µs
    """

    def __init__(self, engine: Engine) -> None:
        """engine: has processed all records so far

        Raises UnforeseenError.
        """
        self.clock = NO_TIME if engine.clock is None else engine.clock
        stored = engine.stored()
        if any(part.is_unusual for part in stored.values()):
            raise UnforeseenError
        plan = engine.plan
        self._sources, self._world = dict(plan.time_sources()), PlanWorld(plan)
        self._queries = [_loaded(plan, query, stored[query.title]) for query in plan.queries]

    def advance(self, now: int) -> Found | None:
        """Time passes, µs: what timers bring that are due by then; None as in `take`.

        Raises UnforeseenError as `take`.
        """
        self.clock = max(self.clock, now)
        return _together([(part.query, part.expire(now)) for part in self._queries])

    def take(self, event: SingleEvent) -> Found | None:
        """Adds an event that arrives now; gives what it finds. None = the engine knows it.

        Raises UnforeseenError; then this object is of no use any more.
        """
        assert event.arrival >= self.clock, "events come in order of arrival"
        self.clock = event.arrival
        time = self._source_time(event)
        return _together([(part.query, part.take(event, time)) for part in self._queries])

    def _source_time(self, event: SingleEvent) -> int:
        """From the event's own fields if some query says so, else as declared; NO_TIME = none."""
        source = self._sources.get(event.type.name)
        if source is None:
            return event.declared
        context = Context([Event(event.type, dict(event.values))], world=self._world, invoke=run_action)
        try:
            value = evaluate(source, context)
        except EvaluationError:
            return NO_TIME
        return NO_TIME if value is None else int(microseconds(pa.array([value]))[0])


def _together(parts: Sequence[tuple[QueryPlan, Brought]]) -> Found | None:
    if not all(brought.is_known for _, brought in parts):
        return None
    return [(query, found) for query, brought in parts for found in brought.found]


def _loaded(plan: Plan, query: QueryPlan, stored: StoredEvents) -> SingleQuery:
    single = SingleQuery(plan, query)
    pending, until = (stored.table.column(name).to_pylist() for name in ("_pending", "_ripe"))
    for event, is_pending, end in zip(_events(plan, query, stored.table), pending, until, strict=True):
        if is_pending:
            single.load_pending(event, end)
        else:
            single.windows.add(single.windows.key_of(event), event)
    for row in stored.bounds.to_pylist():
        if row["input"] >= 0:
            key = tuple(part_of_key(row[f"key{place}"]) for place, _ in enumerate(query.keys))
            single.load_bound(key, row["input"], row["bound"])
    _load_waits(plan, single, stored.waits)
    single.loaded()
    return single


def _load_waits(plan: Plan, single: SingleQuery, members: pa.Table) -> None:
    """Adds the matches that wait."""
    by_wait: dict[int, list[tuple[Known, int, int, bool]]] = {}
    own = [members.column(name).to_pylist() for name in ("_wait", "_term", "_due", "_is_latest")]
    for event, wait, term, due, is_latest in zip(_events(plan, single.query, members), *own, strict=True):
        by_wait.setdefault(wait, []).append((event, term, due, is_latest))
    for wait in sorted(by_wait):
        parts = by_wait[wait]
        of_terms = {term: event for event, term, _, _ in parts}
        latest = next(event for event, _, _, is_latest in parts if is_latest)
        terms = range(len(single.query.terms))
        single.load_wait(single.windows.finding(latest, [of_terms.get(term) for term in terms]), parts[0][2])


def _events(plan: Plan, query: QueryPlan, table: pa.Table) -> Iterator[Known]:
    """The rows of a table of stored events."""
    world, numbers = PlanWorld(plan, query), event_numbers(plan)
    times = table.column("_time").to_pylist()
    values = {numbers[item.event]: row_events(plan.event(item.event), table, world, times) for item in query.inputs}
    inputs = {numbers[item.event]: number for number, item in enumerate(query.inputs)}
    names = ("_kind", "_arrival", "_source_time", "_source", "_partition", "_offset")
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in names]
    for row, (time, kind, arrival, source_time, *place) in enumerate(zip(times, *columns, strict=True)):
        yield Known(
            inputs[kind],
            time,
            values[kind][row],
            arrival=arrival,
            source_time=source_time,
            place=tuple(place),
        )
