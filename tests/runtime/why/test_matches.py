"""The matches of a key, found and given, stay columns; each of them is found again by what is asked."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import ensue
from ensue.asking_why import table_of
from runtime.why.history import KeyHistory, key_history

HEAD = """
event A { string k; integer v; }
event B { string k; integer v; }
query Q {
    inputs { A() key k within 1 minute; B() key k within 1 minute; }
"""

SHAPES = {
    "followed by": "find A as a -> B as b where a.v < b.v",
    "all candidates": "find all A as a -> B as b where a.v < b.v",
    "a run": "find A as a {2,4} -> B as b",
    "one of two": "find A as a -> (B as b or A as c)",
    "waiting": "find A as a -> B as b -> wait(5 seconds)",
    "aggregate": "find every A as a select sum(a.v) as s having s > 10",
}


def replayed(shape: str, seed: int) -> ensue.answer.Replay:
    drawn = random.Random(seed)
    rows = [
        {"event": drawn.choice("AB"), "k": "x", "v": drawn.randrange(10), "at": at * 2, "ts": at * 2}
        for at in range(60)
    ]
    table = pa.Table.from_pylist(rows)
    return ensue.replay(HEAD + shape + ' { print "found"; } }', table, time_unit="s")


def history_of(result: ensue.answer.Replay) -> KeyHistory:
    (query,), table = result.plan.queries, table_of(result)
    return key_history(result.plan, query, table.records, (pa.scalar("x"),), table.ending)


def matches_of(result: ensue.answer.Replay) -> list[dict[str, Any]]:
    return [row for table in result.results.matches.values() for row in table.to_pylist()]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("seed", range(3))
def test_each_match_is_found_again_by_its_latest_event(shape: str, seed: int) -> None:
    result = replayed(shape, seed)
    history, wanted = history_of(result), matches_of(result)
    assert len(wanted) > 3, "a stream with matches"
    given: dict[int, set[str]] = {}
    for row in wanted:
        latest = history.given.position_of(row)
        assert latest is not None
        assert history.given.ends_with(latest)
        given.setdefault(latest, set()).add(row["match_id"])
    for latest in range(len(history.events)):
        found = [row for bound in history.found.at(latest) for row in history.given.of(latest, bound)]
        assert {row["match_id"] for row in found} == given.get(latest, set())
        assert history.given.ends_with(latest) == (latest in given)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_matches_of_an_event_are_those_that_bind_it(shape: str) -> None:
    history = history_of(replayed(shape, 1))
    everywhere = range(len(history.events))
    for position in everywhere:
        binding = [
            latest
            for latest in everywhere
            if any(position in bound for found in history.found.at(latest) for bound in found.values())
        ]
        assert history.found.latest_with(position) == binding
        before = [latest for latest in range(3, position) if history.found.at(latest)]
        assert history.found.last_between(3, position) == max(before, default=None)


def test_no_block_runs_for_an_explanation() -> None:
    result = replayed(SHAPES["followed by"], 1)
    assert len(result.results.outputs), "its block has outputs"
    assert [len(results.outputs) for results in history_of(result).results] == [0, 0]


def test_matches_between_two_moments_are_those_after_the_first_and_until_the_second() -> None:
    result = replayed(SHAPES["followed by"], 2)
    history, wanted = history_of(result), matches_of(result)
    times = [int(row["time"].timestamp() * 1_000_000) for row in wanted]
    after, until = times[1], times[-2]
    between = {row["match_id"] for row, time in zip(wanted, times, strict=True) if after < time <= until}
    assert between
    assert {row["match_id"] for row in history.given.between(after, until)} == between
