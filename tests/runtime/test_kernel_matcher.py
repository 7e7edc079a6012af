"""The kernel's search does not try twice what has failed; without that the patterns here would take years."""

import numpy as np
import pyarrow as pa
import pytest

import querylang
from runtime.batch import NO_TIME, Arrivals
from runtime.engine import Engine
from runtime.kernel_tables import automaton_columns


def _pattern(terms: int, where: str = "") -> str:
    chain = " -> ".join(f"A as a{number}" for number in range(terms))
    return f"event A {{ integer v; }} inputs {{ A() within 1 hour; }} find {chain} {where}"


def _matches(text: str, values: list[int]) -> list[list[int]]:
    """For each match the offsets of its members, in the order of the pattern."""
    count = len(values)
    columns = {
        "_kind": pa.array([0] * count, pa.int16()),
        "_arrival": pa.array([number * 1000 for number in range(count)]),
        "_source": pa.array(["t"] * count).dictionary_encode(),
        "_partition": pa.array([0] * count, pa.int32()),
        "_offset": pa.array(range(count)),
        "_source_time": pa.array([NO_TIME] * count),
        "v:integer": pa.array(values, pa.int64()),
    }
    results = Engine(querylang.compile_text(text).plan, matcher="kernel").process(Arrivals(pa.table(columns)))
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
    assert found == _by_enumeration(values)


def _by_enumeration(values: list[int]) -> list[list[int]]:
    found = []
    for latest in range(len(values)):
        candidates = [
            [a, b, c, latest]
            for c in reversed(range(latest))
            for b in reversed(range(c))
            for a in reversed(range(b))
            if values[a] < values[b] < values[c] == values[latest]
        ]
        found.extend(candidates[:1])
    return found


@pytest.mark.parametrize(
    ("where", "alone", "rows"),
    [
        ("", [False, False, True, True], [-1, -1, -1, -1]),
        ("where a0.v < a1.v", [False, False, True, False], [-1, -1, -1, 0]),
        ("where a1.v < a2.v", [False, False, False, True], [-1, -1, 0, -1]),
        ("where a0.v < a2.v", [False, False, False, False], [-1, -1, 0, -1]),
        ("where a0.v < a3.v", [False, False, True, True], [-1, -1, -1, -1]),
        ("where a0.v < a1.v and a0.v < a3.v", [False, False, True, False], [-1, -1, -1, 0]),
        ("where a0.v + a1.v < a2.v", [False, False, False, False], [-1, -1, 0, -1]),
    ],
)
def test_what_is_remembered_follows_from_what_conditions_ask(where: str, alone: list[bool], rows: list[int]) -> None:
    """States in the order of the search: a3, a2, a1, a0."""
    query = querylang.compile_text(_pattern(4, where)).plan.queries[0]
    columns = automaton_columns(query)
    assert columns.alone.tolist() == alone
    assert columns.memory.tolist() == rows
