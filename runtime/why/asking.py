"""Ask a table why a match came, or did not: by match, by key and time, by row, by nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.errors import InputError, counted, did_you_mean
from querylang.plan.model import QueryPlan
from querylang.plan.routing import taken_types
from runtime.admission import Outcome, Selection, Selector, of_layers
from runtime.column_types import Integers
from runtime.columns.keys import GivenKey, keys_of_layer, number_keys
from runtime.instants import NO_TIME
from runtime.timestamps import format_time, parse_time
from runtime.why.answers import Explanation, Reason, Status
from runtime.why.clauses import What
from runtime.why.explaining import MOST_SHOWN, Explainer, named_key, unselected
from runtime.why.history import KeyValues, results_over
from runtime.why.other_runs import near_keys, with_near_keys
from runtime.why.reasons import moment_text
from runtime.why.records import Table
from runtime.why.searching import Matchers
from runtime.why.text import Why

MOST_EVENTS = 20
"""Events of one key that are explained for one moment or row."""

MOST_ROUTED = 5
"""Keys of routed events that are looked at; for each of them all queries run over all records."""

MOST_KEYS, MOST_SEARCHED = 20, 100
"""Keys and events in which the nearest misses of a whole table are looked for."""

LEAST_SEARCHED, MOST_IN_WINDOWS = 20, 20_000
"""Fewer events, but so many, where their windows together hold more events than this."""


_DAY = 86_400_000_000
"""µs."""

_TIME_OF_DAY = re.compile(r"\d{1,2}:\d\d(:\d\d([.,]\d+)?)?")

_RANKED = (Status.MATCHED, Status.NOT_YET, Status.NOT, Status.REFUSED)
"""The order of answers about one record."""


class Asking:
    """Answers questions about one table."""

    def __init__(self, table: Table, matchers: dict[str, Matchers] | None = None) -> None:
        """matchers: by query, those of other tables; gets those that are made here"""
        self.table = table
        self._explainers: dict[tuple[str, tuple[Any, ...]], Explainer] = {}
        self._matchers = {} if matchers is None else matchers
        self._asked: dict[int, Explainer] = {}
        self._remarks: list[str] = []

    def _why(self, question: str, answers: Iterable[Explanation]) -> Why:
        """The answers to a question, with what was not looked at for them."""
        found = tuple(answers)
        limits = [explainer.searching.limits for explainer in self._asked.values()]
        why = Why(question, found, tuple(dict.fromkeys(chain(self._remarks, *limits))))
        self._asked, self._remarks = {}, []
        return why

    def explainer(self, query: QueryPlan, key: KeyValues) -> Explainer:
        """What explains the events of a key."""
        name = query.title, tuple(map(str, key))
        if name not in self._explainers:
            matchers = self._matchers.setdefault(query.title, Matchers())
            self._explainers[name] = Explainer(self.table, query, key, matchers)
        explainer = self._explainers[name]
        self._asked[id(explainer)] = explainer
        return explainer

    # By match.

    def match(self, row: dict[str, Any], query: QueryPlan) -> Why:
        """Why a match came; `row`: of the table of its query."""
        key = _key_of_match(self.table, query, row)
        explainer = self.explainer(query, key)
        latest = explainer.history.given.position_of(row)
        if latest is None:
            raise InputError(f"match {row['match_id']}: its events are not in these tables")
        return self._why(f"match {row['match_id']}", [explainer.explanation(latest, match_id=row["match_id"])])

    # By key and time.

    def moment(self, text: str) -> int:
        """A moment as users write it, µs; a time without a day is of the day of the records.

        Raises InputError for anything else, and where the records are of several days.
        """
        try:
            micros = parse_time(text)
        except InputError as error:
            raise InputError(f"at: {error}") from None
        arrival = self.table.records.column("_arrival").to_numpy()
        if not _TIME_OF_DAY.fullmatch(text.strip()) or not len(arrival):
            return micros
        first, last = (int(end) // _DAY for end in (arrival.min(), arrival.max()))
        if first <= 0 <= last:
            return micros
        if first == last:
            return first * _DAY + micros
        days = [format_time(day * _DAY)[:10] for day in (first, last)]
        raise InputError(f"at: {text!r} has no day, and the records are of {days[0]} to {days[1]}: `{days[0]}T{text}`")

    def key(self, given: GivenKey | None, at: int | None, queries: Sequence[QueryPlan], question: str) -> Why:
        """What became of a key's events at a moment, µs; None = the last of them.

        given: None = of all keys, with a moment
        """
        answers = list[Explanation]()
        for query in queries:
            if query.keys and given is None and at is not None:
                answers += self._of_moment(query, at)
                continue
            key = () if not query.keys else None if given is None else given.values_for(self.table.plan, query)
            if key is not None:
                answers += self._at(query, key, at)
        return self._why(question, answers)

    def _of_moment(self, query: QueryPlan, at: int) -> list[Explanation]:
        """What became of the records of exactly this moment, µs, whatever their keys are."""
        rows = self._rows_of(query, ())
        arrival, times = self._times(query, rows)
        chosen = rows[(arrival == at) | (times == at)]
        self._remark_of_moment(len(chosen))
        answers = [answer for row in chosen[-MOST_EVENTS:].tolist() for answer in self._record(query, row)]
        if answers:
            return answers
        says = "no record is of that moment; with a key, `--key`, its last record before that is explained"
        reason = Reason(str(What.NEVER_CAME), "", says)
        return [Explanation(Status.NOT, query.name, query.instance, {}, says, reason=reason)]

    def _times(self, query: QueryPlan, rows: Integers) -> tuple[Integers, Integers]:
        """When records arrived, and when they happened, µs; NO_TIME = nobody asks for that."""
        table = self.table
        happened = Selector(table.plan, query).source_times(table.records, table.kinds)
        return table.records.column("_arrival").to_numpy()[rows], happened[rows]

    def _remark_of_moment(self, count: int) -> None:
        if count > MOST_EVENTS:
            self._remarks.append(f"{count} records are from that moment; the last {MOST_EVENTS} are explained")

    def _at(self, query: QueryPlan, key: KeyValues, at: int | None) -> Iterator[Explanation]:
        rows = self._rows_of(query, key)
        if not len(rows) and self._is_fed(query):
            yield self._of_routed(query, key, at)
            return
        if not len(rows):
            yield self._no_records(query, key)
            return
        explainer = self.explainer(query, key)
        arrival, times = self._times(query, rows)
        if at is None:
            chosen = rows[-1:]
        else:
            chosen = rows[(arrival == at) | (times == at)]
            if not len(chosen):
                before = np.flatnonzero(np.where(times == NO_TIME, arrival, times) <= at)
                chosen = rows[before[-1:]]
        if not len(chosen):
            first = moment_text(int(arrival[0]))
            says = f"no record of this key is from that moment or before it; the first one arrived at {first}"
            yield explainer.nothing(Reason(str(What.NEVER_CAME), "", says))
            return
        self._remark_of_moment(len(chosen))
        for row in chosen[-MOST_EVENTS:].tolist():
            yield from explainer.record(row)

    def _rows_of(self, query: QueryPlan, key: KeyValues) -> Integers:
        """The records of a key that are events of the query's inputs."""
        table, plan = self.table, self.table.plan
        wanted = Selector(plan, query).input_of(table.kinds) >= 0
        if key:
            wanted &= table.have_key(query, key)
        return np.flatnonzero(wanted)

    # A query that others feed takes events that no table has.

    def _is_fed(self, query: QueryPlan) -> bool:
        """Whether other queries route events to a query."""
        routed = {event for item in self.table.plan.queries for event in item.routes}
        return not routed.isdisjoint(taken_types(query))

    def _of_routed(self, query: QueryPlan, key: KeyValues, at: int | None) -> Explanation:
        """The last routed event of a key up to a moment, µs; None = the last of all."""
        explainer = self.explainer(query, key)
        times = explainer.history.events.times
        count = len(times) if at is None else int(np.searchsorted(times, at, side="right"))
        if not count:
            says = "no event of this key was routed to the query" + ("" if at is None else " by then")
            return explainer.nothing(Reason(str(What.NEVER_CAME), "", says))
        return explainer.at(count - 1)

    def _routed_keys(self, query: QueryPlan) -> list[KeyValues]:
        """Keys of events that are routed to a query; the first few."""
        table, keys = self.table, dict[tuple[str, ...], KeyValues]()
        if not self._is_fed(query):
            return []
        for results in results_over(table.plan, query, table.records, table.ending):
            routed = results.routed
            if routed is None:
                continue
            kinds = routed.column("_kind").to_numpy().astype(np.int64)
            for layer, selector in enumerate(Selector(table.plan, query).layers):
                is_used = selector.select(routed, kinds).outcome == Outcome.USED
                own = routed.filter(pa.array(is_used)), kinds[is_used]
                columns = keys_of_layer(*own, table.plan, query, layer)
                for row in range(int(is_used.sum())):
                    key = tuple(column[row] for column in columns)
                    keys.setdefault(tuple(map(str, key)), key)
        if len(keys) > MOST_ROUTED:
            text = f"query {query.name}: {MOST_ROUTED} of {counted(len(keys), 'key')} of routed events were looked at"
            self._remarks.append(text)
        return list(keys.values())[:MOST_ROUTED]

    def _no_records(self, query: QueryPlan, key: KeyValues) -> Explanation:
        near = near_keys(self.table.plan, query, self.table.records, self.table.kinds, key)
        clause = f"key {', '.join(query.key_names)}"
        says, value = "no record has this key", key[0].as_py() if len(key) == 1 else None
        if isinstance(value, str) and "=" in value:
            says += f"; if `{value.partition('=')[0]}` is meant as its name: the key is called `{query.key_names[0]}`"
        reason = with_near_keys(Reason(str(What.KEY), clause, says), query, near)
        named, says = named_key(query, key), reason.says
        return Explanation(Status.NOT, query.name, query.instance, named, says, reason=reason)

    # By row.

    def row(
        self,
        number: int,
        source: str | None,
        queries: Sequence[QueryPlan],
        sources: Sequence[str],
        *,
        as_latest: bool = False,
    ) -> Why:
        """What became of a row, for each query that it may concern.

        as_latest: why a match ends with it or none does, though it is in a match that ends later
        """
        found = self.table.numbered(number, source)
        if not found and source is not None:
            names = {*sources, *self.table.records.column("_source").to_pylist()}
            if source not in names and source.rpartition("/")[0] not in names:
                raise InputError(f"there is no table '{source}'{did_you_mean(source, sources)}")
        if not found:
            raise InputError(f"there is no row {number}: the tables have {counted(len(self.table.rows), 'row')}")
        answers = [
            answer
            for row in found
            for query in queries
            if self._concerns(query, row)
            for answer in self._record(query, row, as_latest=as_latest)
        ]
        if not answers:
            answers = [answer for row in found for query in queries for answer in self._record(query, row)]
        return self._why(f"row {number}" + ("" if source is None else f" of {source}"), answers)

    def _concerns(self, query: QueryPlan, row: int) -> bool:
        kind = int(self.table.kinds[row])
        return kind < 0 or int(Selector(self.table.plan, query).input_of(np.array([kind]))[0]) >= 0

    def _record(self, query: QueryPlan, row: int, *, as_latest: bool = False) -> list[Explanation]:
        """What became of a record, in each of its keys: by its roles it may have several."""
        keys, answers = self.table.keys_of(query, row), list[Explanation]()
        if not keys:
            outcomes = Selector(self.table.plan, query).outcomes(
                self.table.records.slice(row, 1), self.table.kinds[row : row + 1]
            )
            return [unselected(self.table, query, row, Outcome(int(outcomes[0])), {})]
        for key in keys:
            explainer = self.explainer(query, key)
            answers += explainer.latest_record(row) if as_latest else explainer.record(row)
        return sorted(answers, key=lambda answer: _RANKED.index(answer.status))

    # By nothing: the nearest misses of the whole table.

    def nearest(self, queries: Sequence[QueryPlan], most: int = MOST_SHOWN) -> Why:
        """The nearest misses of each query, ranked."""
        found = [answer for query in queries for answer in self._nearest_of(query, most)]
        return self._why("the nearest misses", found)

    def _nearest_of(self, query: QueryPlan, most: int) -> list[Explanation]:
        table, plan = self.table, self.table.plan
        selections = [each.select(table.records, table.kinds) for each in Selector(plan, query).layers]
        keys = self._busiest(query, selections) or self._routed_keys(query)
        if not keys:
            return [self._without_events(query, of_layers(np.array([each.outcome for each in selections])))]
        del selections  # they are of all records
        ranked: list[tuple[float, int, Callable[[], Explanation]]] = []
        each, searched, possible = max(1, MOST_SEARCHED // len(keys)), 0, 0
        for key in keys:
            explainer = self.explainer(query, key)
            ends = explainer.searching.ends
            possible += len(ends)
            asked = min(len(ends), each)
            if asked:
                in_window = explainer.searching.search(int(ends[-1])).in_window
                least, room = LEAST_SEARCHED // len(keys), MOST_IN_WINDOWS // len(keys) // len(in_window)
                asked = min(asked, max(1, least, room))
            chosen = ends[np.linspace(0, len(ends) - 1, asked).astype(np.int64)]
            searched += len(chosen)
            explainer.searching.search_all(chosen.tolist())
            for latest in chosen.tolist():
                near = explainer.nearness(latest)
                if near is not None:
                    ranked.append((near, len(ranked), partial(explainer.explanation, latest)))
            refused = [(place, item) for place, own in explainer.history.refused.items() for item in own]
            if len(refused) > MOST_EVENTS:
                self._remarks.append(f"of some keys only the first {MOST_EVENTS} refused records were looked at")
            for place, item in refused[:MOST_EVENTS]:
                row = table.row_at(place)
                if row is not None and explainer.others.if_admitted(place, item) is not None:
                    ranked.append((1.0, len(ranked), partial(explainer.refusal, row, item)))
            if not len(ends):
                ranked.append((9.0, len(ranked), partial(self._without_end, explainer)))
        ranked.sort(key=lambda item: item[:2])
        if searched < possible or len(keys) == MOST_KEYS:
            what = (
                f"{counted(searched, 'event')} of {counted(len(keys), 'key')}"
                if query.keys
                else counted(searched, "event")
            )
            says = f"query {query.name}: {what} were searched, not all; name a key, `--key`, for the others"
            self._remarks.append(says)
        if not ranked:
            says = f"each of the {counted(searched, 'event')} that were searched completes a match"
            return [Explanation(Status.MATCHED, query.name, query.instance, {}, says)]
        return [explained() for _, _, explained in ranked[:most]]

    def _busiest(self, query: QueryPlan, selections: Sequence[Selection]) -> list[KeyValues]:
        """The keys with events of the most inputs, then with the most events."""
        table, layers = self.table, [np.flatnonzero(each.outcome == Outcome.USED) for each in selections]
        inputs = np.concatenate([each.input[own] for each, own in zip(selections, layers, strict=True)])
        if not len(inputs):
            return []
        if not query.keys:
            return [()]
        parts = zip(*table.keys(query), strict=True)
        columns = [
            pa.concat_arrays([column.take(pa.array(own)) for column, own in zip(part, layers, strict=True)])
            for part in parts
        ]
        numbers, count = number_keys(columns, len(inputs))
        events = np.bincount(numbers, minlength=count)
        kinds = np.zeros(count, np.int64)
        for item in range(len(query.inputs)):
            kinds += np.bincount(numbers[inputs == item], minlength=count) > 0
        first = np.full(count, -1, np.int64)
        first[numbers[::-1]] = np.arange(len(inputs))[::-1]
        order = np.lexsort([first, -events, -kinds])[:MOST_KEYS]
        return [tuple(column[int(first[number])] for column in columns) for number in order.tolist()]

    def _without_end(self, explainer: Explainer) -> Explanation:
        query = explainer.history.query
        starts = query.automaton.states[0].transitions
        names = " or ".join(dict.fromkeys(f"`{query.terms[term].name}`" for item in starts for term in item.binds))
        types = " or ".join(dict.fromkeys(query.inputs[number].name for item in starts for number in item.inputs))
        says = f"no {types} came that could be {names}, with which a match ends"
        return explainer.nothing(with_near_keys(Reason(str(What.NEVER_CAME), "", says), query, explainer.near))

    def _without_events(self, query: QueryPlan, outcome: NDArray[Any]) -> Explanation:
        """No record is an event of the query: what became of them."""
        values, counts = np.unique(outcome, return_counts=True)
        parts = [
            f"{count} {Outcome(value).word}" for value, count in zip(values.tolist(), counts.tolist(), strict=True)
        ]
        types = ", ".join(dict.fromkeys(item.event for item in query.inputs))
        says = f"no record is an event that the query takes ({types}): {', '.join(parts) or 'there are no records'}"
        first = np.flatnonzero(outcome == values[np.argmax(counts)])[:1] if len(counts) else np.empty(0, np.int64)
        if len(first):
            one = self._record(query, int(first[0]))[0]
            return replace(one, says=f"{says}; the first: {one.says}")
        return Explanation(
            Status.NOT, query.name, query.instance, {}, says, reason=Reason(str(What.NEVER_CAME), "", says)
        )


def _key_of_match(table: Table, query: QueryPlan, row: dict[str, Any]) -> KeyValues:
    if not query.keys:
        return ()
    given = GivenKey(row["key"]).values_for(table.plan, query)
    assert given is not None, "a match has a key of its query"
    return given
