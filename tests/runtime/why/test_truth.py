"""What `why` says is true: tried with the engine, on random queries and streams.

`--streams N` asks as many queries, `--streams-seed S` others than those of every day.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue.answer import Replay
from ensue.asking_why import rewritten_as, table_of
from querylang.plan.model import QueryPlan
from runtime.columns.arrivals import Arrivals
from runtime.replay import Records
from runtime.replay.replay import measured_replay
from runtime.why import Change, Explanation, Status, history
from runtime.why.asking import Asking
from runtime.why.clauses import Clause, What, lifted
from runtime.why.explaining import Explainer
from tests.oracle.random_patterns import ALL, TODAY, Switches
from tests.oracle.random_queries import random_draw
from tests.oracle.random_roles import with_roles
from tests.oracle.running import records_of, text_of

TOGETHER = 6
"""So many queries read one stream."""

SWITCHES: dict[str, Switches] = {
    "today": TODAY,
    "skip, find all, a wait that repeats": replace(TODAY, selects=True, skip=True, finds_all=True, repeated_wait=True),
    "repeats": replace(TODAY, repeats=True, groups=True, prev=True, folds=True),
    "all": ALL,
}

LIFTED = (What.WINDOW, What.RETAIN, What.ORDER, What.WHERE, What.WITHIN, What.WITHOUT, What.WAIT)
"""Clauses that a plan can be without."""


@pytest.fixture(autouse=True)
def _in_small_pieces(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.ERROR, "ensue")
    monkeypatch.setattr(history, "AT_ONCE", 4)


@dataclass
class Asked:
    """A stream that is asked; all tests share its replay, searches and explanations, which cost the most.

    Half of the queries have a type that is several inputs.

    tried: the queries before and after each change, by the number that stands for its text
    """

    replay: Replay
    asking: Asking
    rows: list[dict[str, Any]]
    tried: list[tuple[QueryPlan, QueryPlan]]
    known: dict[tuple[int, int], Explanation] = field(default_factory=dict)

    def explanation(self, explainer: Explainer, latest: int) -> Explanation:
        """The same as the explainer gives, once."""
        name = id(explainer), latest
        if name not in self.known:
            self.known[name] = explainer.explanation(latest)
        return self.known[name]

    def with_text(self, change: Change) -> Change:
        """A change with the text of the query file, which is looked for here only: it takes long."""
        assert self.replay.compiled is not None, "it comes from a text"
        return rewritten_as(self.replay.compiled, replace(change, query=""), *self.tried[int(change.query)])


@cache
def asked(seed: int, switches: Switches) -> Asked:
    draw, dice = random_draw(seed, switches, TOGETHER), random.Random(seed)
    draw = replace(draw, queries=(*draw.queries[::2], *(with_roles(dice, query) for query in draw.queries[1::2])))
    rows, tried = records_of(draw.rows), list[tuple[QueryPlan, QueryPlan]]()
    replay = ensue.replay(text_of(draw.queries, late=draw.late), rows)

    def numbered(change: Change, before: QueryPlan, after: QueryPlan) -> Change:
        tried.append((before, after))
        return replace(change, query=str(len(tried) - 1))

    return Asked(replay, Asking(replace(table_of(replay), rewritten_as=numbered)), rows, tried)


def seeds(request: pytest.FixtureRequest) -> range:
    first = request.config.getoption("--streams-seed") * 1_000_000 + 2  # the first two have no change of one setting
    return range(first, first + max(1, request.config.getoption("--streams") // (6 * TOGETHER)))


def given(replay: Replay, query: QueryPlan) -> list[dict[str, Any]]:
    table = replay.results.matches.get(query.title)
    return [] if table is None else table.to_pylist(maps_as_pydicts="lossy")


def explainers(asking: Asking, replay: Replay, query: QueryPlan) -> Iterator[Explainer]:
    """One for each key that has an event."""
    for row in range(len(replay.records)):
        for key in asking.table.keys_of(query, row):
            asking.explainer(query, key)
    yield from (explainer for (title, _), explainer in asking._explainers.items() if title == query.title)


def members(row: dict[str, Any]) -> frozenset[tuple[str, int]]:
    """Names and rows of a match's events, as tables have them."""
    each = ((name, item) for name, member in row["members"].items() for item in as_list(member))
    return frozenset((name, item["offset"]) for name, item in each)


def as_list(member: Any) -> list[Any]:
    return member if isinstance(member, list) else [member] if member is not None else []


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES.keys())
def test_each_match_and_no_other_is_explained_as_one(switches: Switches, request: pytest.FixtureRequest) -> None:
    for seed in seeds(request):
        stream = asked(seed, switches)
        replay, asking = stream.replay, stream.asking
        for query in replay.plan.queries:
            matches = given(replay, query)
            for row in matches:
                (answer,) = asking.match(row, query)
                assert (answer.status, answer.match_id) == (Status.MATCHED, row["match_id"]), seed
                assert frozenset((event.name, event.offset) for event in answer.events) == members(row), seed
            found = [
                stream.explanation(explainer, latest)
                for explainer in explainers(asking, replay, query)
                for latest in range(len(explainer.history.events))
                if explainer.searching.may_end(latest)
            ]
            assert all(answer.says for answer in found)
            # Several matches may end with one event, and then one of them is reported.
            is_single = not query.finds_all and (query.trailing is None or query.trailing.most == 1)
            reported = {answer.match_id for answer in found if answer.status is Status.MATCHED}
            assert reported <= {row["match_id"] for row in matches}, seed
            assert not is_single or len(reported) == len(matches), seed


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES.keys())
def test_what_failed_alone_would_be_a_match_without_that_clause(
    switches: Switches, request: pytest.FixtureRequest
) -> None:
    kinds: Counter[What] = Counter()
    for seed in seeds(request):
        stream = asked(seed, switches)
        replay, asking = stream.replay, stream.asking
        for query in replay.plan.queries:
            if query.skip is not None:  # other matches before it would skip other events
                continue
            by_clause: dict[Clause, set[frozenset[tuple[str, int]]]] = {}
            matched = {members(row) for row in given(replay, query)}
            for explainer in explainers(asking, replay, query):
                for near, events in whole_misses(stream, explainer):
                    assert events not in matched, seed
                    if near not in by_clause:
                        by_clause[near] = found_without(replay, query, near)
                    assert events in by_clause[near], f"seed {seed}, {query.name}: {near}"
                    kinds[near.what] += 1
    assert kinds[What.WHERE] or kinds[What.WINDOW], "something was the only reason"


def whole_misses(stream: Asked, explainer: Explainer) -> Iterator[tuple[Clause, frozenset[tuple[str, int]]]]:
    """The clauses that alone kept candidates from being matches, with these candidates."""
    for latest in range(len(explainer.history.events)):
        if explainer.searching.may_end(latest) and stream.explanation(explainer, latest).status is Status.NOT:
            for near in explainer.nears(latest):
                if near.is_whole and near.clause.what in LIFTED:
                    events = explainer.words.events_of(near.bound)
                    yield near.clause, frozenset((event.name, event.offset) for event in events)


def found_without(replay: Replay, query: QueryPlan, clause: Clause) -> set[frozenset[tuple[str, int]]]:
    """What an engine finds with a clause lifted."""
    plan = replace(replay.plan, queries=(lifted(query, clause),))
    results, _ = measured_replay(plan, replay.records)
    table = results.matches.get(query.title)
    return set() if table is None else {members(row) for row in table.to_pylist(maps_as_pydicts="lossy")}


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES.keys())
def test_a_match_is_found_among_its_own_events_alone(switches: Switches, request: pytest.FixtureRequest) -> None:
    count = 0
    for seed in seeds(request):
        stream = asked(seed, switches)
        for query in stream.replay.plan.queries:
            for row in given(stream.replay, query)[:5]:
                (answer,) = stream.asking.match(row, query)
                kept = [event.row for event in answer.events if event.row is not None]
                if kept:
                    own = frozenset((event.name, event.offset) for event in answer.events)
                    # Another one may win, or have more names, where what a `without` has seen is not among them.
                    each = replace(query, finds_all=query.every is None, skip=None)
                    found = found_among(stream.replay, query, kept), found_among(stream.replay, each, kept)
                    assert any(own <= other for other in found[0] | found[1]), f"seed {seed}, {answer}"
                    count += 1
    assert count, "some query matches"


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES.keys())
def test_the_least_change_pasted_into_the_text_gives_that_match(
    switches: Switches, request: pytest.FixtureRequest
) -> None:
    kinds: Counter[str] = Counter()
    for seed in seeds(request):
        stream = asked(seed, switches)
        for query in stream.replay.plan.queries:
            for explainer in explainers(stream.asking, stream.replay, query):
                for tried, event in changes(stream, explainer):
                    change = stream.with_text(tried)
                    assert change.query, f"seed {seed}, {query.name}: {change}"
                    pasted = ensue.replay(change.query, stream.rows)
                    assert event in last_events(pasted, query.name), f"seed {seed}, {query.name}: {change}"
                    kinds[change.what] += 1
    assert kinds, "something was changed"


def found_among(replay: Replay, query: QueryPlan, rows: Sequence[int]) -> set[frozenset[tuple[str, int]]]:
    """What an engine finds in some of the rows alone."""
    records = replay.records
    assert isinstance(records, Records), "the rows are in memory"
    kept = np.isin(records.rows, rows)
    own = replace(records, arrivals=Arrivals(records.arrivals.table.filter(pa.array(kept))), rows=records.rows[kept])
    results, _ = measured_replay(replace(replay.plan, queries=(query,)), own)
    table = results.matches.get(query.title)
    return set() if table is None else {members(row) for row in table.to_pylist(maps_as_pydicts="lossy")}


MOST_CHANGES = 3
"""For one key of a query; each is a replay."""


def changes(stream: Asked, explainer: Explainer) -> Iterator[tuple[Change, tuple[str, int]]]:
    """The least changes, each with the row of the latest event of the match that it gives."""
    found = 0
    for latest in range(len(explainer.history.events)):
        if explainer.searching.may_end(latest) and found < MOST_CHANGES:
            answer = stream.explanation(explainer, latest)
            for candidate in answer.candidates:
                if candidate.change is not None and answer.event is not None:
                    found += 1
                    yield candidate.change, (answer.event.time or "", answer.event.offset)


def last_events(replay: Replay, name: str) -> set[tuple[str, int]]:
    """The times and the numbers of all events of matches of a query."""
    found = set()
    for match in replay.match_objects():
        if match["query"] == name:
            events = [event for member in match["members"].values() for event in as_list(member)]
            last = max(event["time"] for event in events)
            found |= {(event["time"], event["row"]) for event in events if event["time"] == last}
    return found


def test_a_lie_would_be_noticed() -> None:
    stream = asked(1, TODAY)
    replay = stream.replay
    query = replay.plan.queries[0]
    own = explainers(stream.asking, replay, query)
    wrong = [clause for explainer in own for clause, _ in whole_misses(stream, explainer)]
    nothing = frozenset[tuple[str, int]]()
    assert all(nothing not in found_without(replay, query, clause) for clause in wrong)


def test_every_row_has_an_answer() -> None:
    statuses: Counter[Status] = Counter()
    for seed in range(3):
        stream = asked(seed, ALL)
        queries, sources = stream.replay.plan.queries, stream.replay.records.sources
        for number in range(1, len(stream.rows) + 1):
            answers: list[Explanation] = list(stream.asking.row(number, None, queries, sources))
            assert answers
            assert all(answer.says for answer in answers)
            statuses.update(answer.status for answer in answers)
    assert statuses[Status.MATCHED]
    assert statuses[Status.NOT]
