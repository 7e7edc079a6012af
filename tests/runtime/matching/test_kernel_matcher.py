"""The kernel's search does not try twice what has failed; without that the patterns here would take years."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import querylang
from querylang.plan.remembering import DeadEndRule, dead_end_rules
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.instants import NO_TIME


def _pattern(terms: int, where: str = "") -> str:
    chain = " -> ".join(f"A as a{number}" for number in range(terms))
    return f"event A {{ integer v; }} inputs {{ A() within 1 hour; }} find {chain} {where}"


def _matches(text: str, values: list[int], matcher: str = "kernel") -> list[list[int]]:
    """For each match the offsets of its members, in the order of the pattern."""
    count = len(values)
    columns = {
        "_kind": pa.array([0] * count, pa.int16()),
        "_arrival": pa.array([number * 1000 for number in range(count)]),
        "_source": pa.array(["t"] * count).dictionary_encode(),
        "_partition": pa.array([0] * count, pa.int64()),
        "_place": pa.array([0] * count, pa.int64()),
        "_offset": pa.array(range(count)),
        "_source_time": pa.array([NO_TIME] * count),
        "v:integer": pa.array(values, pa.int64()),
        "f:float": pa.array(values, pa.float64()),
    }
    results = Engine(querylang.compile_text(text).plan, matcher=matcher).process(Arrivals(pa.table(columns)))
    rows = results.matches["query"].to_pylist() if "query" in results.matches else []
    return [[member["offset"] for member in row["members"].values()] for row in rows]


def test_too_few_events_are_no_candidate() -> None:
    assert _matches(_pattern(40), [0] * 39) == []
    assert _matches(_pattern(40), [0] * 41) == [list(range(40)), list(range(1, 41))]


def test_what_failed_without_conditions_is_not_tried_again() -> None:
    """The first name's condition is never true: every choice of the 29 others would be tried."""
    assert _matches(_pattern(30, "where a0.v > 5"), [0] * 60) == []


def test_conditions_on_neighbours_are_tried_once_a_pair() -> None:
    """Rising values, then equal ones: thirty terms cannot rise over the ten distinct values."""
    rising = " and ".join(f"a{number}.v < a{number + 1}.v" for number in range(29))
    assert _matches(_pattern(30, f"where {rising}"), [number // 8 for number in range(80)]) == []


def test_conditions_on_the_latest_event_are_tried_once_an_event() -> None:
    """Every name is compared with the last one, the first in vain."""
    above = " and ".join(f"a{number}.v < a29.v" for number in range(1, 29))
    assert _matches(_pattern(30, f"where {above} and a0.v > a29.v"), [*range(60)]) == []


def test_remembering_failures_loses_no_match() -> None:
    """Conditions on neighbours: the same answers as trying everything, on values with many ties."""
    values = np.random.default_rng(5).integers(0, 6, 60).tolist()
    found = _matches(_pattern(4, "where a0.v < a1.v and a1.v < a2.v and a3.v = a2.v"), values)
    assert found == _by_enumeration(values, lambda a, b, c, d: a < b < c == d)


def _by_enumeration(values: list[int], holds: Callable[[int, int, int, int], bool]) -> list[list[int]]:
    found = []
    for latest in range(len(values)):
        candidates = [
            [a, b, c, latest]
            for c in reversed(range(latest))
            for b in reversed(range(c))
            for a in reversed(range(b))
            if holds(values[a], values[b], values[c], values[latest])
        ]
        found.extend(candidates[:1])
    return found


def test_conditions_on_one_name_further_apart_are_tried_once_a_pair() -> None:
    """Each name is compared with the last but one, which any event may be, the first in vain."""
    above = " and ".join(f"a{number}.v <= a28.v" for number in range(1, 28))
    assert _matches(_pattern(30, f"where {above} and a0.v > a28.v"), [0] * 60) == []


def test_remembering_failures_by_an_earlier_event_loses_no_match() -> None:
    """The same answers as trying everything where a failure depends on a name that is not a neighbour."""
    values = np.random.default_rng(6).integers(0, 5, 60).tolist()
    found = _matches(_pattern(4, "where a0.v > a2.v and a1.v < a3.v and a0.v + a1.v = 4"), values)
    assert found == _by_enumeration(values, lambda a, b, c, d: a > c and b < d and a + b == 4)


@pytest.mark.parametrize("where", ["a0.v * a1.v > 36", "(a0.v - a1.v) % (a0.v - 3) = 2", "a0.f / a1.f - 1.0 > a0.f"])
def test_looking_ahead_finds_what_trying_one_by_one_finds(where: str) -> None:
    """More events in the window than are looked at together; overflow, division by zero and NaN included."""
    values = np.random.default_rng(7).integers(-9, 9, 120).tolist()
    text = f"event A {{ integer v; float f; }} inputs {{ A() within 1 hour; }} find A as a0 -> A as a1 where {where}"
    assert _matches(text, values) == _matches(text, values, "reference") != []


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("", "- lasting lasting lasting"),
        ("where a0.v < a1.v", "- lasting lasting a1,lasting"),
        ("where a1.v < a2.v", "- lasting a2,lasting lasting"),
        ("where a0.v < a2.v", "- lasting a2,lasting a2,lasting"),
        ("where a0.v < a3.v", "- - by-position by-position"),
        ("where a0.v < a1.v and a0.v < a3.v", "- - by-position a1"),
        ("where a0.v + a1.v < a2.v", "- lasting a2,lasting a1,a2,lasting"),
        ("where a0.v + a1.v + a2.v < a3.v", "- - a2 -"),
        ("without A as x", "- - a2 -"),
    ],
)
def test_which_failures_are_dead_ends(where: str, expected: str) -> None:
    """States in the order of the search: a3, a2, a1, a0. By state what its dead ends depend on, `-`: there are none."""
    query = querylang.compile_text(_pattern(4, where)).plan.queries[0]
    assert " ".join(map(_rule_text, dead_end_rules(query))) == expected


def _rule_text(rule: DeadEndRule | None) -> str:
    if rule is None:
        return "-"
    parts = [f"a{term}" for term in rule.terms] + ["lasting"] * rule.is_lasting
    return ",".join(parts) or "by-position"
