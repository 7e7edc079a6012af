"""Decimals of several events: the kernel compares their ranks, with the answers of the reference matcher."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import querylang
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.matching.choose import slow_queries
from tests.support.random_columns import random_events

OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
DECIMALS = (None, *map(Decimal, ("0", "-0", "1.5", "3", "-7.25", "1e-18", "99999999999999999999")))
WHERE = (
    "a.d {0} b.d",
    "a.d {0} b.d or b.d {0} 1.50d",
    "a.d * 2.0d {0} b.d",
    "not (a.d {0} b.d and b.v > a.v)",
    "a.d {0} b.d where a.s {0} b.s",
)


def _plan(where: str) -> Plan:
    fields = "{ integer k; integer v; decimal d; string s; }"
    inputs = "A() key k within 9 seconds; B() key k within 9 seconds;"
    text = f"event A {fields} event B {fields} query Q {{ inputs {{ {inputs} }} find A as a -> B as b where {where} }}"
    return querylang.compile_text(text).plan


def _members(plan: Plan, table: pa.Table, matcher: str) -> list[list[Any]]:
    results = Engine(plan, matcher=matcher).process(Arrivals(table))
    rows = [row for matches in results.matches.values() for row in matches.to_pylist()]
    return [[member["offset"] for member in row["members"].values()] for row in rows]


@pytest.mark.parametrize("where", WHERE)
def test_decimals_of_two_events_are_compared_by_rank(where: str) -> None:
    found = 0
    for seed, operator in enumerate(OPERATORS):
        chooser, count = random.Random(seed), 60
        table = random_events(chooser, count, (0.1,))
        decimals = pa.array([chooser.choice(DECIMALS) for _ in range(count)], pa.decimal128(38, 18))
        texts = pa.array([chooser.choice(("", "a", "b", "é")) for _ in range(count)])
        table = table.append_column("d:decimal", decimals).append_column("s:string", texts)
        plan = _plan(where.format(operator))
        assert slow_queries(plan) == []
        expected = _members(plan, table, "reference")
        assert _members(plan, table, "kernel") == expected
        found += len(expected)
    assert found > 20


def test_calculated_decimals_are_slow_and_named_once() -> None:
    reason = "decimals calculated from several events in a condition"
    line = f"query 'Q' runs on the reference matcher, about 100 times slower than a kernel: {reason}"
    assert slow_queries(_plan("a.d - b.d > 1.0d"), 3) == [line]
