"""The steps of a replay, from calls of the engine with many records each.

The engine finds the results of all records of a chunk at once, or has found those of the whole
replay. They are divided among the steps: by record, or by the moment of a timer. What definitive
time is at each step, `StepTimes` knows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from querylang.plan.model import Plan
from runtime.admission.rules import Outcome
from runtime.columns.arrivals import AT_THE_END, Arrivals
from runtime.engine.engine import Engine
from runtime.instants import NEVER
from runtime.replay.order import in_order, matches_in_order
from runtime.replay.records import Records
from runtime.replay.step_times import Key, StepTimes
from runtime.replay.stepping import CONCERNED, Step, Stepping, cells_of, key_of
from runtime.results.for_users import Plain, plain_matches, plain_outputs, plain_value
from runtime.results.schemas import Results

LEAST, MOST = 64, 16_384
"""Records of the first chunk, and of the largest: the first steps are soon there."""


@dataclass(slots=True)
class _Found:
    """Results of one record, or of the timers of one moment.

    keys: by match, the (query, key) that it belongs to
    discarded: (query, reason)
    adjusted: by query, the time and the reason
    """

    matches: list[Plain] = field(default_factory=list)
    keys: list[tuple[int, Key]] = field(default_factory=list)
    outputs: list[Plain] = field(default_factory=list)
    discarded: set[tuple[str | None, str]] = field(default_factory=set)
    adjusted: dict[str, tuple[int, str]] = field(default_factory=dict)


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
        plain = {name: plain_matches(table, self.row_of) for name, table in ordered.matches.items()}
        owners = {name: list(map(owner, *_steps_of(table))) for name, table in ordered.matches.items()}
        keys = {name: self._keys_of(name, table) for name, table in ordered.matches.items()}
        for name, row in matches_in_order(self.plan, ordered):
            owners[name][row].matches.append(plain[name][row])
            owners[name][row].keys.append(keys[name][row])
        outputs = ordered.outputs
        for output, step, emitted in zip(plain_outputs(outputs), *_steps_of(outputs), strict=True):
            owner(step, emitted).outputs.append(output)
        if results.discarded is not None:
            for row in results.discarded.select(["query", "reason", "_step"]).to_pylist():
                by_record[first + row["_step"]].discarded.add((row["query"], row["reason"]))
        for row in results.adjusted.to_pylist() if len(results.adjusted) else []:
            by_record[first + row["_step"]].adjusted[row["query"]] = row["time"], row["reason"]
        self._by_record, self._by_moment = dict(by_record), dict(sorted(by_moment.items()))

    def _keys_of(self, title: str, table: pa.Table) -> list[tuple[int, Key]]:
        place = self._places[title]
        return [(place, key_of(key.values())) for key in table.column("key").to_pylist()]

    def _record(self, index: int, arrival: int) -> Step:
        found = self._by_record.get(index, _NOTHING)
        concerned = [place for place, role in enumerate(self.roles) if role.outcome[index] in CONCERNED]
        refused_by = {query for query, _ in found.discarded}
        for place in concerned:
            role, title = self.roles[place], self.plan.queries[place].public_title
            if role.outcome[index] == Outcome.USED and title not in refused_by:
                time = role.time[index] if role.timed[index] else arrival
                self._times.take(place, role.keys[index], role.input[index], time, arrival)
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
            for place, key in sorted({*released, *found.keys}):
                query = self.plan.queries[place]
                named = dict(zip(query.key_names, cells_of(key), strict=True))
                own: Plain = {"query": query.name, "instance": query.instance, "key": plain_value(named)}
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
