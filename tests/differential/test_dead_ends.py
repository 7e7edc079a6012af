"""Failures that later searches of the same key may use: the kernel finds what the reference matcher finds."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import querylang
from querylang.plan import remembering
from querylang.plan.model import Plan
from querylang.plan.remembering import DeadEndRule, dead_end_rules, memory_rules
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
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


# Repeats that are not consecutive: their searches store failures by several events.

SEEDS_OF_RUNS = range(120)
FIELDS = "integer k; integer v; integer n; float f;"
EVENTS = " ".join(f"event {event} {{ {FIELDS} }}" for event in "AB")
QUANTIFIERS = ("+", "+", "+", "*", " {2,}", " {3,}", " {2,3}", "", "+ consecutive")
OF_RUNS = ("first({}).v", "first({}).v", "last({}).v", "last({}).v", "last({}).n", "prev({}).v", "sum({}.v)")
OF_EVENTS = ("{}.v", "{}.v", "prev({}).v")


def random_query_of_runs(chooser: random.Random) -> str:
    """One to three names, most of them runs, with conditions on their ends and on events before."""
    one = chooser.choice
    runs = [one(QUANTIFIERS) for _ in range(one((1, 2, 2, 2, 3)))]
    runs[-1] = runs[-1].replace("*", "+")
    steps = [f"{one('AAB')} as n{number}{repeat}" for number, repeat in enumerate(runs)]
    pattern = one((" -> ", " -> ", " => ")).join(steps)
    if len(steps) == 3 and one((0, 0, 0, 1)):
        pattern = f"({steps[0]} {one(('and', 'or'))} {steps[1]}) -> {steps[2]}"

    def side() -> str:
        number = chooser.randrange(len(runs))
        return str(one(OF_RUNS if runs[number] else OF_EVENTS)).format(f"n{number}")

    clauses = []
    for _ in range(one((1, 2, 2, 3))):
        name = f"n{chooser.randrange(len(runs))}"
        of_each = f"where {name}.v {one(OPERATORS)} prev({name}).v"
        clauses.append(one((of_each, f"where {side()} {one(OPERATORS)} {side()} + {one((0, 1, 2, -1))}")))
    if one((0, 0, 0, 0, 1)):
        clauses.append(f"without {one('AB')} as x where x.v > {one((1, 2, 3))}")
    inputs = " ".join(f"{event}() key k {one((*WINDOWS, 'within 1 day'))};" for event in "AB")
    return f"{EVENTS} query Q {{ inputs {{ {inputs} }} find {pattern} {' '.join(clauses)} }}"


def plans_of_runs(seeds: range) -> Iterator[tuple[random.Random, Plan]]:
    """Those queries that are legal; a condition may be about each event of one run only."""
    for seed in seeds:
        chooser = random.Random(seed)
        try:
            yield chooser, querylang.compile_text(random_query_of_runs(chooser)).plan
        except querylang.QueryErrors:
            continue


def test_failures_of_runs_lose_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the events of a key come in several batches."""
    monkeypatch.setattr(remembering, "MOST_BOUND", 1000)
    matches = []
    for chooser, plan in plans_of_runs(SEEDS_OF_RUNS):
        table = random_events(chooser, chooser.choice((25, 40)), FLOATS)
        expected = found(plan, table, "reference", [])
        assert found(plan, table, "kernel", []) == expected
        assert sorted(found(plan, table, "kernel", [11, 12]), key=repr) == sorted(expected, key=repr)
        matches.append(len(expected))
    assert sum(count > 0 for count in matches) >= 30
    assert matches.count(0) >= 15


def test_the_queries_of_runs_reach_every_kind_of_failure() -> None:
    """For all searches of a key, by several events, and of a run that failed after one of its events."""
    rules_of_runs = [
        rule for _, plan in plans_of_runs(SEEDS_OF_RUNS) for rule in memory_rules(plan.queries[0]) if rule is not None
    ]
    for has_parts in (False, True):
        for is_lasting in (False, True):
            kinds = [(bool(rule.parts), rule.is_lasting) for rule in rules_of_runs]
            assert kinds.count((has_parts, is_lasting)) >= 5
    assert sum(rule.is_alike and not rule.is_falling for rule in rules_of_runs) >= 5


COUNTED = 160
"""Events, of two keys."""

RISING = "a.v > prev(a).v"
STEPS = {
    "A as a {3,} where last(a).v > 50": COUNTED,
    f"A as a {{3,}} where {RISING} and last(a).v > 50": COUNTED,
    "A as a {3,} where first(a).v > last(a).v + 50": COUNTED**2,
    f"A as a+ -> B as b where {RISING} and last(a).v > 50": COUNTED**2 // 10,
    f"A as a+ -> B as b where {RISING} and b.v > last(a).v + 50": COUNTED**2 // 10,
    f"A as a+ -> B as b where {RISING} and last(a).v > first(a).v + 50": COUNTED**2,
    f"A as a+ -> A as b+ -> B as c where {RISING} and b.v > prev(b).v and last(a).v > 50": COUNTED**2 // 3,
    f"A as a+ -> A as b+ -> B as c where {RISING} and last(a).v > first(b).v + 50 and b.v > prev(b).v": COUNTED**2 // 3,
}
"""Patterns that nothing fulfils, and how many events the searches of all these may bind at most."""

COUNT_STEPS = """
import json, random, sys
import querylang
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from tests.support.random_columns import random_events

def bound_by(query, count):
    engine = Engine(querylang.compile_text(query).plan, matcher="kernel")
    arrivals, names = Arrivals(random_events(random.Random(1), count, (0.1,))), []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
    engine.process(arrivals)
    sys.setprofile(None)
    return names.count("_bind")

queries, count = json.load(sys.stdin)
print(json.dumps([bound_by(query, count) for query in queries]))
"""


def test_searches_over_runs_that_fail_do_not_grow_with_the_choices() -> None:
    """They run as plain Python, in which each event that a search binds is a call."""
    head = f"{EVENTS} query Q {{ inputs {{ A() key k within 1 day; B() key k within 1 day; }} find "
    done = subprocess.run(
        [sys.executable, "-c", COUNT_STEPS],
        input=json.dumps([[f"{head}{find} }}" for find in STEPS], COUNTED]),
        env=os.environ | {"ENSUE_COMPILE": "never"},
        capture_output=True,
        text=True,
        check=True,
    )
    bound = dict(zip(STEPS, json.loads(done.stdout), strict=True))
    assert {find: count for find, count in bound.items() if not 0 < count <= STEPS[find]} == {}
