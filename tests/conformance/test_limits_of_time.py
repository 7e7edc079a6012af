"""Clocks that step back, and the first and the last moment that there is: what a case file cannot say."""

from __future__ import annotations

from typing import Any

import pytest

import ensue
from ensue.answer import Replay
from querylang import compile_text
from runtime.engine.engine import Engine
from runtime.policies.plan_policies import SourceOrdering, parse_ordering, with_ordering
from runtime.reading.tables import read_arrivals
from runtime.timestamps import parse_time

PASSES = "event A { integer id; } query Q { inputs { A() retain 1; } find A as a; }"
WAITS = "event A { integer id; } query Q { inputs { A() retain 1 wait 10 seconds; } find A as a; }"
FIRST = "0001-01-01T00:00:00.000000Z"
LAST = "9999-12-31T23:59:59.999999Z"


def events(*times: tuple[str, str]) -> list[dict[str, Any]]:
    """Rows by arrival and source time."""
    return [{"at": at, "event": "A", "ts": ts, "id": number} for number, (at, ts) in enumerate(times, 1)]


def released(result: Replay) -> list[tuple[int, str]]:
    """Rows and the moments at which they came out."""
    return [(match["members"]["a"]["row"], match["emitted"]) for match in result.match_objects()]


def test_a_clock_that_steps_back_stands_still() -> None:
    policy = parse_ordering("stream_analytics late=10s action=drop")
    plan = with_ordering(compile_text(PASSES).plan, [SourceOrdering(None, policy)])
    engine = Engine(plan)
    first, *later = events(("10:00:20", "10:00:12"), ("10:00:15", "10:00:09.999999"), ("10:00:15", "10:00:12"))
    engine.process(read_arrivals([first], plan))
    results = engine.process(read_arrivals(later, plan))
    assert engine.clock == parse_time("10:00:20")
    assert results.discarded is not None
    assert results.discarded.column("reason").to_pylist() == ["late"]
    assert [match["emitted"].isoformat()[11:19] for match in results.matches["Q"].to_pylist()] == ["10:00:20"]


def test_rows_are_taken_in_order_of_arrival_wherever_they_stand() -> None:
    rows = events(("10:00:20", "10:00:09.999999"), ("10:00:15", "10:00:09.999999"))
    result = ensue.replay(PASSES, rows, ordering="stream_analytics late=10s action=drop")
    assert [(step["at"][11:19], step["discarded"]) for step in result.steps] == [
        ("10:00:15", None),
        ("10:00:20", "late"),
    ]


def test_a_table_without_arrivals_is_taken_in_the_order_of_its_times() -> None:
    rows = [{"event": "A", "ts": "10:00:05", "id": 1}, {"event": "A", "ts": "10:00:03", "id": 2}]
    result = ensue.replay(PASSES, rows, ordering="stream_analytics late=1s action=drop")
    assert [row for row, _ in released(result)] == [2, 1]


@pytest.mark.parametrize(
    ("query", "ordering"),
    [
        (PASSES, "stream_analytics late=5s"),
        (PASSES, "stream_analytics late=5s out_of_order=3s partitions=2"),
        (PASSES, "streaminsight final=yes"),
        (PASSES, "streaminsight delay=-1tick"),
        (PASSES, "streaminsight idle=1s"),
        (WAITS, "apama"),
    ],
)
def test_an_event_of_the_last_moment_is_released_at_it(query: str, ordering: str) -> None:
    result = ensue.replay(query, events((LAST, LAST)), ordering=ordering)
    assert released(result) == [(1, LAST)]
    assert result.match_objects()[0]["definitive"] == LAST


@pytest.mark.parametrize(
    ("query", "ordering"),
    [(PASSES, "stream_analytics late=20d out_of_order=9m59s"), (PASSES, "streaminsight delay=1d"), (WAITS, "apama")],
)
def test_no_definitive_time_is_before_the_first_moment(query: str, ordering: str) -> None:
    rows = events((FIRST, FIRST), ("0001-01-01T00:00:03Z", "0001-01-01T00:00:01Z"))
    result = ensue.replay(query, rows, ordering=ordering)
    assert result.steps[0]["definitive"] == FIRST
    assert not len(result.discarded)
