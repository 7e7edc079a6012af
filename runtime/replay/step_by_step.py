"""The steps of any replay: the engine gets one record after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from querylang.plan.model import Plan, QueryPlan
from runtime.admission.rules import Outcome
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.replay.order import in_order, matches_in_order
from runtime.replay.records import Records
from runtime.replay.step_times import Key
from runtime.replay.stepping import CONCERNED, Step, Stepping, cells_of, key_of
from runtime.results.for_users import Plain, plain_matches, plain_outputs, plain_value
from runtime.results.schemas import Results


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
        matches, outputs = self._matches(results), self._outputs(results)
        # The texts that a query has while one hands over to the next share a step: to users they
        # are one query.
        together: dict[tuple[str, tuple[str, ...], Key], list[QueryPlan]] = {}
        for place, key in sorted({*self._release(), *self._matched(results)}):
            query = self.plan.queries[place]
            together.setdefault((query.public_title, query.key_names, key), []).append(query)
        for (_, names, key), queries in together.items():
            query, named = queries[0], dict(zip(names, cells_of(key), strict=True))
            known = [self.engine.definitive(item.title, cells_of(key)) for item in queries]
            own: Plain = {"query": query.name, "instance": query.instance, "key": plain_value(named)}
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
                yield place, key_of(key.values())

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
            definitive = self.engine.definitive(self.plan.queries[place].title, cells_of(key))
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
            definitive = self.engine.definitive(self.plan.queries[place].title, cells_of(key))
            if definitive is not None:
                found.append(definitive)
        return found

    def _outputs(self, results: Results) -> list[Plain]:
        return plain_outputs(in_order(self.plan, results).outputs) if len(results.outputs) else []

    def _matches(self, results: Results) -> list[Plain]:
        if not results.matches:
            return []
        ordered = in_order(self.plan, results)
        plain = {name: plain_matches(table, self.row_of) for name, table in ordered.matches.items()}
        return [plain[name][row] for name, row in matches_in_order(self.plan, ordered)]


def _discards(results: Results) -> list[dict[str, Any]]:
    if results.discarded is None or not len(results.discarded):
        return []
    return results.discarded.select(["query", "reason"]).to_pylist()


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist() if len(table) else []
