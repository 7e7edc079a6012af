"""Steps of chunks are those of one record after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import querylang
from querylang.plan.model import Plan
from runtime.replay import steps
from runtime.replay.replay import read_all, replay_records
from runtime.replay.stepping import have_own_time
from runtime.replay.steps import ChunkedSteps, StepByStep
from tests.support.pace import measured

EVENTS = "event A { integer id; string k; float v; }\nevent B { integer id; string k; float v; }\n"
LATE = "@OutOfOrder() event A { integer id; string k; float v; }\nevent B { integer id; string k; float v; }\n"
WAIT = "inputs { A() key k within 9.0 wait 2.0; B() key k within 9.0 wait 1.0; }"
FIRST = f"query Q {{ {WAIT} find A as a -> B as b where b.v > a.v }}"
BLOCK = (
    "query P { inputs { A() key k within 9.0 wait 3.0; B() key k within 9.0; } "
    "find A as a -> B as b where b.v > a.v { print a.k + b.id.toString(); } }"
)
EVERY = f"query E {{ {WAIT} find every A as a select count() as n having count() > 3 }}"
TRAILING = f"query T {{ {WAIT} find A as a -> B as b -> wait(1.5) as t }}"
ARRIVAL = "query N { inputs { A(v > 0.2) key k within 3.0; } find A as a -> A as b }"
NO_KEY = "query K { inputs { A() within 1.0 wait 2.5; } find A as a -> A as b }"
LONG = "query L { inputs { A() key k within 900.0 wait 400.0; } find A as a -> A as b }"


def plan_of(*queries: str, events: str = EVENTS) -> Plan:
    return querylang.compile_text(events + "\n".join(queries)).plan


def table(seed: int, count: int = 90, delay: float = 3.0) -> pa.Table:
    """Late and unknown rows are among them, rows without a key, empty ones, several at a moment."""
    random = np.random.default_rng(seed)
    at = 100 + np.sort(random.integers(0, count, count)) / 4
    return pa.table(
        {
            "at": at,
            "event": pa.array(random.choice(["A", "B", "C", None], count, p=[0.47, 0.47, 0.03, 0.03]), pa.string()),
            "ts": at - np.where(random.random(count) < 0.2, random.random(count) * delay * 2, 0.3),
            "id": np.arange(count),
            "k": pa.array(random.choice([*"abc", None], count, p=[0.4, 0.4, 0.15, 0.05]), pa.string()),
            "v": random.random(count),
        }
    )


@pytest.mark.parametrize("options", [{}, {"flush": False}, {"until": 125_250_000}])
@pytest.mark.parametrize(
    ("plan", "delay"),
    [
        (plan_of(FIRST), 2.0),
        (plan_of(BLOCK, TRAILING), 3.0),
        (plan_of(EVERY, ARRIVAL, NO_KEY), 3.0),
        (plan_of(FIRST, TRAILING, NO_KEY, events=LATE), 2.0),
        (plan_of(LONG), 300.0),
    ],
)
def test_chunks_have_the_steps_of_single_records(
    plan: Plan, delay: float, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LEAST", 7)
    until, flush = options.get("until"), options.get("flush", True)
    records = read_all([table(len(options) + int(delay), delay=delay)], plan).until(until)
    assert have_own_time(plan, records.arrivals.table, records.arrivals.system("kind").astype(np.int64))
    expected = list(StepByStep(plan, records, "auto").steps(until, flush=flush))
    assert list(ChunkedSteps(plan, records, "auto").steps(until, flush=flush)) == expected
    known = replay_records(plan, records, until=until, flush=flush)
    assert list(ChunkedSteps(plan, records, "auto", known).steps(until, flush=flush)) == expected
    assert any(step.matches for step in expected)


def test_records_that_are_not_events_have_steps() -> None:
    plan = plan_of(FIRST)
    rows = [
        {"at": "x"},
        {"at": 3.0, "event": "A", "ts": 2.0, "id": "no", "k": "a", "v": 1.0},
        {"at": 4.0, "event": "A(1)"},
    ]
    records = read_all([rows], plan)
    expected = list(StepByStep(plan, records, "auto").steps(None, flush=True))
    assert list(ChunkedSteps(plan, records, "auto").steps(None, flush=True)) == expected
    assert list(ChunkedSteps(plan, records, "auto", replay_records(plan, records)).steps(None, flush=True)) == expected
    assert [step.discarded for step in expected] == ["malformed"] * 3


def test_steps_cost_what_records_concern_not_queries_times_records() -> None:
    one = "query Q{n} {{ inputs {{ A(id = {n}) key k within 9.0; }} find A as a -> A as b }}"
    plan = plan_of(*(one.format(n=number) for number in range(400)))
    count = 2_000
    given = pa.table(
        {"event": ["A"] * count, "at": range(count), "id": range(count), "k": ["x"] * count, "v": [0.0] * count}
    )
    records = read_all([given], plan)
    results = replay_records(plan, records)
    with measured() as used:
        found = list(steps.replay_steps(plan, records, known=results))
    assert len(found) == count
    assert used.seconds < 0.5  # 0.12; 1.1 where each query has a place for each record
