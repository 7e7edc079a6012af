"""Matches of one cause stand by key: null first, numbers by value, then NaN, text by code point, false before true.

What queries route stands so, too. `Order` routes what `Pairs` has in twos, so matches show the order, whatever runs.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from decimal import Decimal
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

import pytest

import ensue
import querylang
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.packed_rows import Signal
from job_engine.wire.program import Program
from runtime.reading.tables import read_arrivals
from runtime.replay.replay import measured_replay
from runtime.replay.steps import ChunkedSteps, StepByStep
from tests.support.buckets import Stream
from tests.support.embedded import embedded, summary

TEXT = """
event Ip {{ string ip; }}
event A {{ string s; integer i; float f; decimal d; boolean b; location l; Ip src; optional<integer> o; integer n; }}
event R {{ integer n; }}
query Order {{
    inputs {{ A() key {key} within 9.0; }}
    find A as a -> wait(3.0) {{ route R(a.n); }}
}}
query Pairs {{ inputs {{ R() retain 2; }} find R as r -> R as next }}
"""
NAN = float("nan")
PLACES = [dict(zip(("x1", "y1", "x2", "y2"), corners, strict=True)) for corners in ((0.0, NAN, 0.0, 1.0), (0.0,) * 4)]
VALUES: dict[str, list[Any]] = {
    "s": ["", "Z", "a", "\uffff", "\U0001f600", "é"],
    "i": [-(2**63), -1, 0, 2**53, 2**53 + 1],
    "f": [-math.inf, -1.5, -0.0, 0.0, 1e-300, math.inf, NAN],
    "d": [Decimal(-10), Decimal("-9.5"), Decimal(2), Decimal("2.0"), Decimal(10)],
    "b": [False, True],
    "l": PLACES,
    "src": [{"ip": "b"}, {"ip": "B"}, {"ip": ""}],
    "o": [3, -3, 20],
}
NAMES = ["s", "i", "f", "d", "b", "l", "src.ip", "o"]


def stand(one: Any, other: Any) -> int:
    """Negative = the first stands before the second; written from the rules alone."""
    if isinstance(one, list):
        return next((found for pair in zip(one, other, strict=True) if (found := stand(*pair))), 0)
    if isinstance(one, dict) and isinstance(other, dict):
        return stand(list(one.values()), list(other.values()))
    if one is None or other is None:
        return (one is not None) - (other is not None)
    ends = [isinstance(value, float) and math.isnan(value) for value in (one, other)]
    if any(ends):
        return ends[0] - ends[1]
    if isinstance(one, str):
        one, other = list(map(ord, one)), list(map(ord, other))
    return bool(one > other) - bool(one < other)


def value_of(row: dict[str, Any], name: str) -> Any:
    first, _, member = name.partition(".")
    return row[first][member] if member else row[first]


def given(chance: random.Random, names: list[str], *, may_miss: bool) -> list[dict[str, Any]]:
    """Events of one moment, whose keys are apart."""
    rows: list[dict[str, Any]] = []
    for number in range(14):
        row: dict[str, Any] = {"event": "A", "at": 1, "n": number}
        row |= {name: chance.choice([*values, None] if may_miss else values) for name, values in VALUES.items()}
        row["src"] = {"ip": None} if row["src"] is None else row["src"]
        keys = [[value_of(one, name) for name in names] for one in (row, *rows)]
        if not any(stand(keys[0], key) == 0 for key in keys[1:]):
            rows.append(row)
    return rows


def in_order(rows: list[dict[str, Any]], names: list[str]) -> list[int]:
    keys = [[value_of(row, name) for name in names] for row in rows]
    order = sorted(range(len(rows)), key=cmp_to_key(lambda one, other: stand(keys[one], keys[other])))
    return [rows[place]["n"] for place in order]


def programs() -> list[tuple[str, list[dict[str, Any]], list[int]]]:
    """Programs with one to three keys, their rows, and the order of these."""
    found = []
    for seed, names in enumerate([*([name] for name in NAMES), ["b", "s"], ["f", "o", "d"], ["l", "src.ip"]]):
        chance = random.Random(seed)
        for may_miss in (True, *([False] if names != ["o"] and "o" not in names else [])):
            rows = given(chance, names, may_miss=may_miss)
            sign = "?" if may_miss else ""
            key = ", ".join(f"{name}{sign} as k{place}" for place, name in enumerate(names))
            found.append((TEXT.format(key=key), rows, in_order(rows, names)))
    return found


PROGRAMS = programs()


def test_matches_of_one_moment_and_what_they_route_stand_by_key() -> None:
    for text, rows, order in PROGRAMS:
        replay = ensue.replay(text, rows)
        matches = replay.match_objects()
        assert [row["members"]["a"]["fields"]["n"] for row in matches if row["query"] == "Order"] == order, text
        pairs = [row["members"] for row in matches if row["query"] == "Pairs"]
        assert [(pair["r"]["fields"]["n"], pair["next"]["fields"]["n"]) for pair in pairs] == [*pairwise(order)], text
        assert [row["event"]["fields"]["n"] for row in replay.output_objects()] == order
        other, *_ = measured_replay(replay.plan, replay.records, matcher="reference")
        assert replace(replay, results=other).match_objects() == matches
        live = ensue.open(text)
        answers = [*(live.send([row]) for row in rows), live.flush()]
        assert [row["match_id"] for answer in answers for row in answer.match_objects()] == [
            row["match_id"] for row in matches
        ]


@pytest.mark.parametrize("steps", [ChunkedSteps, StepByStep])
def test_steps_of_one_moment_stand_by_key(steps: type[ChunkedSteps | StepByStep]) -> None:
    for text, rows, order in PROGRAMS:
        replay = ensue.replay(text, rows)
        found = [
            step.matches for step in steps(replay.plan, replay.records, "auto").steps(None, flush=True) if step.key
        ]
        shown = [[row["members"]["a"]["fields"]["n"] for row in own if row["query"] == "Order"] for own in found if own]
        assert [own for own in shown if own] == [[number] for number in order], text


@pytest.mark.parametrize("crosses", [False, True])
def test_buckets_of_jobs_give_the_same_order(crosses: bool) -> None:
    """Each pair of `Pairs` is two events that stand one behind the other, so its id shows the order."""
    for text, rows, order in PROGRAMS:
        plan = querylang.compile_text(text).plan
        arrivals = read_arrivals(rows, plan, source="a")
        stream = Stream(Program.of(plan, buckets=3, sources=(ClockSource("a"),), crosses=crosses))
        stream.take({"a": arrivals}, 0)
        stream.take({}, 1000, Signal.FLUSH)
        assert stream.summary() == summary(embedded(plan, arrivals)), (text, order)
