"""A replay step by step: one step per record, and one per key and expired timer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import Plan, QueryPlan
from querylang.plan.routing import ROUTE_SOURCE, has_chains
from runtime.admission import Outcome
from runtime.columns.arrivals import AT_THE_END, Arrivals
from runtime.engine import Engine
from runtime.instants import NEVER
from runtime.replay.records import FileRecords, Records
from runtime.replay.stepping import (
    Caused,
    Key,
    QueryRecord,
    RoutedEvent,
    Step,
    Stepping,
    StepTimes,
    have_own_time,
    key_of_match,
    named_key,
)
from runtime.results.for_users import Plain, plain_outputs
from runtime.results.schemas import Results, in_order, matches_in_order

# The steps of a replay, from calls of the engine with many records each. The engine finds the
# results of all records of a chunk at once, or has found those of the whole replay. They are
# divided among the steps: by record, or by the moment of a timer. What definitive time is at each
# step, `StepTimes` knows.

LEAST, MOST = 64, 16_384
"""Records of the first chunk, and of the largest: the first steps are soon there."""


@dataclass(slots=True)
class _Found:
    """Results of one record, of one routed event, or of the timers of one moment.

    keys: by match, the (query, key) that it belongs to
    discarded: (query, reason)
    adjusted: by query, the time and the reason
    routed: what has been routed to queries from here, with the results of each
    """

    matches: list[Plain] = field(default_factory=list)
    keys: list[tuple[int, Key]] = field(default_factory=list)
    outputs: list[Plain] = field(default_factory=list)
    discarded: set[tuple[str | None, str]] = field(default_factory=set)
    adjusted: dict[str, tuple[int, str]] = field(default_factory=dict)
    routed: list[tuple[RoutedEvent, _Found]] = field(default_factory=list)


_NOTHING = _Found()


class ChunkedSteps(Stepping):
    """A replay whose keys have their own time."""

    def __init__(
        self, plan: Plan, records: Records, matcher: str, known: Results | None = None, *, is_for_people: bool = True
    ) -> None:
        """known: as of `replay_steps`; is_for_people: as of `Stepping`"""
        super().__init__(plan, records, Engine(plan, matcher), is_for_people=is_for_people)
        self._known = None if has_chains(plan.queries) else known  # it does not say what routed events cause
        self._times = StepTimes(plan)
        self._places = {query.title: place for place, query in enumerate(plan.queries)}
        self._by_record: dict[int, _Found] = {}
        self._by_moment: dict[int, _Found] = {}

    def steps(self, until: int | None, *, flush: bool) -> Iterator[Step]:
        """All steps, as `replay_steps`."""
        if self._known is None:
            yield from self._found_steps()
        else:
            self._divide(self._known, 0, len(self.records))
            yield from self._record_steps(0, len(self.records))
        if until is not None:
            if self._known is None:
                self._divide(self.engine.process(Arrivals.empty(self.plan), now=until), len(self.records), 0)
            yield from self._timers(until)
        elif flush:
            if self._known is None:
                self._divide(self.engine.flush(), len(self.records), 0)
            yield from self._timers(NEVER - 1)

    def _found_steps(self) -> Iterator[Step]:
        """The steps of all records, with results that the engine finds chunk by chunk."""
        first, size = 0, LEAST
        while first < len(self.records):
            chunk = self.table.slice(first, size)
            self._divide(self.engine.process(Arrivals(chunk)), first, len(chunk))
            yield from self._record_steps(first, first + len(chunk))
            first, size = first + len(chunk), min(4 * size, MOST)

    def _record_steps(self, first: int, end: int) -> Iterator[Step]:
        """The steps of these records, and of the timers before them."""
        for index, arrival in enumerate(self.arrival[first:end].tolist(), first):
            yield from self._timers(arrival)
            yield self._record(index, arrival)
            yield from self._routed_steps(self._by_record.get(index, _NOTHING))

    def _take_routed(self, found: _Found) -> None:
        """What has been routed moves time before the first of its steps, as one call has it all."""
        for item, _ in found.routed:
            for taken in item.taken:
                self._times.take(*taken)

    def _routed_steps(self, found: _Found) -> Iterator[Step]:
        """The steps of what has been routed, in total order."""
        for item, own in found.routed:
            known = [self._times.definitive(place, key, item.step.at) for place, key in item.concerned]
            definitive = min((moment for moment in known if moment is not None), default=None)
            yield replace(item.step, definitive=definitive, matches=own.matches, outputs=own.outputs)

    def _divide(self, results: Results, first: int, count: int) -> None:
        """Divides the results of a call among its records, what is routed, and moments.

        first, count: the first of the records of the call, and how many they are
        """
        caused = Caused.of(results, count)
        results = caused.results
        by_record: dict[int, _Found] = defaultdict(_Found)
        by_moment: dict[int, _Found] = defaultdict(_Found)

        def root(step: int, emitted: int) -> _Found:
            return by_record[first + step] if 0 <= step < AT_THE_END else by_moment[emitted]

        routed = [(item, _Found()) for item in self.routed(results)]
        for item, own in routed:
            root(item.root, item.step.at).routed.append((item, own))

        def owner(step: int, emitted: int) -> _Found:
            number = caused.routed_at(step)
            if number is not None:
                return routed[number][1]
            return root(caused.record_at(step) if 0 <= step < AT_THE_END else step, emitted)

        ordered = in_order(self.plan, results)
        plain = self.plain.of(ordered)
        with_some = {name: table for name, table in ordered.matches.items() if len(table)}
        owners = {name: list(map(owner, *_steps_of(table))) for name, table in with_some.items()}
        keys = {name: self._keys_of(name, table) for name, table in with_some.items()}
        for name, row in matches_in_order(self.plan, ordered):
            owners[name][row].matches.append(plain[name][row])
            owners[name][row].keys.append(keys[name][row])
        outputs = ordered.outputs
        for output, step, emitted in zip(plain_outputs(outputs), *_steps_of(outputs), strict=True):
            owner(step, emitted).outputs.append(output)
        if results.discarded is not None:
            for row in results.discarded.select(["query", "reason", "source", "_step"]).to_pylist():
                if not (row["source"] or "").startswith(ROUTE_SOURCE):  # these have no row
                    by_record[first + caused.record_at(row["_step"])].discarded.add((row["query"], row["reason"]))
        for row in results.adjusted.to_pylist() if len(results.adjusted) else []:
            by_record[first + row["_step"]].adjusted[row["query"]] = row["time"], row["reason"]
        self._by_record, self._by_moment = dict(by_record), dict(sorted(by_moment.items()))

    def _keys_of(self, title: str, table: pa.Table) -> list[tuple[int, Key]]:
        place = self._places[title]
        return [
            (place, key_of_match(self.plan, self.plan.queries[place], key)) for key in table.column("key").to_pylist()
        ]

    def _record(self, index: int, arrival: int) -> Step:
        found = self._by_record.get(index, _NOTHING)
        concerned = self.readings.of(index)
        refused_by = {query for query, _ in found.discarded}
        for item in concerned:
            if item.outcome == Outcome.USED and self.plan.queries[item.place].public_title not in refused_by:
                time = item.time if item.is_timed else arrival
                self._times.take(item.place, item.key, item.input, time, arrival)
        self._take_routed(found)
        return self.step_of(
            index,
            concerned,
            definitive=self._definitives(concerned, arrival),
            discarded=found.discarded,
            adjusted=found.adjusted,
            matches=found.matches,
            outputs=found.outputs,
        )

    def _definitives(self, concerned: Sequence[QueryRecord], clock: int) -> list[int]:
        """As of `StepByStep`."""
        found = []
        for place, key in self.keys_with_time(concerned):
            definitive = self._times.definitive(place, key, clock)
            if definitive is not None:
                found.append(definitive)
        return found

    def _timers(self, until: int) -> Iterator[Step]:
        """The steps of the timers up to a moment."""
        while True:
            due = min(self._times.due(), next(iter(self._by_moment), NEVER))
            if due > until:
                return
            found, released = self._by_moment.pop(due, _NOTHING), self._times.run(due)
            self._take_routed(found)
            for place, key in sorted({*released, *found.keys}):
                query = self.plan.queries[place]
                named = named_key(query, key.cells)
                own: Plain = {"query": query.name, "instance": query.instance, "key": named}
                yield Step(
                    at=due,
                    key=own["key"],
                    definitive=self._times.definitive(place, key, due),
                    matches=[match for match, of in zip(found.matches, found.keys, strict=True) if of == (place, key)],
                    outputs=[output for output in found.outputs if {name: output[name] for name in own} == own],
                )
            yield from self._routed_steps(found)


def _steps_of(table: pa.Table) -> tuple[list[int], list[Any]]:
    """By row, the number of its step, and the moment at which it came, µs."""
    return table.column("_step").to_pylist(), table.column("emitted").cast(pa.int64()).to_pylist()


# The steps of any replay: the engine gets one record after the other.


@dataclass(frozen=True, slots=True)
class _ByCause:
    """The results of a call of one record, or of the timers of one moment.

    routed: what has been routed
    matches, outputs: by the number of the routed event that has caused them; None = nothing routed
    keys: the (query, key) pairs that have matches which nothing routed has caused
    """

    caused: Caused
    routed: list[RoutedEvent]
    matches: Mapping[int | None, list[Plain]]
    outputs: Mapping[int | None, list[Plain]]
    keys: Sequence[tuple[int, Key]]


class StepByStep(Stepping):
    """A replay in progress.

    held: by query and key: the definitive times for which held events wait
    """

    def __init__(
        self, plan: Plan, records: Records, matcher: str, *, has_changes: bool = False, is_for_people: bool = True
    ) -> None:
        """has_changes: as of `Engine`; is_for_people: as of `Stepping`"""
        super().__init__(plan, records, Engine(plan, matcher, has_changes=has_changes), is_for_people=is_for_people)
        self.held: dict[tuple[int, Key], list[int]] = {}
        self._has_chains = has_chains(plan.queries)

    def steps(self, until: int | None, *, flush: bool) -> Iterator[Step]:
        """All steps, as `replay_steps`."""
        for index in range(len(self.records)):
            yield from self.timers(int(self.arrival[index]))
            yield from self.record(index)
        yield from self.rest(until, flush=flush)

    def follow(self, before: StepByStep, heirs: Mapping[str, str]) -> None:
        """Continue where a replay of other queries ended; `heirs`: as in `Engine.followed_by`."""
        self.engine, _ = before.engine.followed_by(self.plan, heirs)
        titles = {heirs.get(query.title, query.title): place for place, query in enumerate(self.plan.queries)}
        for (place, key), times in before.held.items():
            title = before.plan.queries[place].title
            if title in titles:
                self.held[titles[title], key] = times

    def rest(self, until: int | None, *, flush: bool) -> Iterator[Step]:
        """The steps after the last record."""
        if until is not None:
            yield from self.timers(until)
        elif flush:
            yield from self.end()
            yield from self.timers(None)

    def record(self, index: int) -> list[Step]:
        """Process one record; its step, and those of what queries have routed because of it."""
        found = self._results(self.engine.process(Arrivals(self.table.slice(index, 1))), 1)
        results = found.caused.results
        discarded = {(row["query"], row["reason"]) for row in _discards(results)}
        concerned = self.readings.of(index)
        definitive = self._definitives(concerned)
        adjusted = {row["query"]: (row["time"], row["reason"]) for row in _rows(results.adjusted)}
        refused_by = {name for name, _ in discarded}
        for item in concerned:
            query = self.plan.queries[item.place]
            moment, _ = adjusted.get(query.title, (None, None))
            self._hold(item, index, moment, is_discarded=query.public_title in refused_by)
        self._hold_routed(found)
        self._release()
        own = self.step_of(
            index,
            concerned,
            definitive=definitive,
            discarded=discarded,
            adjusted=adjusted,
            matches=found.matches.get(None, []),
            outputs=found.outputs.get(None, []),
        )
        return [own, *self._routed_steps(found)]

    def timers(self, until: int | None) -> Iterator[Step]:
        """Let the timers up to a time expire; None = until no timer is left."""
        # Nothing to show is left when only keys are still to be forgotten: time ends before that.
        next_timer = self.engine.next_release if until is None else self.engine.next_wake
        while (due := next_timer()) is not None and (until is None or due <= until):
            by_time = self._releasable(due)
            results = self._results(self.engine.process(Arrivals.empty(self.plan), now=due), 0)
            following = next_timer()
            assert following is None or following > due, "all timers up to now have run"
            yield from self._timer_steps(due, results, by_time)

    def end(self) -> Iterator[Step]:
        """The end of the input, which makes all events definitive if their policy is final."""
        results = self._results(self.engine.end(), 0)
        if self.engine.clock is not None:
            yield from self._timer_steps(self.engine.clock, results)

    def _releasable(self, due: int) -> set[tuple[int, Key]]:
        """The (query, key) pairs of which time alone releases something by then."""
        if not self._has_chains:
            return set()
        found = set()
        for (place, key), times in self.held.items():
            definitive = self.engine.definitive(self.plan.queries[place].title, key.cells, due)
            if definitive is not None and min(times) <= definitive:
                found.add((place, key))
        return found

    def _timer_steps(self, due: int, found: _ByCause, by_time: Collection[tuple[int, Key]] = ()) -> Iterator[Step]:
        matches, outputs = found.matches.get(None, []), found.outputs.get(None, [])
        # What routed events have released belongs to their own steps.
        routed = {(taken.place, taken.key) for item in found.routed for taken in item.taken}
        released = [item for item in self._release() if item not in routed or item in by_time]
        self._hold_routed(found)
        self._release()  # what is definitive at once was not held
        # The texts that a query has while one hands over to the next share a step: to users they
        # are one query.
        together: dict[tuple[str, tuple[str, ...], Key], list[QueryPlan]] = {}
        for place, key in sorted({*released, *found.keys}):
            query = self.plan.queries[place]
            together.setdefault((query.public_title, query.key_names, key), []).append(query)
        for (_, _, key), queries in together.items():
            query, named = queries[0], named_key(queries[0], key.cells)
            known = [self.engine.definitive(item.title, key.cells) for item in queries]
            own: Plain = {"query": query.name, "instance": query.instance, "key": named}
            its = [match for match in matches if {name: match[name] for name in own} == own]
            yield Step(
                at=due,
                key=own["key"],
                definitive=min((moment for moment in known if moment is not None), default=None),
                matches=its,
                outputs=[output for output in outputs if {name: output[name] for name in own} == own],
            )
        yield from self._routed_steps(found)

    def _results(self, results: Results, count: int) -> _ByCause:
        """The results of a call with so many records, by cause."""
        caused = Caused.of(results, count)
        matches, outputs = defaultdict[int | None, list[Plain]](list), defaultdict[int | None, list[Plain]](list)
        keys: list[tuple[int, Key]] = []
        if caused.results.matches or len(caused.results.outputs):
            places = {query.title: place for place, query in enumerate(self.plan.queries)}
            ordered = in_order(self.plan, caused.results)
            plain = self.plain.of(ordered)
            steps = {name: table.column("_step").to_pylist() for name, table in ordered.matches.items()}
            of_keys = {name: table.column("key").to_pylist() for name, table in ordered.matches.items()}
            for name, row in matches_in_order(self.plan, ordered):
                cause = caused.routed_at(steps[name][row])
                matches[cause].append(plain[name][row])
                if cause is None:
                    place = places[name]
                    keys.append((place, key_of_match(self.plan, self.plan.queries[place], of_keys[name][row])))
            causes = map(caused.routed_at, ordered.outputs.column("_step").to_pylist())
            for output, cause in zip(plain_outputs(ordered.outputs), causes, strict=True):
                outputs[cause].append(output)
        return _ByCause(caused, self.routed(results), matches, outputs, keys)

    def _routed_steps(self, found: _ByCause) -> Iterator[Step]:
        """The steps of what has been routed, in total order."""
        for number, item in enumerate(found.routed):
            titles = [(self.plan.queries[place].title, key.cells) for place, key in item.concerned]
            known = [self.engine.definitive(title, cells) for title, cells in titles]
            yield replace(
                item.step,
                definitive=min((moment for moment in known if moment is not None), default=None),
                matches=found.matches.get(number, []),
                outputs=found.outputs.get(number, []),
            )

    def _hold(self, item: QueryRecord, index: int, adjusted: int | None, *, is_discarded: bool) -> None:
        """Store the definitive time that an event waits for."""
        if item.outcome == Outcome.USED and not is_discarded and not self.is_end[index]:
            time = item.time if item.is_timed else int(self.arrival[index])
            time = time if adjusted is None else adjusted
            self.held.setdefault((item.place, item.key), []).append(time + item.is_strict)

    def _hold_routed(self, found: _ByCause) -> None:
        """The same for what queries have routed."""
        for item in found.routed:
            for taken in item.taken:
                self.held.setdefault((taken.place, taken.key), []).append(taken.time)

    def _release(self) -> list[tuple[int, Key]]:
        """Release events that definitive time has reached; return their (query, key) pairs."""
        released = []
        for (place, key), times in list(self.held.items()):
            definitive = self.engine.definitive(self.plan.queries[place].title, key.cells)
            still_held = [time for time in times if definitive is None or time > definitive]
            if len(still_held) < len(times):
                released.append((place, key))
            self.held[place, key] = still_held
            if not still_held:
                del self.held[place, key]
        return sorted(released)

    def _definitives(self, concerned: Sequence[QueryRecord]) -> list[int]:
        """The definitive times of the queries concerned, and of all queries without keys."""
        found = []
        for place, key in self.keys_with_time(concerned):
            definitive = self.engine.definitive(self.plan.queries[place].title, key.cells)
            if definitive is not None:
                found.append(definitive)
        return found


def _discards(results: Results) -> list[dict[str, Any]]:
    if results.discarded is None or not len(results.discarded):
        return []
    rows = results.discarded.select(["query", "reason", "source"]).to_pylist()
    return [row for row in rows if not (row["source"] or "").startswith(ROUTE_SOURCE)]


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist() if len(table) else []


def replay_steps(
    plan: Plan,
    records: Records | FileRecords,
    *,
    until: int | None = None,
    flush: bool = True,
    matcher: str = "auto",
    known: Results | None = None,
    is_for_people: bool = True,
) -> Iterator[Step]:
    """All steps of a replay; `until` and `flush` as in `replay_records`.

    known: the results of this replay; None = the engine finds them, some records at a time
    is_for_people: as of `Stepping`
    """
    whole = records if isinstance(records, Records) else records.whole()
    own = whole.until(until)
    if not are_quick(plan, own):
        return StepByStep(plan, own, matcher, is_for_people=is_for_people).steps(until, flush=flush)
    return ChunkedSteps(plan, own, matcher, known, is_for_people=is_for_people).steps(until, flush=flush)


def are_quick(plan: Plan, records: Records | FileRecords) -> bool:
    """Whether the steps are found for many records at once."""
    if any(query.shared_types for query in plan.queries):
        return False  # a record may be of several keys
    return have_own_time(plan, records.arrivals.table, records.arrivals.system("kind").astype(np.int64))
