"""The kernel of runs finds what the reference matcher finds, and stops where that does."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

import ensue
from querylang.plan import remembering
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.matching import matchers
from runtime.replay.replay import measured_replay
from runtime.results.schemas import Results

HEAD = "event A { integer v; float w; }\nevent B { integer v; float w; }\n"

WITH_WAITS = (
    "find A as a -> wait(3.0) as t -> B as b without A as x between (a t)",
    "find A as a -> wait(2.0) as t -> B as b -> wait(1.0) as u -> A as c without B as x where x.v > a.v between (t u)",
    "find A as a+ -> wait(3.0) as t -> B as b+ without A as x where x.v > a.v between (t b)",
    "find (A as a and B as b) -> wait(2.0) as t -> A as c within 5.0 between (t c)",
    "find (A as a or B as b) -> wait(2.0) as t -> A as c where c.v > a.v without B as x between (a t)",
    "find A as a -> wait(2.0) as t -> B as b -> A as c? -> A as d+ where d.v >= prev(d).v within 6.0 between (t d)",
)

BEFORE_A_WAIT = (
    "find A as a => B as b -> wait(3.0) as t without A as x where x.v > 1",
    "find A as a => B as b -> wait(3.0) as t without A as x where x.v > a.v between (b t)",
    "find A as a+ -> B as b -> wait(2.0) as t without A as x where x.w > b.w between (a t)",
    "find A as a -> B as b+ -> wait(2.0) as t without B as x where x.v = a.v",
    "find A as a+ -> wait(4.0) as t without B as x where x.w > 0.5 within 6.0 between (a t)",
    "find (A as a or B as b) => A as c -> wait(2.0) as t without B as x where x.v > c.v between (b t)",
    "find (A as a -> B as b) {1,2} -> wait(2.0) as t without A as x where x.v > last(b).v between (b t)",
    "find A as a => B as b -> wait(2.0) as t {1,3} without A as x where x.v > a.v within 5.0 between (a t)",
    "find wait(2.0) as s -> A as a => B as b -> wait(2.0) as t without A as x where x.v > a.v between (s t)",
    "find all A as a -> B as b -> wait(2.0) as t without A as x where x.v > a.v and x.w < b.w",
)

LIMITED = (
    "find A as a {2,} -> B as b where sum(a.v) = 9",
    "find A as a+ -> A as b+ -> B as c where sum(a.v) = 5 and avg(b.w) > 1.0",
    "find A as a+ -> A as b+ where max(a.w) - min(b.w) > 1.4",
    "find (A as a -> B as b)+ => A as c where sum(b.v - a.v) = 3",
    "find A as a+ -> B as b where sum(a.v) = 9 without A as x where x.v > a.v",
    "find all A as a+ -> B as b where a.v >= prev(a).v",
    "find all A as a+ -> B as b after match skip to last a",
)


def _records(seed: int, count: int = 40) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    return [
        {"at": float(at), "event": dice.choice("AAB"), "v": dice.randrange(4), "w": dice.randrange(4) / 2}
        for at in range(count)
    ]


def _both(find: str, records: list[dict[str, Any]], window: str = "within 14.0") -> list[Any]:
    """The matches and outputs of both matchers."""
    found = ensue.replay(f"{HEAD}query Q {{ inputs {{ A() {window}; B() {window}; }} {find} {{}} }}", records)
    results, _ = measured_replay(found.plan, found.records, matcher="reference")
    kernel = _shown(found.results)
    assert kernel == _shown(results)
    return kernel


def _shown(results: Results) -> list[Any]:
    outputs = [(row["time"], row["text"]) for row in results.outputs.to_pylist()]
    return [*outputs, *(row for table in results.matches.values() for row in table.to_pylist())]


@pytest.mark.parametrize("find", WITH_WAITS)
def test_both_matchers_wait_between_steps(find: str) -> None:
    found = [item for seed in range(4) for item in _both(find, _records(seed))]
    assert found, "a comparison of no match shows nothing"


@pytest.mark.parametrize("window", ["within 14.0", "retain 6 with unique v"])
@pytest.mark.parametrize("find", BEFORE_A_WAIT)
def test_both_matchers_end_the_same_waits(find: str, window: str) -> None:
    found = []
    for seed in range(3):
        own = _both(find, _records(seed), window)
        # Cut in calls, so that waits of earlier ones are ended too.
        kernel, slow = (_in_calls(find, _records(seed), window, matcher) for matcher in ("kernel", "reference"))
        assert kernel == slow
        assert len(kernel) == len(own)
        found += own
    assert found, "a comparison of no match shows nothing"


def _in_calls(find: str, records: list[dict[str, Any]], window: str, matcher: str) -> list[Any]:
    """The matches and outputs if every call has five records."""
    replay = ensue.replay(f"{HEAD}query Q {{ inputs {{ A() {window}; B() {window}; }} {find} {{}} }}", records)
    engine, arrivals = Engine(replay.plan, matcher=matcher), replay.records.arrivals
    parts = [arrivals.table.slice(begin, 5) for begin in range(0, len(records), 5)]
    calls = [engine.process(Arrivals(part)) for part in parts]
    return [item for results in (*calls, engine.flush()) for item in _shown(results)]


def test_a_run_may_be_longer_than_the_stack_of_python() -> None:
    count = sys.getrecursionlimit() + 200
    inputs = f"inputs {{ A() retain {count}; B() retain 1; }}"
    text = f"query Q {{ {inputs} find A as a+ -> B as b where sum(a.d) = {count / 2}d }}"
    records = [{"at": float(at), "event": "A", "d": "0.5"} for at in range(count)] + [{"at": count, "event": "B"}]
    replay = ensue.replay(f"event A {{ decimal d; }}\nevent B {{}}\n{text}", records)
    assert [len(match["members"]["a"]) for match in replay.match_objects()] == [count]


@pytest.mark.parametrize("find", LIMITED)
def test_both_matchers_end_the_same_searches(find: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "MOST_BOUND", 60)
    found = [item for seed in range(4) for item in _both(find, _records(seed))]
    assert any(isinstance(item, tuple) for item in found), "a limit that is never reached shows nothing"
    assert any(isinstance(item, dict) for item in found), "a comparison of no match shows little"


@pytest.mark.parametrize(
    "find",
    [
        "find A as a+ -> A as b+ -> B as c where first(a).v <= last(b).v",
        "find A as a+ -> A as b -> A as c+ where a.v <= b.v and c.v >= prev(c).v",
        "find all A as a+ -> B as b",
    ],
)
def test_a_search_continues_in_larger_arrays(find: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matchers, "LEAST_ROOM", 4)
    assert _both(find, _records(5), "within 9.0")
