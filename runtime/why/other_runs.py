"""Run a key again with one rule of its inputs lifted: filters, how late a record may be, its key.

The engine runs, as for the key itself. What it finds with the rule lifted, and not without, fails
for this rule alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querylang.plan.model import Input, Plan, QueryPlan, Without, known
from querylang.plan.routing import has_chains
from querylang.plan.text import duration_text
from runtime.admission import Outcome
from runtime.column_types import Integers
from runtime.columns.keys import key_columns, keys_of_layer, layers
from runtime.input_policies import shares_clock
from runtime.interpreter import Context, EvaluationError, PlanWorld, evaluate, holds, run_action
from runtime.matching.interface import Bindings
from runtime.matching.reference import ReferenceMatcher, positions_of
from runtime.results.for_users import RowOf
from runtime.results.matched import Coordinates
from runtime.why.answers import Candidate, Change, EventAt, Reason, Side
from runtime.why.changes import Rewrite
from runtime.why.clauses import Clause, What
from runtime.why.history import Ending, KeyEvent, KeyHistory, KeyValues, key_history
from runtime.why.matches import RowsByPlace
from runtime.why.reasons import Reasons, event_at, place_text, sides_text
from runtime.why.searching import Searching

_LONG = 3_650 * 86_400 * 1_000_000
"""A wait for which nothing is late, µs."""

_MOST_NEAR = 5
"""Keys that are nearly another one, and are named."""


class OtherRuns:
    """Other runs over the records of one key."""

    def __init__(
        self,
        history: KeyHistory,
        own: pa.Table,
        records: pa.Table,
        ending: Ending,
        row_of: RowOf,
        rewritten_as: Rewrite | None = None,
    ) -> None:
        """own: the records of the key; records: all of them; rewritten_as: as of `LeastChange`"""
        self._rewritten_as = rewritten_as
        self._history, self._own, self._records, self._ending, self._row_of = history, own, records, ending, row_of
        self._plan, self._query = history.plan, history.query
        self._parts: dict[int, pa.Table] = {}

    def _run(self, query: QueryPlan, own: pa.Table | None = None, ending: Ending | None = None) -> Searching:
        """own, ending: other records than those of the key, and how they end"""
        queries = tuple(query if item.title == query.title else item for item in self._plan.queries)
        plan = replace(self._plan, queries=queries)
        own, ending = self._own if own is None else own, ending or self._ending
        return Searching(key_history(plan, query, own, self._history.key, ending))

    @cached_property
    def _unfiltered(self) -> Searching | None:
        if all(item.filter is None for item in self._query.inputs):
            return None
        return self._run(_with_inputs(self._query, lambda item: replace(item, filter=None)))

    @cached_property
    def _unbounded(self) -> Searching | None:
        """Where nothing is late; None = nothing is, or it is not by a wait."""
        words = {row["reason"] for own in self._history.refused.values() for row in own.values()}
        if words.isdisjoint((Outcome.LATE.word, Outcome.OUT_OF_ORDER.word)) or shares_clock(self._query):
            return None
        return self._run(_with_inputs(self._query, _never_late))

    @cached_property
    def _keyless(self) -> Searching | None:
        """The records of this key and of those nearly like it; None = none are."""
        query, key = self._query, self._history.key
        kinds = self._records.column("_kind").to_numpy().astype(np.int64)
        near = near_keys(self._plan, query, self._records, kinds, key)
        is_apart = bool(query.shared_types) or shares_clock(query)
        if not near or is_apart or ReferenceMatcher(self._plan, query).mentions_keys:
            return None
        (column,) = key_columns(self._records, kinds, self._plan, query)
        wanted = pc.is_in(column, value_set=pa.array([*near, key[0].as_py()], column.type))
        inputs = tuple(replace(item, keys=(), optional_keys=(), heartbeat=None) for item in query.inputs)
        without = replace(query, keys=(), inputs=inputs)
        plan = replace(self._plan, queries=(without,), stopped=())
        own = self._records.filter(wanted)
        return Searching(key_history(plan, without, own, (), self._ending))

    def candidates(self, latest: int) -> Iterator[Candidate]:
        """What would be a match with this event as the latest if a rule were lifted."""
        place = self._place(latest)
        runs = (self._unfiltered, self._filtered), (self._unbounded, self._late), (self._keyless, self._other_key)
        for run, explain in runs:
            there = None if run is None else run.history.places.get(place)
            if run is None or there is None:
                continue
            bound = run.match(there)
            reason = None if bound is None else explain(run, bound)
            if bound is not None and reason is not None:
                yield Candidate(Reasons(run, self._row_of).events_of(bound), reason, is_whole=True)

    def _place(self, position: int) -> Coordinates:
        return self._history.events[position].place

    def _filtered(self, run: Searching, bound: Bindings) -> Reason | None:
        words, world = Reasons(run, self._row_of), PlanWorld(self._plan, self._query)
        for position, item in self._members(bound):
            event, condition = run.events[position], self._query.inputs[item].filter
            context = Context([event.value], world=world, invoke=run_action)
            if condition is None or holds(condition, context):
                continue
            sides = Reasons(Searching(self._history), self._row_of).filter_sides(item, event.value)
            shown, name = words.at(position, bound), self._query.inputs[item].name
            says = f"the filter of {name} refused `{shown.name}` ({place_text(shown.row, shown.place)}): {sides_text(sides)}"
            return Reason(str(What.FILTER), Clause(What.FILTER, item).text(self._query), says, sides, event=shown)
        return None

    def _members(self, bound: Bindings) -> list[tuple[int, int]]:
        """The events of a candidate, the newest first, each with the input of its name."""
        terms = self._query.terms
        return sorted(((at, terms[term].input) for term, places in bound.items() for at in places), reverse=True)

    def _late(self, run: Searching, bound: Bindings) -> Reason | None:
        for position, item in self._members(bound):
            event = run.events[position]
            assert isinstance(event, KeyEvent), "the history has made it"
            row = self._history.refused.get(event.place, {}).get(item)
            if row is None:
                continue
            shown = Reasons(run, self._row_of).at(position, bound)
            behind = duration_text(max(0, event.arrival - event.source_time))
            place = place_text(shown.row, shown.place)
            says = f"`{shown.name}` ({place}) was discarded ({row['reason']}): it arrived {behind} after it happened"
            clause = Clause(What.LATE, item).text(self._query)
            return Reason(str(What.LATE), clause, says, event=shown)
        return None

    def _other_key(self, run: Searching, bound: Bindings) -> Reason | None:
        for position in sorted(positions_of(bound), reverse=True):
            event = run.events[position]
            assert isinstance(event, KeyEvent), "the history has made it"
            if self._history.places.get(event.place) is not None:
                continue
            shown = Reasons(run, self._row_of).at(position, bound)
            context = Context([event.value], world=PlanWorld(self._plan, self._query), invoke=run_action)
            its, own = evaluate(self._query.inputs[event.input].keys[0], context), self._history.key[0].as_py()
            name = self._query.key_names[0]
            place = place_text(shown.row, shown.place)
            says = f"`{shown.name}` ({place}) has another key: {name} is {its!r} there, and {own!r} here"
            sides = (Side(f"{shown.name}.{name}", its), Side(name, own))
            return Reason(str(What.KEY), f"key {name}", says, sides, event=shown)
        return None

    # A record that was refused by a bound.

    def admitting(self, place: Coordinates, item: int, behind: int) -> Change | None:
        """The least setting with which a record is admitted; it is tried.

        behind: how long after it happened it arrived, µs
        """
        own, query = self._query.inputs[item], self._query
        if own.policy is not None:
            return self._by_policy(place, item, behind)
        if own.wait is None:
            return None
        event = own.event
        if not own.out_of_order and self._admits(place, item, _with_input(query, item, out_of_order=True)):
            text = f"@OutOfOrder() event {event}"
            return Change(
                "order", f"event {event}", text, text, costs="events of the wait are held, and put into order"
            )
        if behind <= known(own.wait):
            return None
        for is_ordered in (own.out_of_order, True):
            changed = _with_input(query, item, wait=behind, out_of_order=is_ordered)
            if self._admits(place, item, changed):
                before, after = f"wait {duration_text(known(own.wait))}", f"wait {duration_text(behind)}"
                more = duration_text(behind - known(own.wait))
                costs = f"each match may come {more} later, and events of {more} more are held per key"
                if is_ordered != own.out_of_order:
                    after += f", and `@OutOfOrder()` before `event {event}`"
                    return Change("wait", before, after, after, costs=costs)
                change = Change("wait", before, after, after, costs=costs)
                return change if self._rewritten_as is None else self._rewritten_as(change, query, changed)
        return None

    def _by_policy(self, place: Coordinates, item: int, behind: int) -> Change | None:
        policy = self._query.inputs[item].policy
        assert policy is not None, "the input has one"
        if policy.max_delay is None or behind <= policy.max_delay:
            return None
        changed = _with_inputs(
            self._query,
            lambda other: (
                other
                if other.policy is None or other.policy.max_delay is None
                else replace(other, policy=replace(other.policy, max_delay=max(behind, other.policy.max_delay)))
            ),
        )
        if not self._admits(place, item, changed):
            return None
        before, after = (f"late={duration_text(length)}" for length in (policy.max_delay, behind))
        more = duration_text(behind - policy.max_delay)
        costs = f"each match may come {more} later, and events of {more} more are held"
        return Change("late", before, after, f"--ordering: {after}", costs=costs)

    def _admits(self, place: Coordinates, item: int, query: QueryPlan) -> bool:
        """Whether the query, run again, no longer refuses a record as an event of an input."""
        history = self._run(query).history
        position = history.places.get(place)
        if position is not None and item in history.events.inputs_at(position):
            return True
        return item not in history.refused.get(place, {}) and item in self._history.refused.get(place, {})

    def gives(self, query: QueryPlan, latest: int) -> bool:
        """Whether the query, run again, gives a match that ends with the same event.

        Where a match depends on nothing before its events, it runs over those that a search from
        the last of them looks at. In a million of a key these are few.
        """
        own, ending = self._own, self._ending
        if depends_on_its_events(query) and depends_on_its_events(self._query) and not has_chains(self._plan.queries):
            own, ending = self._searched(latest), Ending(until=None, flush=True, last=None)
        history = self._run(query, own, ending).history
        position = history.places.get(self._place(latest))
        return position is not None and history.given.ends_with(position)

    def _searched(self, latest: int) -> pa.Table:
        """The records of the events that a search from this one looks at."""
        if latest not in self._parts:
            scope = Searching(self._history).scope(latest)
            rows = [self._rows.get(self._place(position)) for position in scope]
            self._parts = {latest: self._own.take(pa.array(sorted(row for row in rows if row is not None)))}
        return self._parts[latest]

    @cached_property
    def _rows(self) -> RowsByPlace:
        """By coordinates, the rows of the records of the key."""
        return RowsByPlace(self._own)

    def if_admitted(self, place: Coordinates, item: int | None = None) -> Candidate | None:
        """The match that a refused record would have been part of; None = there is none.

        item: as an event of this input; None = of any
        """
        run = self._unbounded
        position = None if run is None else run.history.places.get(place)
        if run is None or position is None:
            return None
        for latest in run.history.found.latest_with(position):
            for bound in run.history.found.at(latest):
                if any(at == position and item in (None, own) for at, own in self._members(bound)):
                    reason = self._late(run, bound)
                    if reason is not None:
                        return Candidate(Reasons(run, self._row_of).events_of(bound), reason, is_whole=True)
        return None

    # `new by`.

    def first_of_values(self, place: Coordinates, item: int) -> EventAt | None:
        """The event of equal values before one that is not new."""
        run = self._run(_with_inputs(self._query, lambda own: replace(own, new=None)))
        position, new = run.history.places.get(place), self._query.inputs[item].new
        assert new is not None, "its input has `new by`"
        if position is None:
            return None
        world = PlanWorld(self._plan, self._query)

        def values(at: int) -> list[Any] | None:
            context = Context([run.events[at].value], world=world, invoke=run_action)
            try:
                return [evaluate(part, context) for part in new.values]
            except EvaluationError:
                return None

        wanted = values(position)
        for before in range(position - 1, max(-1, position - 10_000), -1):
            if item in run.events[before].inputs and values(before) == wanted:
                return event_at(run.events[before], "", self._row_of)
        return None


def depends_on_its_events(query: QueryPlan) -> bool:
    """Whether the last events of a key say all that decides about a match with the latest of them.

    More events before them can bring other candidates, and take none away.
    """
    is_limited = query.skip is not None or query.at_most is not None or query.finds_all
    waits = query.trailing is not None or query.leading is not None
    is_all = any(isinstance(item, Without) for item in query.conditions) or query.every is not None
    has_more = bool(query.shared_types or query.tables) or query.forget_keys is not None or shares_clock(query)
    is_part = query.starts is not None or query.ends is not None
    is_plain = all(item.policy is None and item.new is None for item in query.inputs)
    return is_plain and not (is_limited or waits or is_all or has_more or is_part)


def _never_late(item: Input) -> Input:
    if item.wait is None or item.policy is not None:
        return item
    return replace(item, wait=_LONG, out_of_order=True)


def _with_inputs(query: QueryPlan, change: Any) -> QueryPlan:
    return replace(query, inputs=tuple(map(change, query.inputs)))


def _with_input(query: QueryPlan, index: int, **changes: Any) -> QueryPlan:
    inputs = list(query.inputs)
    inputs[index] = replace(inputs[index], **changes)
    return replace(query, inputs=tuple(inputs))


def near_keys(plan: Plan, query: QueryPlan, records: pa.Table, kinds: Integers, key: KeyValues) -> Sequence[str]:
    """Keys that differ from one in upper and lower case, spaces or leading zeros only."""
    if len(key) != 1 or not pa.types.is_string(key[0].type) or has_chains(plan.queries):
        return []
    columns = [keys_of_layer(records, kinds, plan, query, layer)[0] for layer in layers(query)]
    different = pc.unique(pa.chunked_array(columns)).drop_null()
    wanted = _folded(pa.array([key[0].as_py()], pa.string()))[0]
    found = different.filter(pc.equal(_folded(different), wanted))
    return [name for name in found.to_pylist() if name != key[0].as_py()][:_MOST_NEAR]


def with_near_keys(reason: Reason, query: QueryPlan, near: Sequence[str]) -> Reason:
    """A reason that also names the keys that are nearly the one that was asked for."""
    if not near:
        return reason
    sides = tuple(Side(query.key_names[0], key) for key in near)
    says = f"{reason.says}; keys are compared exactly, and there is {', '.join(map(repr, near))}"
    return replace(reason, says=says, sides=(*reason.sides, *sides))


def _folded(column: pa.Array) -> pa.Array:
    text = pc.utf8_lower(pc.utf8_trim_whitespace(column))
    return pc.replace_substring_regex(text, "^0+", "")
