"""Failures that later searches of the same key may use: the kernel finds what the reference matcher finds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import querylang
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.matching.remembering import DeadEndRule, dead_end_rules
from tests.support.random_columns import random_events

SEEDS = range(60)
FLOATS = (0.1, 0.5, 3.0)
OPERATORS = ("<", "<=", "=", ">", "!=")
WINDOWS = (
    "within 9 seconds",
    "within 20 seconds",
    "retain 6",
    "retain 9",
    "retain 9 with unique n",
    "within 15 seconds with unique n",
)


def random_query(chooser: random.Random) -> str:
    """Three to five names of two inputs, compared in pairs and threes, so that most searches fail."""
    one = chooser.choice
    names = [(one("AB"), f"n{number}") for number in range(one((3, 4, 4, 5, 5)))]
    steps = [f"{event} as {name}" for event, name in names]
    pattern = " -> ".join(steps)
    if one((0, 0, 0, 1)):
        pattern = f"({steps[0]} {one(('and', 'or'))} {steps[1]}) -> {' -> '.join(steps[2:])}"
    # No condition may be about both sides of an `or`.
    compared = [name for _, name in names if name != "n1" or " or " not in pattern]
    clauses = [f"where {_comparison(one, compared)}" for _ in range(one((1, 1, 2, 2, 3)))]
    if one((0, 0, 1)):
        clauses.append(f"within {one((4, 8, 12))} seconds")
    if one((0, 0, 0, 0, 1)):
        clauses.append(f"without {one('AB')} as x where x.v > {one((1, 2, 3))}")
    find = one(("find", "find", "find every"))
    select = " select count() as c select sum(n0.v) as s" if find == "find every" and " or " not in pattern else ""
    find = find if select else "find"
    inputs = " ".join(f"{event}() key k {one(WINDOWS)};" for event in "AB")
    fields = "integer k; integer v; integer n; float f;"
    events = " ".join(f"event {event} {{ {fields} }}" for event in "AB")
    return f"{events} query Q {{ inputs {{ {inputs} }} {find} {pattern} {' '.join(clauses)}{select} }}"


def _comparison(choose: Callable[[Sequence[Any]], Any], names: list[str]) -> str:
    about = [choose(names) for _ in range(choose((2, 3, 3)))]
    if len(about) == 2:
        return f"{about[0]}.v {choose(OPERATORS)} {about[1]}.v + {choose((0, 2))}"
    return f"{about[0]}.v + {about[1]}.v {choose(OPERATORS)} {about[2]}.v * 2"


def found(plan: Plan, table: pa.Table, matcher: str, cuts: list[int]) -> list[dict[str, object]]:
    """All matches of a stream that is cut into batches."""
    engine = Engine(plan, matcher=matcher)
    rows: list[dict[str, object]] = []
    for start, stop in zip([0, *cuts], [*cuts, len(table)], strict=True):
        for matches in engine.process(Arrivals(table.slice(start, stop - start))).matches.values():
            rows.extend(
                matches.drop_columns([name for name in ("_step", "_rank") if name in matches.column_names]).to_pylist()
            )
    return rows


def rules(plan: Plan) -> Iterator[DeadEndRule]:
    """The rules of the only query's states."""
    return (item for item in dead_end_rules(plan.queries[0]) if item is not None)


@pytest.mark.parametrize("seed", SEEDS)
def test_failures_of_earlier_searches_lose_no_match(seed: int) -> None:
    chooser = random.Random(seed)
    plan = querylang.compile_text(random_query(chooser)).plan
    table = random_events(chooser, chooser.choice((40, 70)), FLOATS)
    expected = found(plan, table, "reference", [])
    assert found(plan, table, "kernel", []) == expected
    # Results of one batch come key by key.
    assert sorted(found(plan, table, "kernel", [11, 12, 30]), key=repr) == sorted(expected, key=repr)


def test_the_queries_reach_every_kind_of_dead_end() -> None:
    """Of one event and of several, for one search and for all of a key."""
    plans = [querylang.compile_text(random_query(random.Random(seed))).plan for seed in SEEDS]
    kinds = [(len(rule.terms), rule.is_lasting) for plan in plans for rule in rules(plan)]
    for terms in range(3):
        assert kinds.count((terms, True)) >= 2
        assert kinds.count((terms, False)) >= 2


def test_some_random_streams_bring_matches() -> None:
    """Else the comparison would say nothing; most searches fail all the same."""
    counts = []
    for seed in SEEDS[:20]:
        chooser = random.Random(seed)
        plan = querylang.compile_text(random_query(chooser)).plan
        counts.append(len(found(plan, random_events(chooser, 40, FLOATS), "reference", [])))
    assert sum(count > 0 for count in counts) >= 8


@pytest.mark.parametrize("seed", range(60))
def test_a_missing_value_of_the_last_event_of_another_type_is_seen(seed: int) -> None:
    """The pattern's first name is of one type; the missing values are those of the other one."""
    fields = "integer k; integer v; integer n; float f;"
    text = f"""
    event A {{ {fields} }} event B {{ {fields} }}
    query Q {{
        inputs {{ A() key k retain 9; B() key k retain 9 with unique n; }}
        find B as b+ consecutive -> A as a+ consecutive
            where last(b).v > last(a).n + 0 and last(a).v < first(a).v + 0 and b.v > prev(b).v
            without A as x where x.v > 3
    }}
    """
    plan = querylang.compile_text(text).plan
    table = random_events(random.Random(seed), 40, FLOATS)
    assert found(plan, table, "kernel", []) == found(plan, table, "reference", [])
