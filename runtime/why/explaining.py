"""Explain what became of the records of one key: matched, not, not yet, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from querylang.errors import counted, did_you_mean
from querylang.plan.model import QueryPlan, known
from querylang.plan.text import INPUT_NAMES, Names, duration_text, expression_text
from runtime.admission import Outcome, Selector
from runtime.columns.keys import key_cells, layer_of_inputs
from runtime.instants import NO_TIME
from runtime.interpreter import PlanWorld
from runtime.matching.interface import Bindings
from runtime.matching.reference import positions_of
from runtime.results.for_users import plain_value
from runtime.timestamps import format_time
from runtime.why.answers import Awaited, Candidate, Change, EventAt, Explanation, Other, Reason, Side, Status
from runtime.why.changes import LeastChange
from runtime.why.clauses import Clause, What
from runtime.why.history import KeyHistory, KeyValues, key_history, rows_of_key
from runtime.why.other_runs import OtherRuns, near_keys, with_near_keys
from runtime.why.reasons import SECOND, Reasons, filter_sides, moment_text, nearness, place_text, short_time, sides_text
from runtime.why.records import Table, event_of_row, record_at
from runtime.why.searching import Matchers, Near, Searching

MOST_SHOWN = 5
"""Candidates of one event, and other candidates of a match, that are shown."""

MOST_LATER = 40
"""So many events behind one are looked at as the latest of a candidate with it."""


def named_key(query: QueryPlan, key: KeyValues) -> dict[str, Any]:
    """A key by its names."""
    cells = key_cells(query, [cell.as_py() for cell in key])
    return {name: plain_value(cell) for name, cell in zip(query.key_names, cells, strict=True)}


class Explainer:
    """Explains the events of one key of a query."""

    def __init__(self, table: Table, query: QueryPlan, key: KeyValues, matchers: Matchers | None = None) -> None:
        """matchers: as of `Searching`"""
        self.table, self.query, self.key = table, query, key
        self.own = rows_of_key(table.plan, query, table.records, key, table.have_key(query, key) if key else None)
        self.history: KeyHistory = key_history(table.plan, query, self.own, key, table.ending)
        self.searching = Searching(self.history, matchers)
        self.words = Reasons(self.searching, table.row_of)
        self.others = OtherRuns(self.history, self.own, table.records, table.ending, table.row_of, table.rewritten_as)
        self.changes = LeastChange(self.searching, self.others.gives, table.rewritten_as)
        self.named = named_key(query, key)
        self._nears: dict[int, list[Near]] = {}

    def nothing(self, reason: Reason) -> Explanation:
        """There is no event to explain."""
        return self._of(Status.NOT, reason.says, reason=reason)

    def _of(self, status: Status, says: str, **more: Any) -> Explanation:
        return Explanation(status, self.query.name, self.query.instance, self.named, says, **more)

    # A record.

    def record(self, row: int) -> list[Explanation]:
        """What became of a record of the key; of what refused it in one role only, too."""
        position = self.history.places.get(self.table.place(row))
        served = () if position is None else self.history.events.inputs_at(position)
        refused = Unreleased(self).explanations(row, served)
        return refused if position is None else [self.at(position), *refused]

    def latest_record(self, row: int) -> list[Explanation]:
        """Why a match ends with a record of the key, or why none does; else what became of it."""
        position = self.history.places.get(self.table.place(row))
        if position is None or not self.searching.may_end(position):
            return self.record(row)
        return [self.explanation(position)]

    def refusal(self, row: int, item: int) -> Explanation:
        """What refused a record of the key as an event of an input; -1 = the first of its type."""
        return Unreleased(self).explanation(row, 0 if item < 0 else int(layer_of_inputs(self.query)[item]))

    def at(self, position: int) -> Explanation:
        """What became of a released event."""
        if self.searching.may_end(position):
            explanation = self.explanation(position)
            if explanation.status is not Status.NOT:
                return explanation
            return self.as_member(position) or explanation
        return self.as_member(position) or self.awaited_member(position)

    def as_member(self, position: int) -> Explanation | None:
        """The match that an event is part of, apart from those that it ends; None = none."""
        for latest in self.history.found.latest_with(position):
            if latest != position:
                explanation = self.explanation(latest)
                if explanation.status in (Status.MATCHED, Status.NOT_YET):
                    return explanation
        return None

    def awaited_member(self, position: int) -> Explanation:
        """An event with which no match ends: the nearest candidates that it is part of."""
        life, found = self.history.life(position), list[tuple[float, Candidate]]()
        end = min(life.stop, position + MOST_LATER + 1)
        if end < life.stop:
            self.searching.limited(f"only the {MOST_LATER} events behind one were looked at as the end of its match")
        for latest in range(position + 1, end):
            if self.searching.may_end(latest):
                found += [
                    (value, candidate)
                    for value, candidate in self.candidates(latest)
                    if self.words.at(position).place in [event.place for event in candidate.events]
                ]
        names = " or ".join(self._names_of(position)) or "no name of the pattern"
        event = self.words.at(position)
        if found:
            found.sort(key=lambda item: item[0])
            says = f"it is part of no match; it could be {names}: {found[0][1].reason.says}"
            return self._of(Status.NOT, says, event=event, candidates=tuple(item for _, item in found[:MOST_SHOWN]))
        missing = "which did not come" if end == life.stop else f"which none of the {MOST_LATER} behind it is"
        says = f"it is part of no match; it could be {names}, and a match ends with a later event, {missing}"
        return self._of(Status.NOT, says, event=event, reason=Reason(str(What.NEVER_CAME), "", says))

    def _names_of(self, position: int) -> list[str]:
        served = self.history.events.inputs_at(position)
        return [f"`{term.name}`" for term in self.query.terms if term.input in served]

    # An event as the latest one.

    def explanation(self, latest: int, match_id: str | None = None) -> Explanation:
        """Why a match ends with this event, or why none does."""
        event = self.words.at(latest)
        if latest in self.history.errors:
            reason = Reason(str(What.LIMIT), "", self.history.errors[latest])
            return self._of(Status.NOT, reason.says, event=event, reason=reason)
        bound = self._bound(latest, match_id)
        if bound is None or next(self.searching.ended_by(latest, bound), None) is not None:
            return self._missed(latest, event)
        given = self.history.given.of(latest, bound)
        if given:
            chosen = next((row for row in given if row["match_id"] == match_id), given[0])
            return self._matched(latest, bound, chosen, event)
        return self._not_given(latest, bound, event)

    def _bound(self, latest: int, match_id: str | None) -> Bindings | None:
        """What the search finds; of a `find all` what was given out, if that was not."""
        winner, given = self.searching.winner(latest), self.history.given
        if winner is None or not self.query.finds_all or (match_id is None and given.of(latest, winner)):
            return winner
        for bound in reversed(self.history.found.at(latest)):
            if any(match_id in (None, row["match_id"]) for row in given.of(latest, bound)):
                return bound
        return winner

    def _matched(self, latest: int, bound: Bindings, given: dict[str, Any], event: EventAt) -> Explanation:
        events = self.words.events_of(bound)
        if self.query.every is not None:
            count = sum(1 for _ in self.searching.candidates(latest))
            place = place_text(event.row, event.place)
            says = f"matched: {counted(count, 'candidate')} in the windows together, with {event.event} of {place}"
        else:
            says = f"matched: {', '.join(_short(item) for item in events)}"
        return self._of(
            Status.MATCHED,
            says,
            event=event,
            match_id=given["match_id"],
            events=events,
            conditions=self.words.checked(latest, bound),
            others=() if self.query.every is not None else self._others(latest, bound),
        )

    def _others(self, latest: int, bound: Bindings) -> tuple[Other, ...]:
        found = list[Other]()
        for other in self.searching.candidates(latest, most=MOST_SHOWN * 10):
            if dict(other) == dict(bound):
                continue
            found.append(Other(self.words.events_of(other), self._more_recent(bound, other)))
        return tuple(found[:MOST_SHOWN])

    def _more_recent(self, bound: Bindings, other: Bindings) -> str:
        """Why a match is more recent than another candidate."""
        own, its = (sorted(positions_of(item), reverse=True) for item in (bound, other))
        for mine, theirs in zip(own, its, strict=False):
            if mine != theirs:
                newer = max(mine, theirs)
                shown = self.words.at(newer, bound if newer == mine else other)
                return (
                    f"the match has {_short(shown)} instead, which is newer"
                    if newer == mine
                    else "another match has it"
                )
        if len(own) != len(its):
            return "the match binds more events"
        return "the same events, bound to other names"

    def _with_change(self, candidate: Candidate, latest: int) -> Candidate:
        """With the least change that lets it be a match, where one of one setting does."""
        near = next((item for item in self.nears(latest) if self.words.reason(item, latest) == candidate.reason), None)
        change = None if near is None else self.changes.of(near, latest)
        return candidate if change is None else replace(candidate, change=change)

    def _missed(self, latest: int, event: EventAt, *, with_changes: bool = True) -> Explanation:
        ranked = sorted(self.candidates(latest), key=lambda item: item[0])
        candidates = tuple(candidate for _, candidate in ranked[:MOST_SHOWN])
        if with_changes:
            candidates = tuple(self._with_change(candidate, latest) for candidate in candidates)
        if all(candidate.reason.what != What.KEY for candidate in candidates):
            candidates = tuple(map(self._with_near_keys, candidates))
        if not candidates:
            says = f"{_short(event)} completes no match"
            return self._of(Status.NOT, says, event=event, reason=Reason(str(What.NEVER_CAME), "", says))
        return self._of(
            Status.NOT, candidates[0].reason.says, event=event, candidates=candidates, reason=candidates[0].reason
        )

    def _with_near_keys(self, candidate: Candidate) -> Candidate:
        """With the keys under which what never came may have come."""
        if candidate.reason.what != What.NEVER_CAME:
            return candidate
        return replace(candidate, reason=with_near_keys(candidate.reason, self.query, self.near))

    @cached_property
    def near(self) -> Sequence[str]:
        """Keys that are nearly this one."""
        return near_keys(self.table.plan, self.query, self.table.records, self.table.kinds, self.key)

    def candidates(self, latest: int) -> list[tuple[float, Candidate]]:
        """What came nearest with this event as the latest, each with how near it is."""
        found = list[tuple[float, Candidate]]()
        for near in self.nears(latest):
            reason = self.words.reason(near, latest)
            candidate = Candidate(self.words.events_of(near.bound), reason, near.is_whole)
            further = 0.0 if near.is_whole else 10.0 - len(positions_of(near.bound)) / 1_000
            found.append((further + nearness(reason, self._lengths), candidate))
        if not any(candidate.is_whole for _, candidate in found):
            found += [(1.0, candidate) for candidate in self.others.candidates(latest)]
        return found

    def nears(self, latest: int) -> list[Near]:
        """The same as the search has it."""
        if latest not in self._nears:
            self._nears[latest] = self.searching.by_one_clause(latest) or self.searching.dead_ends(latest)[:MOST_SHOWN]
        return self._nears[latest]

    def nearness(self, latest: int) -> float | None:
        """How near the nearest candidate is; None = there is a match."""
        bound = self._bound(latest, None)
        if bound is not None and next(self.searching.ended_by(latest, bound), None) is None:
            if self.history.given.of(latest, bound):
                return None
            return -1.0 if self.explanation(latest).status is Status.NOT_YET else 0.0
        return min((value for value, _ in self.candidates(latest)), default=99.0)

    @cached_property
    def _lengths(self) -> dict[str, float]:
        """By clause, what is allowed, in seconds."""
        found = {}
        for index, item in enumerate(self.query.inputs):
            if item.within is not None:
                found[Clause(What.WINDOW, index).text(self.query)] = known(item.within) / SECOND
            if item.retain is not None:
                found[Clause(What.RETAIN, index).text(self.query)] = float(known(item.retain))
        for index, condition in enumerate(self.query.conditions):
            length = getattr(condition, "duration", None)
            if length is not None:
                found[Clause.of_condition(self.query, index).text(self.query)] = known(length) / SECOND
        return found

    # A candidate that holds, and was not given out.

    def _not_given(self, latest: int, bound: Bindings, event: EventAt) -> Explanation:
        events = self.words.events_of(bound)
        wait, definitive = self.searching.wait, self.history.definitive
        if wait is not None:
            due = self.searching.events[latest].time + wait
            if definitive is None or definitive < due:
                says = f"the match waits until {moment_text(due)} for what its trailing wait forbids"
                return self._of(
                    Status.NOT_YET, says, event=event, events=events, awaited=self.awaited("the end of its wait", due)
                )
        if self.query.every is not None and self.query.every.having:
            reason = self.words.having(latest)
            return self._of(Status.NOT, reason.says, event=event, events=events, reason=reason)
        if self.query.at_most is not None:
            reason = self._suppressed(latest)
            return self._of(Status.NOT, reason.says, event=event, events=events, reason=reason)
        says = "the match was found, and not given out: what it selects fails, or another text of the query gave it"
        return self._of(Status.NOT, says, event=event, events=events, reason=Reason("error", "", says))

    def _suppressed(self, latest: int) -> Reason:
        limit = self.query.at_most
        assert limit is not None, "it has suppressed a match"
        length, time = known(limit.duration), self.searching.events[latest].time
        values = ", ".join(expression_text(value, Names.of(self.query)) for value in limit.values)
        text = f"at most {limit.count} per {duration_text(length)}" + (f" by {values}" if values else "")
        of_values = f" with equal {values}" if values else ""
        says = f"suppressed by `{text}`: so many matches{of_values} were given in the {duration_text(length)} before it"
        rows = [row for row in self.history.given.between(time - length, time) if self._is_of_key(row)]
        if rows and not values and self.query.trailing is None:  # else it may be another one
            last = max(rows, key=lambda row: micros(row["time"]))
            says += f", the last of them match {last['match_id']} of {moment_text(micros(last['time']))}"
        return Reason(str(What.SUPPRESSED), text, says)

    def _is_of_key(self, row: dict[str, Any]) -> bool:
        """Whether a match is of the key: records may have others in other roles."""
        return {name: plain_value(value) for name, value in (row["key"] or {}).items()} == self.named

    def awaited(self, what: str, due: int) -> Awaited:
        """What a match, or an event that is held, waits for."""
        history = self.history
        clock = history.clock
        held, delay = self._held_by(clock)
        latest = None if delay is None else format_time(due + delay)
        return Awaited(
            what=what,
            due=format_time(due),
            watermark=None if history.definitive is None else format_time(history.definitive),
            held_by=held,
            latest=latest,
            setting=_GOES_ON,
        )

    def _held_by(self, clock: int | None) -> tuple[str, int | None]:
        """What holds the watermark back, and how far it may be behind the clock, µs."""
        if clock is None:
            return "there are no records", None
        reached: list[tuple[int, str, int | None]] = []
        for index, item in enumerate(self.query.inputs):
            if item.policy is not None and not item.policy.is_per_key:
                length = item.policy.max_delay
                bound = self.history.definitive if self.history.definitive is not None else clock
                reached.append((bound, f"the ordering `{item.policy.name}` of {item.name}", length))
            elif item.wait is None:
                reached.append((clock, f"the clock, that is the last record, {moment_text(clock)}", 0))
            else:
                wait = known(item.wait)
                own = self.history.bounds.get(index, NO_TIME)
                by_clock = clock - wait
                why = f"its newest event of this key is of {moment_text(own)}" if own > by_clock else "none is newer"
                text = f"the wait of {item.name}, {duration_text(wait)}, behind the clock {moment_text(clock)}; {why}"
                reached.append((max(own, by_clock), text, wait))
        least = min(reached, key=lambda item: item[0])
        delays = [length for _, _, length in reached]
        longest = None if None in delays else max((length for length in delays if length is not None), default=0)
        return least[1], longest


_GOES_ON = "a replay without `--no-flush`; in a job a later record, a heartbeat or `idle`"


def _short(event: EventAt) -> str:
    return f"{event.name or event.event} ({place_text(event.row, event.place)})"


def micros(moment: Any) -> int:
    """A timestamp of a table, µs."""
    return int(pa.scalar(moment, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py())


class Unreleased:
    """What became of records that were not released to a query."""

    def __init__(self, explainer: Explainer) -> None:
        self._explainer = explainer
        self._table, self._query = explainer.table, explainer.query

    def explanations(self, row: int, served: Sequence[int] = ()) -> list[Explanation]:
        """What became of a record that was not released, as each of its inputs with this key.

        served: the inputs that it was released to: then what refused its time in others counts
        """
        selectors = Selector(self._table.plan, self._query).layers
        kind = self._table.kinds[row : row + 1]
        inputs = [int(selector.input_of(kind)[0]) for selector in selectors]
        if len(selectors) == 1 or max(inputs) < 0:
            return [] if served else [self.explanation(row)]
        own = [
            (layer, item)
            for layer, item in enumerate(inputs)
            if item >= 0 and item not in served and self._table.has_key(self._query, row, layer, self._explainer.key)
        ]
        if served:
            refused = self._explainer.history.refused.get(self._table.place(row), {})
            own = [(layer, item) for layer, item in own if item in refused]
        return [self.explanation(row, layer) for layer, _ in own]

    def explanation(self, row: int, layer: int = 0) -> Explanation:
        """What became of a record that was not released, as an event of the input of a layer."""
        query, plan, event = self._query, self._table.plan, record_at(self._table, row)
        one, kind = self._table.records.slice(row, 1), self._table.kinds[row : row + 1]
        selector = Selector(plan, query).layers[layer]
        selection, item = selector.select(one, kind), int(selector.input_of(kind)[0])
        outcome = Outcome(int(selection.outcome[0]))
        if outcome is not Outcome.USED:
            return unselected(self._table, query, row, outcome, self._explainer.named, item)
        time, own = int(selection.time[0]), query.inputs[item]
        discarded = self._explainer.history.refused.get(self._table.place(row), {}).get(item)
        if discarded is not None:
            return self._discarded(row, event, discarded, item)
        definitive = self._explainer.history.definitive
        moment = (
            int(self._table.records.column("_arrival")[row].as_py()) if time == NO_TIME or own.wait is None else time
        )
        if definitive is None or moment > definitive or own.new is None:
            says = f"held until time is definitive: the watermark has to reach {moment_text(moment)}"
            awaited = self._explainer.awaited("definitive time", moment)
            return self._of(Status.NOT_YET, says, event, awaited=awaited)
        return self._not_new(row, event, item)

    def _of(self, status: Status, says: str, event: EventAt, **more: Any) -> Explanation:
        query = self._query
        return Explanation(status, query.name, query.instance, self._explainer.named, says, event=event, **more)

    def _discarded(self, row: int, event: EventAt, discarded: dict[str, Any], item: int) -> Explanation:
        word = discarded["reason"]
        arrival = int(self._table.records.column("_arrival")[row].as_py())
        times = [micros(discarded[name]) for name in ("source_time", "bound")]
        time, bound = times
        own, by = self._query.inputs[item], None
        change: Change | None = None
        if word == Outcome.EARLY.word:
            by = (time - bound) / SECOND
            says = f"it is {duration_text(time - arrival)} ahead of its arrival, {duration_text(time - bound)} too far"
        elif word in (Outcome.LATE.word, Outcome.OUT_OF_ORDER.word):
            by = (bound - time) / SECOND
            behind = f"it is of {moment_text(time)} and arrived {duration_text(arrival - time)} later"
            says = f"{behind}; by then the bound was {moment_text(bound)}, {duration_text(bound - time)} after it"
            if word == Outcome.OUT_OF_ORDER.word and not own.out_of_order and own.policy is None:
                says += ": a newer event of the key had been admitted"
            change = self._explainer.others.admitting(self._table.place(row), item, arrival - time)
        else:
            says = f"discarded: {word}"
        text = Clause(What.LATE, item).text(self._query)
        says = f"{as_role(self._query, item)}{says}"
        reason = Reason(word, text if own.wait is not None else "", says, by=by)
        latest = self._explainer.others.if_admitted(self._table.place(row), item)
        candidates = () if latest is None else (latest,)
        return self._of(Status.REFUSED, f"{word}: {says}", event, reason=reason, change=change, candidates=candidates)

    def _not_new(self, row: int, event: EventAt, item: int) -> Explanation:
        new = self._query.inputs[item].new
        assert new is not None, "its input has `new by`"
        values = ", ".join(expression_text(part, INPUT_NAMES) for part in new.values)
        length = duration_text(known(new.within))
        first = self._explainer.others.first_of_values(self._table.place(row), item)
        since = "" if first is None else f"; {_short(first)} of {short_time(first.time or '')} had the same values"
        says = (
            f"{as_role(self._query, item)}not new: an event of equal {values} came less than {length} before it{since}"
        )
        reason = Reason(str(What.NOT_NEW), f"new by {values} within {length}", says, event=first)
        return self._of(Status.NOT, says, event, reason=reason)


def as_role(query: QueryPlan, item: int) -> str:
    """Before what is said of a record whose type is several inputs: the role that it is about."""
    own = query.inputs[item]
    return f"as `{own.name}`: " if own.event in query.shared_types else ""


def unselected(
    table: Table, query: QueryPlan, row: int, outcome: Outcome, named: dict[str, Any], item: int = -1
) -> Explanation:
    """What became of a record that the query does not select, or that has not got a key.

    item: as an event of this input; -1 = of the first one of its type, if there is one
    """
    event = record_at(table, row)
    status, clause = Status.REFUSED, ""
    sides: tuple[Side, ...] = ()
    match outcome:
        case Outcome.FILTERED:
            if item < 0:
                item = next(index for index, own in enumerate(query.inputs) if own.event == event.event)
            condition = query.inputs[item].filter
            assert condition is not None, "its filter has refused it"
            sides = filter_sides(condition, event_of_row(table, row), PlanWorld(table.plan, query))
            clause = Clause(What.FILTER, item).text(query)
            status, says = Status.NOT, f"the filter of {query.inputs[item].name} refused it: {sides_text(sides)}"
        case Outcome.UNRELATED:
            status, says = Status.NOT, f"query {query.name} does not read events of type {event.event}"
        case Outcome.NULL_KEY:
            missing = [name for name, column in _key_cells(table, query, row).items() if column is None]
            names = ", ".join(missing)
            says = f"it has no key: {names} is null; with `key {names}?` events without one are together"
        case Outcome.NULL_TIME:
            says, sides = _without_time(table, query, row, item)
        case Outcome.MALFORMED | Outcome.MALFORMED_FILE:
            says = f"it cannot be read: {event.text}"
        case Outcome.UNKNOWN_TYPE:
            types = [item.name for item in table.plan.events]
            says = f"no query knows the event type {event.event!r}{did_you_mean(event.event, types)}"
        case _:
            status, says = Status.NOT, f"it is not an event of the query ({outcome.word})"
    reason = Reason(outcome.word, clause, says, sides)
    return Explanation(status, query.name, query.instance, named, says, event=event, reason=reason)


def _without_time(table: Table, query: QueryPlan, row: int, item: int) -> tuple[str, tuple[Side, ...]]:
    """What its field or action gives in place of a time: nothing, or a number that is not one."""
    if item < 0:
        event = table.plan.events[int(table.kinds[row])].name
        item = next(index for index, own in enumerate(query.inputs) if own.event == event)
    time_from = query.inputs[item].time_from
    sides = () if time_from is None else filter_sides(time_from, event_of_row(table, row), PlanWorld(table.plan, query))
    if not sides or sides[0].value is None:
        return "it has no source time, and its input asks for one", ()
    return f"its source time is not in the years 1 to 9999: {sides_text(sides)}; it counts in seconds since 1970", sides


def _key_cells(table: Table, query: QueryPlan, row: int) -> dict[str, Any]:
    return dict(zip(query.key_names, table.key_cells(query, row), strict=True))
