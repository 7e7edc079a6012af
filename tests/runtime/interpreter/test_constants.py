"""Lists and dictionaries that a text spells out: looked up, and never made anew for each event."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import ensue
from querylang import compile_text
from querylang.plan.expression import Expression, Type
from querylang.plan.model import Plan, QueryPlan
from runtime.column_types import arrow_type
from runtime.columns.arrivals import column_name
from runtime.columns.expressions import as_array
from runtime.interpreter.context import Context, PlanWorld
from runtime.interpreter.expressions import evaluate
from runtime.interpreter.values import Event

FIELDS = "boolean flag; integer number; float size; decimal price; string text;"
ROWS: list[dict[str, Any]] = [
    {"flag": True, "number": 3, "size": -0.0, "price": Decimal("1.5"), "text": "b"},
    {"flag": False, "number": -2, "size": math.nan, "price": Decimal(2), "text": ""},
    {"flag": None, "number": None, "size": None, "price": None, "text": None},
    {"flag": True, "number": 2**62, "size": 1e300, "price": Decimal(-7), "text": "é"},
]
LISTS = {
    "flag": ("[true, false, true]", [True, False, True]),
    "number": ("[7, -2, 3, -2, 4611686018427387904]", [7, -2, 3, -2, 2**62]),
    "size": ("[0.5, 0.0, -0.0, 0.0/0.0, 1e300]", [0.5, 0.0, -0.0, math.nan, 1e300]),
    "price": ("[-7d, 1.50d, 1.5d]", [Decimal(-7), Decimal("1.5"), Decimal("1.5")]),
    "text": ('["a", "é", "", "b", ""]', ["a", "é", "", "b", ""]),
}


def selected(expression: str) -> tuple[Expression, Plan, QueryPlan]:
    query = f"query Q {{ inputs {{ A() retain 1; }} find A as a select {expression} as x {{ print(x.toString()); }} }}"
    text = f"event A {{ {FIELDS} }}\n{query}"
    plan = compile_text(text, "q.query").plan
    return plan.queries[0].selects[0].value, plan, plan.queries[0]


def by_columns(expression: str) -> list[Any]:
    node, plan, query = selected(expression)
    columns = {
        column_name(field.name, field.type): pa.array([row[field.name] for row in ROWS], arrow_type(field.type, plan))
        for field in plan.event("A").fields
    }
    table = pa.table(columns)
    return as_array(node, table, plan, plan.event("A"), query).to_pylist()


def one_by_one(expression: str) -> list[Any]:
    node, plan, query = selected(expression)
    return [evaluate(node, Context(events=[Event(plan.event("A"), row)], world=PlanWorld(plan, query))) for row in ROWS]


def first_place(values: Sequence[Any], wanted: Any) -> int | None:
    return None if wanted is None else next((place for place, value in enumerate(values) if value == wanted), -1)


@pytest.mark.parametrize("ways", [by_columns, one_by_one])
@pytest.mark.parametrize("field", LISTS)
def test_a_value_is_found_where_it_is_first(field: str, ways: Any) -> None:
    text, values = LISTS[field]
    places = [first_place(values, row[field]) for row in ROWS]
    assert ways(f"{text}.indexOf(a.{field})") == places
    assert ways(f"{text}.contains(a.{field})") == [None if place is None else place >= 0 for place in places]


@pytest.mark.parametrize("ways", [by_columns, one_by_one])
def test_other_questions_have_the_answers_of_a_new_container(ways: Any) -> None:
    assert ways("[5, 6].getOr(a.number, a.number)") == [3, -2, None, 2**62]
    assert ways('({"b": 1, "é": 2}).getOr(a.text, 0)') == [1, 0, None, 2]
    assert ways('({"b": 1, "é": 2}).hasKey(a.text)') == [True, False, None, True]
    assert ways("[5, 6, 7].size() + a.number") == [6, 1, None, 2**62 + 3]


@pytest.mark.parametrize(
    "values",
    [
        [0],
        [-3, 5, 4, 5],
        [2**63 - 1, 2**63 - 3],
        [-(2**63), -(2**63) + 2],
        [-(2**63), 2**63 - 1, 7],
        [0, 64 * 2],
        [0, 64 * 2 + 1],
    ],
)
def test_numbers_near_and_far_apart_are_found(values: list[int]) -> None:
    edges = [-(2**63), 2**63 - 1, -1, 0, 1, *values, *(value + 1 for value in values if value < 2**63 - 1)]
    node, plan, query = selected(f"[{', '.join(map(str, values))}].contains(a.number)")
    table = pa.table({column_name("number", Type.INTEGER): pa.array([*edges, None], pa.int64())})
    expected = [edge in values for edge in edges] + [None]
    assert as_array(node, table, plan, plan.event("A"), query).to_pylist() == expected


def test_a_list_with_parts_of_the_event_is_made_for_each() -> None:
    for ways in (by_columns, one_by_one):
        assert ways("[1, a.number].contains(a.number)") == [True, True, None, True]


def test_a_block_that_changes_its_list_begins_anew() -> None:
    query = """
event A { integer n; }
query Q { inputs { A() retain 1; } find A as a { sequence<integer> xs := [1]; xs.append(a.n); print(xs.toString()); } }
"""
    answer = ensue.replay(query, [{"event": "A", "at": float(n), "n": n} for n in range(3)])
    assert answer.outputs["text"].tolist() == ["[1,0]", "[1,1]", "[1,2]"]


def test_a_long_list_costs_no_memory_per_row() -> None:
    values = ", ".join(map(str, range(5_000)))
    node, plan, query = selected(f"[{values}].contains(a.number)")
    table = pa.table({column_name("number", Type.INTEGER): pa.array(range(20_000))})
    tracemalloc.start()
    try:
        found = as_array(node, table, plan, plan.event("A"), query)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.true_count == 5_000
    assert peak < 20 << 20  # bytes; made for each row, it would be 100 million elements
