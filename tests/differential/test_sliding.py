"""Aggregates of `find every` follow the window: as if all candidates were enumerated, whatever the values."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import querylang
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.matching.choose import why_enumerated
from tests.support.random_columns import random_events

SEEDS = range(60)
AGGREGATES = (
    *("count()", "count(a.v > 1)", "count(a.f)", "sum(a.v)", "sum(a.f)", "sum(a.f * 0.1)", "avg(a.v)", "avg(a.f)"),
    *("min(a.v)", "max(a.v)", "min(a.f)", "max(a.f)", "first(a.f)", "last(a.f)", "first(a.v)", "last(a.n)", "sum(a.n)"),
    *(f"{name}(a.{field})" for name in ("countUnique", "first", "last") for field in ("s", "d", "xs", "o", "t", "f")),
    *(
        "countUnique(a.n)",
        "countUnique(a)",
        "min(a.s)",
        "max(a.s)",
        "min(a.d)",
        "max(a.d * 2.0d)",
        "first(a)",
        "last(a)",
        "first(a).s",
        "last(a).f",
        "last(a).getTime()",
    ),
    *("first(a.s + a.s)", "last(6.0d / a.d)", "countUnique(3 / a.n)", "countUnique(a.k)", 'last([a.s, "x"])'),
)
COLLECTED = (
    *(
        "nth(a.f, 1)",
        "nth(a.v, a.v)",
        "nth(a.s, 0)",
        "nth(a.o, 1)",
        "nth(a.xs, 2)",
        "nth(a.d + 1.0d, 1)",
        "nth(a, a.n)",
    ),
    *("nth(a, 1).s", "nth(a.t, 0)", "percentile(a.f, 50)", "percentile(a.v, 99.5)", "percentile(a.f, a.f)"),
    *("percentile(a.n, a.v * 30)", "stddev(a.f)", "stddev2(a.f)", "stddev(a.n)", "stddev2(a.v)", "stddev(a.f / 0.1)"),
    *("wavg(a.f, a.v)", "wavg(a.v, a.f)", "wavg(a.n, a.n)", "wavg(3 / a.v, a.f)"),
)
"""Those that need all values of a match at once."""
LONGER = ("A as a -> B as b", "A as a or B as b", "A as a and A as c", "A as a and B as b")
ADDED = (
    "A as a -> wait(1.0) as w -> B as b",
    "B as b -> wait(0.5) as w -> A as a",
    "A as a -> wait(1.5) as w -> A as c",
    "A as a and A as c -> wait(1.0) as w -> B as b",
    "(A as a or B as b) -> wait(1.0) as w -> A as d",
    "A as a -> wait(1.0) as w -> (A as c and A as d)",
    "wait(1.0) as u -> A as a -> wait(1.0) as w -> B as b",
    "A as a => B as b",
    "A as a => A as c",
    "B as b -> A as a => A as c",
)
"""Patterns that have a search of their own."""
CLAUSES = (
    "",
    "",
    "",
    "within 3.0",
    "within 2.0",
    "without B as x",
    "without A as x where x.v > 3",
    "within 2.5 without B as x where x.v > 2",
)
WHERE = ("", "", "where a.v > 1", "where a.v != 2 where a.f < 1.0e17", "where a.n > 1", "where 4 / a.v > 1")
WINDOWS = (
    "within 4 seconds",
    "within 12 seconds",
    "retain 3",
    "retain 8",
    "within 6 seconds retain 5",
    "within 1 second",
)
FLOATS = (0.1, 0.2, 0.3, -0.1, 0.0, -0.0, 1e16, -1e16, 1.0, 2.0**-53, 5e-324, -5e-324, 1e-310, 3.5)
ODD_FLOATS = (
    *FLOATS,
    1.7976931348623157e308,
    1.7976931348623157e308,
    -1.7976931348623157e308,
    math.inf,
    -math.inf,
    math.nan,
)


def random_query(chooser: random.Random, added: str = "", aggregates: Sequence[str] = AGGREGATES) -> str:
    """One name, most of the aggregates.

    added: another pattern
    """
    pattern = added or chooser.choice(("A as a", "A as a", "A as a", "A as a", *LONGER))
    texts = chooser.sample(aggregates, min(len(aggregates), chooser.choice((1, 4, 9))))
    if is_tied(pattern):
        texts = [text for text in texts if not re.match(r"nth|percentile.*, a", text)]
        texts = texts or ["count()"]
    selects = " ".join(f"select {text} as s{number}" for number, text in enumerate(texts))
    fields = "integer k; integer v; float f; integer n; string s; decimal d;"
    fields += "sequence<float> xs; optional<string> o; boolean t;"
    unique = chooser.choice(("", "", "", "", "", " with unique v"))
    window = chooser.choice(WINDOWS) + unique
    return f"""
    event A {{ {fields} }} event B {{ {fields} }}
    query Q {{ inputs {{ A() key k {window}; B() key k within 3 seconds; }} find every {pattern} {chooser.choice(WHERE)} {selects} }}
    """


def is_tied(pattern: str) -> bool:
    """Whether one event may serve different names: there the reference matcher asks which candidate is newer."""
    return "A as a and A as c" in pattern or "A as c and A as d" in pattern


def random_collected(chooser: random.Random) -> str:
    """Aggregates that need all values at once, beside others."""
    aggregates = (*COLLECTED, *chooser.sample(AGGREGATES, 3))
    return random_added(chooser, aggregates) if chooser.randrange(3) == 0 else random_query(chooser, "", aggregates)


def random_added(chooser: random.Random, aggregates: Sequence[str] = AGGREGATES) -> str:
    """A pattern with a search of its own."""
    pattern = chooser.choice(ADDED)
    text = random_query(chooser, pattern, aggregates)
    if "c" in re.findall(r"as (.)", pattern) and chooser.randrange(2):
        text = text.replace("select", "where a.v < c.v select", 1)
    return text.replace("select", f"{chooser.choice(CLAUSES)} select", 1)


def found(plan: Plan, table: pa.Table, matcher: str, cuts: list[int]) -> list[str]:
    """The selected values of all matches of a stream that is cut into batches, with the signs of zeros."""
    engine = Engine(plan, matcher=matcher)
    rows: list[Any] = []
    for start, stop in zip([0, *cuts], [*cuts, len(table)], strict=True):
        for matches in engine.process(Arrivals(table.slice(start, stop - start))).matches.values():
            rows.extend((row["key"]["k"], str(row["time"]), row["selected"]) for row in matches.to_pylist())
    return sorted(map(repr, rows))


@pytest.mark.parametrize("queries", [random_query, random_added, random_collected])
@pytest.mark.parametrize("seed", SEEDS)
def test_kernels_aggregate_what_is_enumerated(seed: int, queries: Callable[[random.Random], str]) -> None:
    chooser = random.Random(seed)
    plan = querylang.compile_text(queries(chooser)).plan
    # Plans of an earlier version have no nulls that count.
    plan = replace(plan, queries=tuple(replace(query, nulls_fail=seed % 5 == 4) for query in plan.queries))
    table = random_events(chooser, chooser.choice((30, 60)), ODD_FLOATS if seed % 3 == 0 else FLOATS)
    expected = found(plan, table, "reference", [])
    assert found(plan, table, "kernel", []) == expected
    assert found(plan, table, "kernel", [9, 10, 25]) == expected


def test_most_random_queries_follow_the_window_and_some_do_not() -> None:
    plans = [querylang.compile_text(random_query(random.Random(seed))).plan for seed in SEEDS]
    reasons = [why_enumerated(plan, plan.queries[0]) for plan in plans]
    assert reasons.count(None) >= 20
    assert set(reasons) == {None, "the pattern has several names", "the window is `with unique`"}
