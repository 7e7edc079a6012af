"""A replay step by step: one step per record, and one per key and expired timer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan, QueryPlan
from querylang.plan.routing import ROUTE_SOURCE
from runtime.admission import Outcome
from runtime.columns.arrivals import AT_THE_END, Arrivals
from runtime.engine import Engine
from runtime.instants import NEVER
from runtime.replay.records import FileRecords, Records
from runtime.replay.stepping import (
    CONCERNED,
    Key,
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
    """Results of one record, or of the timers of one moment.

    keys: by match, the (query, key) that it belongs to
    discarded: (query, reason)
    adjusted: by query, the time and the reason
    routed: what it has routed to queries
    """

    matches: list[Plain] = field(default_factory=list)
    keys: list[tuple[int, Key]] = field(default_factory=list)
    outputs: list[Plain] = field(default_factory=list)
    discarded: set[tuple[str | None, str]] = field(default_factory=set)
    adjusted: dict[str, tuple[int, str]] = field(default_factory=dict)
    routed: list[RoutedEvent] = field(default_factory=list)


_NOTHING = _Found()


class ChunkedSteps(Stepping):
    """A replay whose keys have their own time."""

    def __init__(
        self, plan: Plan, records: Records, matcher: str, known: Results | None = None, *, is_for_people: bool = True
    ) -> None:
        """known: as of `replay_steps`; is_for_people: as of `Stepping`"""
        super().__init__(plan, records, Engine(plan, matcher), is_for_people=is_for_people)
        self._known = known
        self._times = StepTimes(plan)
        self._places = {query.title: place for place, query in enumerate(plan.queries)}
        self._by_record: dict[int, _Found] = {}
        self._by_moment: dict[int, _Found] = {}

    def steps(self, until: int | None, *, flush: bool) -> Iterator[Step]:
        """All steps, as `replay_steps`."""
        if self._known is None:
            yield from self._found_steps()
        else:
            self._divide(self._known, 0)
            yield from self._record_steps(0, len(self.records))
        if until is not None:
            if self._known is None:
                self._divide(self.engine.process(Arrivals.empty(self.plan), now=until), len(self.records))
            yield from self._timers(until)
        elif flush:
            if self._known is None:
                self._divide(self.engine.flush(), len(self.records))
            yield from self._timers(NEVER - 1)

    def _found_steps(self) -> Iterator[Step]:
        """The steps of all records, with results that the engine finds chunk by chunk."""
        first, size = 0, LEAST
        while first < len(self.records):
            chunk = self.table.slice(first, size)
            self._divide(self.engine.process(Arrivals(chunk)), first)
            yield from self._record_steps(first, first + len(chunk))
            first, size = first + len(chunk), min(4 * size, MOST)

    def _record_steps(self, first: int, end: int) -> Iterator[Step]:
        """The steps of these records, and of the timers before them."""
        for index, arrival in enumerate(self.arrival[first:end].tolist(), first):
            yield from self._timers(arrival)
            yield self._record(index, arrival)

    def _divide(self, results: Results, first: int) -> None:
        """Divides the results of a call among its records and moments."""
        by_record: dict[int, _Found] = defaultdict(_Found)
        by_moment: dict[int, _Found] = defaultdict(_Found)

        def owner(step: int, emitted: int) -> _Found:
            is_record = 0 <= step < AT_THE_END
            return by_record[first + step] if is_record else by_moment[emitted]

        ordered = in_order(self.plan, results)
        plain = self.plain.of(ordered)
        owners = {name: list(map(owner, *_steps_of(table))) for name, table in ordered.matches.items()}
        keys = {name: self._keys_of(name, table) for name, table in ordered.matches.items()}
        for name, row in matches_in_order(self.plan, ordered):
            owners[name][row].matches.append(plain[name][row])
            owners[name][row].keys.append(keys[name][row])
        outputs = ordered.outputs
        for output, step, emitted in zip(plain_outputs(outputs), *_steps_of(outputs), strict=True):
            owner(step, emitted).outputs.append(output)
        if results.discarded is not None:
            for row in results.discarded.select(["query", "reason", "source", "_step"]).to_pylist():
                if not (row["source"] or "").startswith(ROUTE_SOURCE):  # these have no row
                    by_record[first + row["_step"]].discarded.add((row["query"], row["reason"]))
        for row in results.adjusted.to_pylist() if len(results.adjusted) else []:
            by_record[first + row["_step"]].adjusted[row["query"]] = row["time"], row["reason"]
        for step, item in self.routed(results):
            owner(step, item.now).routed.append(item)
        self._by_record, self._by_moment = dict(by_record), dict(sorted(by_moment.items()))

    def _keys_of(self, title: str, table: pa.Table) -> list[tuple[int, Key]]:
        place = self._places[title]
        return [
            (place, key_of_match(self.plan, self.plan.queries[place], key)) for key in table.column("key").to_pylist()
        ]

    def _record(self, index: int, arrival: int) -> Step:
        found = self._by_record.get(index, _NOTHING)
        concerned = [place for place, role in enumerate(self.roles) if role.outcome[index] in CONCERNED]
        refused_by = {query for query, _ in found.discarded}
        for place in concerned:
            role, title = self.roles[place], self.plan.queries[place].public_title
            if role.outcome[index] == Outcome.USED and title not in refused_by:
                time = role.time[index] if role.timed[index] else arrival
                self._times.take(place, role.keys[index], role.input[index], time, arrival)
        for item in found.routed:
            self._times.take(*item)
        return self.step_of(
            index,
            concerned,
            definitive=self._definitives(index, arrival),
            discarded=found.discarded,
            adjusted=found.adjusted,
            matches=found.matches,
            outputs=found.outputs,
        )

    def _definitives(self, index: int, clock: int) -> list[int]:
        """As of `StepByStep`."""
        found = []
        for place, key in self.keys_with_time(index):
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
            released += [(item.place, item.key) for item in found.routed if self._times.take(*item)]
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


def _steps_of(table: pa.Table) -> tuple[list[int], list[Any]]:
    """By row, the number of its step, and the moment at which it came, µs."""
    return table.column("_step").to_pylist(), table.column("emitted").cast(pa.int64()).to_pylist()


# The steps of any replay: the engine gets one record after the other.


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

    def steps(self, until: int | None, *, flush: bool) -> Iterator[Step]:
        """All steps, as `replay_steps`."""
        for index in range(len(self.records)):
            yield from self.timers(int(self.arrival[index]))
            yield self.record(index)
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

    def record(self, index: int) -> Step:
        """Process one record."""
        results = self.engine.process(Arrivals(self.table.slice(index, 1)))
        discarded = {(row["query"], row["reason"]) for row in _discards(results)}
        concerned = [place for place, role in enumerate(self.roles) if role.outcome[index] in CONCERNED]
        definitive = self._definitives(index)
        adjusted = {row["query"]: (row["time"], row["reason"]) for row in _rows(results.adjusted)}
        for place in concerned:
            query = self.plan.queries[place]
            moment, _ = adjusted.get(query.title, (None, None))
            self._hold(place, index, moment, is_discarded=query.public_title in {name for name, _ in discarded})
        self._hold_routed(results)
        self._release()
        return self.step_of(
            index,
            concerned,
            definitive=definitive,
            discarded=discarded,
            adjusted=adjusted,
            matches=self._matches(results),
            outputs=self._outputs(results),
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
        matches, outputs, released = self._matches(results), self._outputs(results), self._release()
        self._hold_routed(results)
        self._release()  # what is definitive at once was not held
        # The texts that a query has while one hands over to the next share a step: to users they
        # are one query.
        together: dict[tuple[str, tuple[str, ...], Key], list[QueryPlan]] = {}
        for place, key in sorted({*released, *self._matched(results)}):
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

    def _matched(self, results: Results) -> Iterator[tuple[int, Key]]:
        """The (query, key) pairs that have matches."""
        for place, query in enumerate(self.plan.queries):
            table = results.matches.get(query.title)
            for key in table.column("key").to_pylist() if table is not None else []:
                yield place, key_of_match(self.plan, query, key)

    def _hold(self, place: int, index: int, adjusted: int | None, *, is_discarded: bool) -> None:
        """Store the definitive time that an event waits for."""
        role = self.roles[place]
        if role.outcome[index] == Outcome.USED and not is_discarded and not self.is_end[index]:
            time = role.time[index] if role.timed[index] else int(self.arrival[index])
            time = time if adjusted is None else adjusted
            self.held.setdefault((place, role.keys[index]), []).append(time + role.strict[index])

    def _hold_routed(self, results: Results) -> None:
        """The same for what queries have routed."""
        for _, item in self.routed(results):
            self.held.setdefault((item.place, item.key), []).append(item.time)

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

    def _definitives(self, index: int) -> list[int]:
        """The definitive times of the queries concerned, and of all queries without keys."""
        found = []
        for place, key in self.keys_with_time(index):
            definitive = self.engine.definitive(self.plan.queries[place].title, key.cells)
            if definitive is not None:
                found.append(definitive)
        return found

    def _outputs(self, results: Results) -> list[Plain]:
        return plain_outputs(in_order(self.plan, results).outputs) if len(results.outputs) else []

    def _matches(self, results: Results) -> list[Plain]:
        if not results.matches:
            return []
        ordered = in_order(self.plan, results)
        plain = self.plain.of(ordered)
        return [plain[name][row] for name, row in matches_in_order(self.plan, ordered)]


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
