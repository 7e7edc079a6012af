"""What `why` says is true: tried with the engine, on thousands of small random streams, queries and rule books.

A stream is asked a few questions, drawn at random: about an event that may end a match, and about a match.
`--streams N` asks twenty times as many streams, `--streams-seed S` others than those of every day.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ensue.answer import Replay
from ensue.asking_why import rewritten_as, table_of
from ensue.data_options import DataOptions
from ensue.embedded import ToReplay, read
from querylang.plan.model import ACCEPT, Condition, Gap, Input, QueryPlan, Within, known
from querylang.source import Source
from runtime.columns.arrivals import Arrivals
from runtime.matching.interface import Bindings
from runtime.matching.reference import positions_of
from runtime.replay import Records
from runtime.replay.replay import measured_replay
from runtime.results.for_users import plain_value
from runtime.why import Change, Explanation, Status, history
from runtime.why.asking import Asking
from runtime.why.clauses import Clause, What, clauses_of, lifted
from runtime.why.explaining import Explainer
from runtime.why.searching import Matchers, Near, Searching
from tests.oracle.random_patterns import ALL, TODAY, Switches
from tests.oracle.random_queries import random_draw
from tests.oracle.random_roles import with_roles
from tests.oracle.random_streams import random_stream
from tests.oracle.running import records_of, text_of
from tests.support.books import book
from tests.support.books import rows as rows_of_book

KINDS: dict[str, Switches | None] = {
    "today": TODAY,
    "skip, find all, a wait that repeats": replace(TODAY, selects=True, skip=True, finds_all=True, repeated_wait=True),
    "repeats": replace(TODAY, repeats=True, groups=True, prev=True, folds=True),
    "all": ALL,
    "rule books": None,
}

SHARES = {"rule books": 1, "all": 4}
"""By kind, which share of twenty streams it is; 5 = it is not named."""

STREAMS = 6
"""So many streams are read by the queries of one draw, which are compiled once."""

APART = 1_000
"""Seconds from the beginning of one stream to that of the next; none is as long."""

LIFTED = (What.WINDOW, What.RETAIN, What.ORDER, What.WHERE, What.WITHIN, What.WITHOUT, What.WAIT)
"""Clauses that a plan can be without."""

SECOND = 1_000_000

Row = dict[str, Any]
Members = frozenset[tuple[str, int]]
"""Names of a match's events and their rows."""


@pytest.fixture(autouse=True)
def _in_small_pieces(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.ERROR, "ensue")
    monkeypatch.setattr(history, "AT_ONCE", 9)


# Streams.


@dataclass
class Stream:
    """A stream that was replayed, to be asked.

    name: says which it is
    first: how many rows of the table are before it
    tried: the queries before and after each change, by the number that stands for its text
    """

    name: str
    dice: random.Random
    replay: Replay
    asking: Asking
    rows: list[Row]
    first: int
    tried: list[tuple[QueryPlan, QueryPlan]]

    @cached_property
    def explainer(self) -> Explainer | None:
        """That of some query and some record's key; None = no record was drawn that has one."""
        query, row = self.dice.choice(self.replay.plan.queries), self.dice.randrange(len(self.rows))
        keys = self.asking.table.keys_of(query, row) or self.asking._routed_keys(query)
        return self.asking.explainer(query, self.dice.choice(keys)) if keys else None

    def with_text(self, change: Change) -> Change:
        """A change with the text of the query file."""
        assert self.replay.compiled is not None, "it comes from a text"
        return rewritten_as(self.replay.compiled, replace(change, query=""), *self.tried[int(change.query)])

    def found_by_text(self, text: str, title: str) -> list[Row]:
        """What an engine finds for a query of another text."""
        compiled = self.replay.compiled
        assert compiled is not None, "it comes from a text"
        plan = compiled.again([Source(compiled.queries.texts[0].path, text)])
        results, _ = measured_replay(plan, self.replay.records)
        return rows_of(results.matches.get(title))

    def given(self, query: QueryPlan) -> list[Row]:
        """The rows of a query's matches."""
        return rows_of(self.replay.results.matches.get(query.title))

    def found(self, query: QueryPlan, rows: Sequence[int] | None = None) -> list[Row]:
        """What an engine finds with another query in place of the one of its title; `rows`: only these."""
        records, plan = self.replay.records, self.replay.plan
        assert isinstance(records, Records), "the rows are in memory"
        if rows is not None:
            kept = np.isin(records.rows, rows)
            own = Arrivals(records.arrivals.table.filter(pa.array(kept)))
            records = replace(records, arrivals=own, rows=records.rows[kept])
        queries = tuple(query if item.title == query.title else item for item in plan.queries)
        results, _ = measured_replay(replace(plan, queries=queries), records)
        return rows_of(results.matches.get(query.title))


def rows_of(table: pa.Table | None) -> list[Row]:
    return [] if table is None else table.to_pylist(maps_as_pydicts="lossy")


def drawn(seed: int, switches: Switches | None) -> tuple[str, list[list[Row]]]:
    """A query, or a rule book, and rows of streams for it."""
    dice = random.Random(seed)
    if switches is None:
        program = book(dice)
        return program.text, [rows_of_book(dice, program.from_sources) for _ in range(STREAMS)]
    draw = random_draw(seed, switches, 1)
    queries = draw.queries if seed % 2 else tuple(with_roles(dice, query) for query in draw.queries)
    tables = [draw.rows, *(random_stream(dice, late=draw.late, nulls=True) for _ in range(STREAMS - 1))]
    return text_of(queries, late=draw.late), [records_of(rows) for rows in tables]


def streams(seed: int, kind: str) -> Sequence[Stream]:
    """Those of a draw, one after the other in one table: each has a replay of its own."""
    switches, found, matchers = KINDS[kind], list[Stream](), dict[str, Matchers]()
    text, tables = drawn(seed, switches)
    times = ("at", "ts", "w") if switches is None else ("at", "ts")  # rule books take times from `w`
    for number, table in enumerate(tables):
        for row in table:
            row |= {name: row[name] + number * APART for name in times}
    whole = read(text, [row for table in tables for row in table], DataOptions())
    records, first = whole.records, 0
    assert isinstance(records, Records), "the rows are in memory"
    for number, table in enumerate(tables):
        own = slice(first, first + len(table))
        part = Arrivals(records.arrivals.table.slice(first, len(table)))
        mine = replace(records, arrivals=part, rows=records.rows[own])
        found.append(stream(f"seed {seed}, stream {number}", whole, mine, table, first, matchers))
        first += len(table)
    return found


def stream(
    name: str, whole: ToReplay, records: Records, rows: list[Row], first: int, matchers: dict[str, Matchers]
) -> Stream:
    """matchers: by query, for all streams of a draw"""
    plan = whole.plan
    results, figures = measured_replay(plan, records)
    replay = Replay(plan, records, results, figures, None, flush=True, compiled=whole.compiled)
    tried = list[tuple[QueryPlan, QueryPlan]]()

    def numbered(change: Change, before: QueryPlan, after: QueryPlan) -> Change:
        tried.append((before, after))
        return replace(change, query=str(len(tried) - 1))

    asking = Asking(replace(table_of(replay), rewritten_as=numbered), matchers)
    return Stream(name, random.Random(name), replay, asking, rows, first, tried)


@pytest.fixture(scope="module", params=KINDS)
def asked_streams(request: pytest.FixtureRequest) -> Sequence[Stream]:
    """Those of a kind. All tests of it ask the same ones: their replays and explainers cost the most."""
    kind: str = request.param
    first = (request.config.getoption("--streams-seed") * len(KINDS) + [*KINDS].index(kind)) * 1_000_000
    draws = max(10, SHARES.get(kind, 5) * request.config.getoption("--streams") // STREAMS)
    return [asked for seed in range(first, first + draws) for asked in streams(seed, kind)]


def members(row: Row) -> Members:
    """Names and rows of a match's events, as tables have them."""
    each = ((name, item) for name, member in row["members"].items() for item in as_list(member))
    return frozenset((name, item["offset"]) for name, item in each)


def as_list(member: Any) -> list[Any]:
    return member if isinstance(member, list) else [member] if member is not None else []


# An event that may end a match.


def test_what_is_said_of_an_event_is_so(asked_streams: Sequence[Stream]) -> None:
    noted = Counter[str]()
    for asked in asked_streams:
        explainer = asked.explainer
        if explainer is None:
            continue
        ends = [at for at in range(len(explainer.history.events)) if explainer.searching.may_end(at)]
        for latest in asked.dice.sample(ends, min(ends_of(asked, explainer.query), len(ends))):
            try:
                noted.update(said_of(asked, explainer, latest))
            except AssertionError as error:
                raise AssertionError(f"{asked.name}, {explainer.query.name}, event {latest}") from error
    assert noted["matched"]
    assert noted["alone"], "something was the only reason"
    assert noted["change"]


def ends_of(asked: Stream, query: QueryPlan) -> int:
    """How many events are asked about: more of a trailing wait, which several conditions may end."""
    return asked.dice.choice((1, 1, 2) if query.trailing is None else (2, 3))


def said_of(asked: Stream, explainer: Explainer, latest: int) -> Iterator[str]:
    """What is checked of an explanation."""
    query = explainer.query
    answer = explainer.explanation(latest)
    assert answer.says
    ids = ids_with(explainer, asked.given(query), latest)
    if answer.status is Status.MATCHED:
        assert answer.match_id in ids
        yield "matched"
    elif query.every is None:
        assert not ids
        if answer.reason is not None and answer.reason.what == "error":  # then what it selects fails
            assert ids_with(explainer, asked.found(replace(query, selects=())), latest)
    if answer.status is not Status.NOT or answer.match_id is not None:
        return
    nears = explainer.nears(latest) if answer.candidates else []
    for near in nears:
        check_figures(explainer, near, latest)
    if nears and not any(near.is_whole for near in nears):
        furthest = Partial(explainer, latest).most
        assert all(len(positions_of(near.bound)) >= furthest for near in nears), "some candidate came further"
        yield "dead end"
    depends = query.skip is not None or query.every is not None  # other matches before it would skip other events
    whole = [near for near in nears if near.is_whole and near.clause.what in LIFTED]
    for near in asked.dice.sample(whole, min(1, len(whole))) if not depends else ():
        events = frozenset((event.name, event.offset) for event in explainer.words.events_of(near.bound))
        assert events not in map(members, asked.given(query))
        lifting = replace(lifted(query, near.clause), at_most=None)
        assert events in map(members, asked.found(lifting)), f"it is not for {near.clause} alone"
        yield "alone"
    for candidate in answer.candidates[:1]:
        if candidate.change is not None:
            check_change(asked, explainer, candidate.change, latest)
            yield "change"


def ids_with(explainer: Explainer, rows: Sequence[Row], latest: int) -> set[str]:
    """The matches of the explainer's key with this latest event; those of a `find every` have no events: all."""
    if explainer.query.every is not None:
        return {row["match_id"] for row in rows}
    positions = {event.place: at for at, event in enumerate(explainer.history.events)}
    found = set()
    for row in rows:
        key = {name: plain_value(value) for name, value in (row["key"] or {}).items()}
        each = [item for member in row["members"].values() for item in as_list(member)]
        own = [positions.get((item["source"], item["partition"], item["offset"]), -1) for item in each]
        if key == explainer.named and max(own) == latest:
            found.add(row["match_id"])
    return found


def check_figures(explainer: Explainer, near: Near, latest: int) -> None:
    """What is said of a candidate is what its events say."""
    query, events, reason = explainer.query, explainer.history.events, explainer.words.reason(near, latest)
    bound = sorted({at for places in near.bound.values() for at in places})
    match near.clause.what:
        case What.WINDOW | What.RETAIN | What.UNIQUE:
            assert near.position is not None, "an event has left its window"
            event, item = events[near.position], query.inputs[near.clause.index]
            newer = [at for at in range(near.position, latest + 1) if near.clause.index in events[at].inputs]
            assert near.clause.index in event.inputs
            if near.clause.what is What.WINDOW:
                assert item.within is not None
                assert reason.by == (events[latest].time - event.time - known(item.within)) / SECOND >= 0
            elif near.clause.what is What.RETAIN:
                assert item.retain is not None
                assert reason.by == len(newer) - known(item.retain) > 0
            else:
                assert item.unique
                assert reason.event is not None
                assert any(events[at].place == reason.event.place for at in newer[1:])
        case What.WITHIN:
            condition = query.conditions[near.clause.index]
            assert isinstance(condition, Within)
            assert reason.by is not None
            assert reason.by >= 0
            if condition.between is None and near.clause.index not in query.decided_late:
                span = events[bound[-1]].time - events[bound[0]].time
                assert reason.by == (span - known(condition.duration)) / SECOND
        case What.WAIT:
            assert reason.by is not None
            assert reason.by > 0
        case What.WITHOUT:
            assert reason.event is None or all(events[at].place != reason.event.place for at in bound)
        case What.ORDER if near.position is not None:
            assert events[near.position].number < events[bound[bound.index(near.position) + 1]].number - 1
        case What.NEVER_CAME:
            assert near.state is not None, "the search ended in a state"
            wanted = [set(item.inputs) for item in query.automaton.states[near.state].transitions]
            before = (explainer.history.life(latest).start, min(bound)) if bound else (latest, latest + 1)
            assert not any(inputs <= set(events[at].inputs) for at in range(*before) for inputs in wanted)


class Partial:
    """How many events are bound at most, by a search from an event on that is followed to all its ends."""

    def __init__(self, explainer: Explainer, latest: int) -> None:
        self._search, self._matcher = explainer.searching.search(latest), explainer.searching.matcher()
        self._visits, self.most = 0, 0
        self._follow(0, latest, {})

    def _follow(self, state: int, newest: int, bound: Bindings) -> None:
        self._visits += 1
        self.most = max(self.most, len(positions_of(bound)))
        for position in self._search.free if self._visits < MOST_FOLLOWED else ():
            if position > newest or (state == 0 and position < newest):
                continue
            for transition in chain(*self._matcher.transitions(state, self._search.in_window[position])):
                extended = self._search._consume(state, transition, position, newest, bound)
                if extended is not None and transition.target != ACCEPT:
                    self._follow(transition.target, position - 1, extended)


MOST_FOLLOWED = 500
"""Places of a search; so many are less than what `why` looks at."""

TEXTS = 0.25
"""Of changes, which share is looked for in the text of the queries, which takes long."""


def check_change(asked: Stream, explainer: Explainer, tried: Change, latest: int) -> None:
    """The least change, pasted into the text or not, gives the match, and a lesser one does not."""
    before, after = asked.tried[int(tried.query)]
    if asked.dice.random() < TEXTS:
        change = asked.with_text(tried)
        assert change.query, f"{change} has no text"
        found = asked.found_by_text(change.query, after.title)
    else:
        found = asked.found(after)
    assert ids_with(explainer, found, latest), tried
    less = lesser(before, after)
    if less is not None:
        assert not ids_with(explainer, asked.found(less), latest), f"less than {tried} is enough"


def lesser(before: QueryPlan, after: QueryPlan) -> QueryPlan | None:
    """A change that is a little less; None = there is none, or it is of a constant."""
    for index, (own, other) in enumerate(zip(before.inputs, after.inputs, strict=True)):
        if own.within != other.within or own.retain != other.retain:
            less = _lesser_window(own, other)
            return less and replace(after, inputs=(*after.inputs[:index], less, *after.inputs[index + 1 :]))
    for index, (was, now) in enumerate(zip(before.conditions, after.conditions, strict=True)):
        if was != now:
            shorter = _lesser_length(was, now)
            conditions = (*after.conditions[:index], shorter, *after.conditions[index + 1 :])
            return None if shorter is None else replace(after, conditions=conditions)
    return None


def _lesser_window(before: Input, after: Input) -> Input | None:
    if before.within is not None and after.within is not None and before.within != after.within:
        less = known(after.within) - second_of(known(after.within))
        return replace(after, within=less) if less > known(before.within) else None
    assert before.retain is not None, "a window was changed"
    assert after.retain is not None, "a window was changed"
    less = known(after.retain) - 1
    return replace(after, retain=less) if less > known(before.retain) else None


def _lesser_length(before: Condition, after: Condition) -> Condition | None:
    match before, after:
        case Within(duration=long), Within(duration=longer):
            less = known(longer) - second_of(known(longer))
            return replace(after, duration=less) if less > known(long) else None
        case Gap(duration=long), Gap(duration=shorter):
            less = known(shorter) + 1
            return replace(after, duration=less) if less < known(long) else None
    return None


def second_of(length: int) -> int:
    """What a length was rounded up to, µs."""
    return SECOND if length % SECOND == 0 else 1


# A match.


def test_a_match_is_explained_and_found_among_its_own_events_alone(asked_streams: Sequence[Stream]) -> None:
    count = 0
    for asked in asked_streams:
        matched = [(query, row) for query in asked.replay.plan.queries for row in asked.given(query)]
        for query, row in asked.dice.sample(matched, min(asked.dice.choice(MATCHES), len(matched))):
            (answer,) = asked.asking.match(row, query)
            assert (answer.status, answer.match_id) == (Status.MATCHED, row["match_id"]), asked.name
            if query.every is None:
                own = frozenset((event.name, event.offset) for event in answer.events)
                assert own == members(row), asked.name
                kept = [event.row for event in answer.events if event.row is not None]
                if kept and len(kept) == len(own):
                    # Another one may win, or have more names, where what a `without` has seen is not among them.
                    each = replace(query, finds_all=True, skip=None)
                    found = [*asked.found(query, kept), *asked.found(each, kept)]
                    assert any(own <= members(other) for other in found), f"{asked.name}, {answer}"
            count += 1
    assert count, "some query matches"


MATCHES = (0, 0, 1)
"""Of a stream, how many matches are asked about."""


# A whole table.


def test_many_searches_at_once_find_what_each_finds(asked_streams: Sequence[Stream]) -> None:
    count = 0
    for asked in asked_streams[::5]:
        explainer = asked.explainer
        ends = [] if explainer is None else explainer.searching.ends.tolist()
        if explainer is None or not ends:
            continue
        at_once, one_by_one = Searching(explainer.history), Searching(explainer.history)
        at_once.search_all(ends)
        for latest in asked.dice.sample(ends, min(5, len(ends))):
            for clause in (None, *clauses_of(explainer.query)):
                found = one_by_one.winner(latest, clause)
                assert at_once.winner(latest, clause) == found, f"{asked.name}, {latest}, {clause}"
                count += found is not None
    assert count


def test_a_lie_would_be_noticed() -> None:
    clause, nothing = Clause(What.WHERE), Members()
    asked = streams(1, "today")[0]
    query = asked.replay.plan.queries[0]
    if query.conditions:
        assert nothing not in map(members, asked.found(lifted(query, clause)))


def test_every_row_has_an_answer() -> None:
    statuses = Counter[Status]()
    for kind in KINDS:
        for asked in streams(3, kind):
            queries, sources = asked.replay.plan.queries, asked.replay.records.sources
            number = asked.first + asked.dice.randint(1, len(asked.rows))
            answers: list[Explanation] = list(asked.asking.row(number, None, queries, sources))
            assert answers
            assert all(answer.says for answer in answers)
            statuses.update(answer.status for answer in answers)
    assert statuses[Status.MATCHED]
    assert statuses[Status.NOT]
