"""Durations between events are exact, whoever computes them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

import ensue

START = 1_709_287_200_000_000
APART = (99_999, 100_000, 100_001)
"""Microseconds between the two events of a key."""

INPUTS = "inputs { A() key k within 10.0; B() key k within 10.0; }"
RUNS = "inputs { A() key k within 10.0; }"


def pairs(second: str = "B") -> list[dict[str, Any]]:
    """By key two events, for each distance several, at times that no float of seconds has exactly."""
    rows = list[dict[str, Any]]()
    for number in range(60):
        first = START + number * 1_000_137
        later = first + APART[number % 3]
        rows += [
            {"event": "A", "k": number, "name": "x", "at": first / 1e6},
            {"event": second, "k": number, "name": "x", "at": later / 1e6},
        ]
    return rows


OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}

WAYS = {
    "a difference and a constant": (INPUTS, "A as a -> B as b where b.getTime() - a.getTime() {} 0.1"),
    "negative": (INPUTS, "A as a -> B as b where 0.0 - 0.1 {} a.getTime() - b.getTime()"),
    "added to the earlier time": (INPUTS, "A as a -> B as b where b.getTime() {} a.getTime() + 0.1"),
    "subtracted from the later time": (INPUTS, "A as a -> B as b where b.getTime() - 0.1 {} a.getTime()"),
    "the sum of two differences": (
        INPUTS,
        "A as a -> B as b where (b.getTime() - a.getTime()) + (b.getTime() - a.getTime()) {} 0.2",
    ),
    "a parameter": (
        "parameters { float most := 0.1; } " + INPUTS,
        "A as a -> B as b where b.getTime() - a.getTime() {} most",
    ),
    "a part of a calculation": (INPUTS, "A as a -> B as b where (b.getTime() - a.getTime()).abs() * 10.0 {} 1.0"),
    "the reference matcher": (
        INPUTS,
        "A as a -> B as b where (a.name + b.name).length() = 2 and b.getTime() - a.getTime() {} 0.1",
    ),
    "an action": (
        INPUTS,
        """A as a -> B as b where gap(a, b) {} 0.1 {{ }}
        action gap(A a, B b) returns float {{ return b.getTime() - a.getTime(); }}""",
    ),
    "neighbours of a run": (RUNS, "A as a {{2}} where a.getTime() - prev(a).getTime() {} 0.1"),
    "the ends of a run": (RUNS, "A as a {{2}} where last(a).getTime() - first(a).getTime() {} 0.1"),
    "folds of times": (RUNS, "A as a {{2}} where max(a.getTime()) - min(a.getTime()) {} 0.1"),
    "having": (
        INPUTS,
        "every A as a -> B as b select count() as n having last(b.getTime()) - first(a.getTime()) {} 0.1",
    ),
    "having with a select": (
        INPUTS,
        "every A as a -> B as b select min(a.getTime()) as start having last(b.getTime()) - start {} 0.1",
    ),
    "having with times of events": (
        INPUTS,
        "every A as a -> B as b select last(b) as z having last(b).getTime() - first(a).getTime() {} 0.1",
    ),
}


def found(inputs: str, find: str) -> list[int]:
    rows = pairs("A" if inputs == RUNS else "B")
    matches = ensue.replay(f"query Q {{ {inputs} find {find} }}", rows).matches
    return sorted(matches["k"].tolist())


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize("way", WAYS)
def test_a_duration_compares_as_its_microseconds_do(way: str, sign: str) -> None:
    inputs, find = WAYS[way]
    expected = [number for number in range(60) if OPERATORS[sign](APART[number % 3], 100_000)]
    assert found(inputs, find.format(sign)) == expected


SELECTED = {
    "select": (INPUTS, "A as a -> B as b select b.getTime() - a.getTime() as d"),
    "select of a run": (RUNS, "A as a {2} select last(a).getTime() - first(a).getTime() as d"),
    "select of every": (INPUTS, "every A as a -> B as b select max(b.getTime() - a.getTime()) as d"),
    "select of times of every": (INPUTS, "every A as a -> B as b select max(b.getTime()) - min(a.getTime()) as d"),
}


@pytest.mark.parametrize("way", SELECTED)
def test_a_duration_is_the_nearest_float(way: str) -> None:
    inputs, find = SELECTED[way]
    rows = pairs("A" if inputs == RUNS else "B")
    matches = ensue.replay(f"query Q {{ {inputs} find {find}; }}", rows).matches
    assert len(matches) == 60
    assert set(matches["d"]) == {0.099999, 0.1, 0.100001}


def test_a_block_prints_the_nearest_float() -> None:
    find = "A as a -> B as b { print (b.getTime() - a.getTime()).toString(); }"
    outputs = ensue.replay(f"query Q {{ {INPUTS} find {find} }}", pairs()).outputs
    assert set(outputs["text"]) == {"0.099999", "0.1", "0.100001"}


def test_years_far_from_now_are_as_exact() -> None:
    rows = [{"event": "A", "at": f"1000-01-01T00:00:0{number}.1Z"} for number in range(3)]
    rows += [{"event": "A", "at": "9999-12-31T23:59:59.000001Z"}, {"event": "A", "at": "9999-12-31T23:59:59.100001Z"}]
    text = "inputs { A() within 10.0; } find A as a -> A as b where b.getTime() - a.getTime() = 0.1;"
    assert len(ensue.replay(text, rows)) == 1


NEIGHBOURS = """
query Near {
    parameters { float most := 0.1; }
    inputs { A() within 10.0; }
    find all A as a {2,3} => A as b
        within 0.1 seconds between (prev(a) a)
        within most between (b prev(b));
}
"""


def test_within_between_neighbours_is_about_each_event_and_the_one_before() -> None:
    text = NEIGHBOURS.replace("Near", "Asked").replace(
        "within 0.1 seconds between (prev(a) a)", "where a.getTime() - prev(a).getTime() < 0.1"
    )
    asked = text.replace("within most between (b prev(b))", "where b.getTime() - prev(b).getTime() < most")
    rows = [
        {"event": "A", "at": START / 1e6 + after} for after in (0.0, 0.05, 0.14, 0.24, 0.3, 0.35, 0.449999, 0.5, 0.6)
    ]
    found = [
        sorted(match["time"] + str(match["members"]) for match in ensue.replay(text, rows).match_objects())
        for text in (NEIGHBOURS, asked)
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 6
