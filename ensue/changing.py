"""The plans of a replay whose control events change the queries: read ahead, before it runs.

The texts of changes are compiled before the records are read, because they say which fields of the
tables matter. Then the changes are done one after the other, in order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import pyarrow.compute as pc

from querylang.changes import Applied, Infer, Moment, Schemas, apply, compiled
from querylang.dataclass import dataclass, field, replace
from querylang.errors import InputError, QueryErrors
from querylang.load import NAMELESS, check_text, words_of
from querylang.plan.model import EventType, Plan, QueryPlan, Table
from querylang.plan.routing import Change, DeployQuery, Outcome, ReplaceQuery
from querylang.running import ChangeError, Running, annotated_as
from querylang.source import Source
from runtime import replay
from runtime.admission import furthest_time, selectors_of
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.instants import NO_TIME
from runtime.policies.plan_policies import Orderings, for_reading, policy_of
from runtime.reading import NOT_HERE, PLACES, ColumnNames, ControlError, infer, parse_change, with_nested
from runtime.results.schemas import Results

Finish = Callable[[Plan], Plan]
"""Gives a plan the settings of the run: ordering policies, when keys are forgotten."""


Furthest = Callable[[int, Plan], int]
"""Gives the furthest source time, µs, of the records before a number, as queries take it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A change that a record asks for.

    record: its number in order of arrival
    """

    record: int
    place: int
    change: Change


def asked_changes(arrivals: Arrivals) -> list[Asked]:
    """The changes in order of arrival; what is not well formed the engine answers."""
    table = arrivals.table
    rows = np.flatnonzero(table.column("_kind").to_numpy() == RecordKind.CONTROL)
    arrival = arrivals.system("arrival")
    found = []
    for row in rows.tolist():
        try:
            change = parse_change(table.column("_text")[row].as_py() or "")
        except ControlError:
            continue
        if change is not None:
            found.append(Asked(row, int(arrival[row]), change))
    return found


def asks_for_changes(results: Results) -> bool:
    """Whether an engine was asked for changes, which it cannot do."""
    texts = results.outputs.filter(pc.equal(results.outputs.column("kind"), "error")).column("text").to_pylist()
    return any(NOT_HERE in text for text in texts)


def plan_for_reading(start: Plan, asked: Sequence[Asked], infer: Infer) -> Plan:
    """The plan that says which columns of tables are needed: of all queries that may ever run."""
    queries = list(start.queries)
    # a change that is refused later leaves the annotations as they were, so both are possible
    possible = [start.events]
    editions = count(10_000)
    for item in asked:
        if not isinstance(item.change, DeployQuery | ReplaceQuery):
            continue
        tables = list({table.name: table for query in queries for table in query.tables}.values())
        found = [_compiled(item.change.text, events, infer, tables) for events in possible]
        # no two titles are equal; the texts run with other ones
        queries += [replace(query, edition=next(editions)) for plan, _ in found for query in plan.queries]
        done = [events for _, events in found]
        refused = [annotated_as(events, before) for events, before in zip(done, possible, strict=True)]
        widest = max(map(len, done))
        possible = [events for events in dict.fromkeys([*done, *refused]) if len(events) == widest]
    return Plan(possible[0], tuple(queries), start.stopped)


def _compiled(
    text: str, known: tuple[EventType, ...], infer: Infer, tables: Sequence[Table]
) -> tuple[Plan, tuple[EventType, ...]]:
    """The templates of a text, and all event types; none, and the known ones, if it is wrong."""
    try:
        return compiled(text, known, infer, tables)
    except ChangeError:
        return Plan((), ()), known


@dataclass(frozen=True, slots=True)
class InferredTypes:
    """The fields of event types that nothing defines, from the tables of a replay."""

    tables: Sequence[Any]
    columns: Sequence[ColumnNames]

    def of_text(self, text: str) -> Schemas:
        """Those that a text needs; none if it has mistakes."""
        try:
            checked = check_text(text)
        except QueryErrors:
            return {}
        read = {item.event for query in checked.queries for item in query.inputs}
        wanted = [event.name for event in checked.events if not event.fields and event.name in read]
        if not wanted:
            return {}
        try:
            event = wanted[0] if len(wanted) == 1 else ""
            fields = words_of([Source(NAMELESS, text)]) & set(PLACES)
            inferred = infer(*self.tables, names=self.columns, event=event, fields=fields)
        except InputError:
            return {}
        return with_nested(inferred.schemas, wanted)


def _as_it_is(plan: Plan) -> Plan:
    return plan


def script_of(
    template: Plan,
    instances: Plan,
    records: replay.Records,
    tables: Sequence[Any],
    columns: Sequence[ColumnNames],
    orderings: Orderings,
    finish: Finish = _as_it_is,
) -> tuple[replay.Script, replay.Records] | None:
    """All plans of a replay, and its records, read for all of them; None = nothing changes.

    template, instances: the queries of the start
    records: as they were read for these
    orderings: the policies that were chosen, by source
    finish: gives a plan the other settings of the run

    Raises InputError.
    """
    asked = asked_changes(records.arrivals)
    if not asked:
        return None
    seen = InferredTypes(tables, columns).of_text
    reading = plan_for_reading(template, asked, seen)
    names = replay.source_names(tables)
    whole = replay.read_all(
        tables, reading, columns, [for_reading(reading, policy_of(orderings, name)) for name in names]
    )
    brought = replay.events_by_source([whole.arrivals], reading) if orderings else {}

    def finished(plan: Plan) -> Plan:
        return finish(replay.with_orderings(plan, orderings, names, brought) if orderings else plan)

    def furthest(record: int, plan: Plan) -> int:
        return furthest_time(whole.arrivals.table.slice(0, record), selectors_of(plan))

    director = _Director(whole.arrivals, reading, finished, seen, furthest)
    return director.script(Running.of(template, instances), asked), whole


def script_of_changes(
    template: Plan, instances: Plan, changes: Arrivals, finish: Finish, infer: Infer, furthest: Furthest
) -> replay.Script | None:
    """As `script_of`, for records that are elsewhere; None = nothing changes.

    changes: only the control events that change queries, in order of arrival
    infer: finds the fields of types that nothing defines
    furthest: the furthest source time, µs, of the records before one of these
    """
    asked = asked_changes(changes)
    if not asked:
        return None
    director = _Director(changes, plan_for_reading(template, asked, infer), finish, infer, furthest)
    return director.script(Running.of(template, instances), asked)


@dataclass(slots=True)
class _Director:
    """Does changes in order.

    infer: finds the fields of types that nothing defines
    furthest: the furthest source time, µs, of the records before one
    """

    arrivals: Arrivals
    reading: Plan
    finish: Finish
    infer: Infer
    furthest: Furthest
    epochs: list[replay.Epoch] = field(default_factory=list)
    notices: list[replay.ChangeNotice] = field(default_factory=list)

    def script(self, running: Running, asked: Sequence[Asked]) -> replay.Script:
        """All epochs, and the plan of all queries that run in one of them."""
        self._begin(self._plan(running), running, 0)
        for item in asked:
            running = self._settled(running, item.place)
            moment = Moment(item.place, self._furthest(item))
            done = self._done(item, running, moment)
            self.notices.append(replay.ChangeNotice(done.outcomes, item.place, item.record))
            if done.plan is not None:
                running = done.running
                self._begin(done.plan, running, item.record + 1, heirs=done.heirs)
        self._settled(running, None)
        whole = Plan(self.reading.events, _all_queries(self.epochs), self.epochs[0].plan.stopped)
        return replay.Script(whole, tuple(self.epochs), tuple(self.notices))

    def _done(self, item: Asked, running: Running, moment: Moment) -> Applied:
        return apply(item.change, running, moment, infer=self.infer, check=self._check)

    def _furthest(self, item: Asked) -> int:
        """The furthest source time before a change; only a handover depends on it."""
        return self.furthest(item.record, self.epochs[-1].plan) if isinstance(item.change, ReplaceQuery) else NO_TIME

    def _check(self, plan: Plan) -> Plan:
        return self.finish(replace(plan, events=self.reading.events))

    def _plan(self, running: Running) -> Plan:
        return self._check(running.plan())

    def _begin(
        self,
        plan: Plan,
        running: Running,
        first: int,
        begins: int | None = None,
        heirs: Mapping[str, str] | None = None,
    ) -> None:
        known = frozenset(event.name for event in running.events)
        self.epochs.append(replay.Epoch(plan, first, begins, heirs or {}, known))

    def _settled(self, running: Running, before: int | None) -> Running:
        """What runs once the texts have ended that are done before a place; None = ever."""
        while (done := running.next_done()) is not None and (before is None or done < before):
            running, names = running.without_done(done)
            outcomes = tuple(Outcome("handed_over", name, "", f"the old text of '{name}' has ended") for name in names)
            arrival = self.arrivals.system("arrival")
            first = int(np.searchsorted(arrival, done, side="right"))
            self.notices.append(replay.ChangeNotice(outcomes, done, None))
            self._begin(self._plan(running), running, first, done)
        return running


def _all_queries(epochs: Sequence[replay.Epoch]) -> tuple[QueryPlan, ...]:
    """The queries of all epochs, in the order that they have within each."""
    queries: dict[str, QueryPlan] = {}
    places: dict[str, tuple[int, int]] = {}
    lives: dict[str, int] = {}
    deployed = 0
    for epoch in epochs:
        names = dict.fromkeys(query.name for query in epoch.plan.queries)
        lives = {name: lives[name] if name in lives else deployed + place for place, name in enumerate(names)}
        deployed += len(names)
        for query in epoch.plan.queries:
            queries.setdefault(query.title, query)
            places.setdefault(query.title, (lives[query.name], query.edition))
    return tuple(sorted(queries.values(), key=lambda query: places[query.title]))
