"""Events that serve several inputs of one key: the kernels against the reference matcher, in calls of any size."""

from __future__ import annotations

import random
from typing import Any

import pytest

import querylang
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.matching.shared_events import knows_shared_events
from runtime.reading.tables import read_arrivals
from runtime.results.schemas import Results, in_order

EVENTS = """
event P { integer k; integer j; float v; float w; string s; }
event N { integer k; float v; float w; }
"""
WINDOWS = ("within 20.0", "within 6.0", "retain 2", "retain 1", "within 30.0 retain 3", "retain 4 with unique v")
FILTERS = ("", "", "", "v >= 1.0", "v < 3.0", 's = "x"')
CONDITIONS = ("", "where a.v < b.v", "where a.v + b.w > 2.0", "where a.v = b.v", "where a.v < b.v within 8.0")
PATTERNS = (
    "find {0} as a -> {1} as b {where}",
    "find {0} as a -> {1} as b {where}",
    "find all {0} as a -> {1} as b {where}",
    "find {0} as a -> {1} as b -> {2} as c where a.v < b.v and b.v <= c.v",
    "find {0} as a -> {1} as b -> {2} as c where a.v < c.v within 9.0 between (a b)",
    "find {0} as a -> ({1} as b or {2} as c) where a.v < 3.0",
    "find ({0} as c or {1} as a) -> {2} as b {where}",
    "find {0} as a -> {1} as b {where} after match skip past last event",
    "find {0} as a -> {1} as b -> {2} as c where a.v < c.v after match skip to first b",
    "find {0} as a -> {1} as b where a.v < b.v without {2} as x where x.v > 2.0",
    "find {0} as a -> {1} as b without N as x where x.v > b.v between (a b)",
    "find {0} as a -> wait(3.0) as t -> {1} as b {where}",
    "find {0} as a -> {1} as b -> wait(3.0) as t {where}",
    "find {0} as a -> {1} as b -> wait(3.0) as t without {2} as x where x.v > a.v",
    "find {0} as a+ -> {1} as b where last(a).v < b.v without {2} as x where x.v > 2.0",
    "find {0} as a -> wait(2.0) as t -> {1} as b without {2} as x between (a t)",
    "find {0} as a+ -> {1} as b without {2} as x between (a b)",
    "find {0} as a => {1} as b -> wait(3.0) as t where a.v < b.v without {2} as x",
    "find wait(2.0) as t -> {0} as a -> {1} as b {where} without {2} as x",
    "find {0} as a => {1} as b {where}",
    "find {0} as a => {1} as b -> {2} as c where a.v < c.v",
    "find {0} as a => {1} as b -> wait(3.0) as t without N as x",
    "find {0} as a and {1} as b {where}",
    "find every {0} as a -> {1} as b {where} select count() as m select sum(a.v) as n",
    "find every {0} as a -> {1} as b where a.v < b.v select first(a) as m select last(b) as n",
    "find every {0} as a -> {1} as b -> {2} as c where a.v < c.v select countUnique(b.v) as m select avg(a.w) as n",
    "find every {0} as a select count() as m select last(a) as n having m > 1",
    "find {0} as a -> {1} as b? -> {2} as c where a.v < c.v",
    "find {0} as a+ -> {1} as b where last(a).v < b.v",
    "find {0} as a+ consecutive => {1} as b where a.v <= prev(a).v",
    "find {0} as a {{2,}} -> {1} as b where a.v < prev(a).v after match skip to last a",
    "find ({0} as a -> {1} as c) {{2}} -> {2} as b where last(a).v < b.v",
    "find {0} as a+ -> wait(2.0) as t -> {1} as b where last(a).v < b.v",
    "find all {0} as a+ -> {1} as b where first(a).v < b.v",
)


def a_text(chance: random.Random) -> str:
    roles, wait = ("one", "two", "three")[: chance.choice([2, 2, 3])], chance.choice(["", " wait 2.0"])
    inputs = [
        f"P({chance.choice(FILTERS)}) as {role} key {chance.choice(['k', 'k', 'k', 'j as k'])} "
        f"{chance.choice(WINDOWS)}{wait};"
        for role in roles
    ]
    inputs.append(f"N() key k {chance.choice(WINDOWS)}{wait};")
    names = [chance.choice([*roles, *roles, "N"]) for _ in range(3)]
    find = chance.choice(PATTERNS).format(*names, where=chance.choice(CONDITIONS))
    return f'{EVENTS}query Q {{ inputs {{ {" ".join(inputs)} }} {find} {{ print "x"; }} }}'


def rows(chance: random.Random) -> list[dict[str, Any]]:
    at, found = 100, []
    for _ in range(chance.randint(5, 40)):
        at += chance.choice([0, 0, 1, 1, 2, 5])
        row = {"at": at, "ts": float(at - chance.choice([0, 0, 0, 1, 3])), "event": chance.choice("PPPPN")}
        row |= {"k": chance.choice([1, 1, 1, 2]), "j": chance.choice([1, 1, 2]), "s": chance.choice("xy")}
        found.append(row | {"v": float(chance.randint(0, 4)), "w": float(chance.randint(0, 3))})
    return found


def matches(plan: Plan, arrivals: Arrivals, matcher: str, cuts: random.Random | None = None) -> list[str]:
    """What is found, without when it was; with `cuts` in calls of any size, and by engines that are restored."""
    engine, at, found = Engine(plan, matcher), 0, list[str]()

    def add(results: Results) -> None:
        table = in_order(plan, results).matches.get("Q")
        rows = [] if table is None else table.to_pylist()
        found.extend(
            str({name: row[name] for name in row if name[0] != "_" and name not in ("match_id", "emitted")})
            for row in rows
        )

    while at < len(arrivals):
        size = len(arrivals) if cuts is None else cuts.choice([1, 2, 5, 100])
        add(engine.process(Arrivals(arrivals.table.slice(at, size))))
        at += size
        if cuts is not None and cuts.random() < 0.4:
            engine = Engine.restore(plan, engine.snapshot(), matcher)
    add(engine.flush())
    return found


@pytest.mark.parametrize("block", range(4))
def test_kernels_find_what_the_reference_matcher_finds(block: int) -> None:
    on_kernel = count = 0
    for seed in range(50 * block, 50 * block + 50):
        chance = random.Random(seed)
        text = a_text(chance)
        plan = querylang.compile_text(text).plan
        given = rows(chance)
        arrivals = read_arrivals(given, plan)
        expected = matches(plan, arrivals, "reference")
        assert matches(plan, arrivals, "auto") == expected, (seed, text, given)
        assert sorted(matches(plan, arrivals, "auto", chance)) == sorted(expected), (seed, text, given)
        count += len(expected)
        on_kernel += knows_shared_events(plan.queries[0])
    assert count > 90
    assert 25 < on_kernel < 50, "both are asked: the kernels that know such events, and keys by their matchers"


@pytest.mark.parametrize("pattern", ["all one as a", "one as a {1}", "all one as a after match skip to last a"])
def test_a_match_of_one_event_is_found_though_the_last_of_its_roles_is_another(pattern: str) -> None:
    inputs = "P() as one key k within 20.0; P(v >= 1.0) as two key k within 20.0;"
    plan = querylang.compile_text(f"{EVENTS}query Q {{ inputs {{ {inputs} }} find {pattern} }}").plan
    row = {"ts": 1.0, "event": "P", "k": 1, "j": 1, "s": "x", "w": 0.0}
    arrivals = read_arrivals([{**row, "at": at, "v": float(at)} for at in range(3)], plan)
    assert len(matches(plan, arrivals, "auto")) == 3
    assert matches(plan, arrivals, "auto") == matches(plan, arrivals, "reference")
