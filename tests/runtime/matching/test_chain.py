"""Chains have a search of their own, and it finds what the reference matcher finds."""

from __future__ import annotations

import random
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest

import querylang
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.instants import NO_TIME
from runtime.matching import matchers
from runtime.matching.choose import kernel_matcher, listing
from runtime.matching.kernel.compilation import compile_query
from runtime.matching.matchers import ChainMatcher

FIELDS = "integer k; float v; integer n; string s; decimal d;"
EVENTS = f"event A {{ {FIELDS} }} event B {{ {FIELDS} }}"


def _text(find: str, window: str = "within 10 seconds") -> str:
    return f"{EVENTS} inputs {{ A() key k {window}; B() key k {window}; }} find {find}"


@pytest.mark.parametrize(
    "find",
    [
        "A as a",
        "A as a -> B as b where b.v > a.v",
        "A as a -> A as b -> B as c where b.v > a.v and c.n = a.n within 5 seconds",
        "A as a -> B as b where b.v > a.v + 1.0 where a.n > 3",
        "A as a -> B as b -> wait(2.0)",
    ],
)
def test_steps_of_one_event_that_compare_are_a_chain(find: str) -> None:
    assert compile_query(querylang.compile_text(_text(find)).plan.queries[0]).ages is not None


@pytest.mark.parametrize(
    ("find", "window"),
    [
        ("A as a or B as b", "within 10 seconds"),
        ("A as a and B as b", "within 10 seconds"),
        ("A as a -> B as b where b.v > a.v or b.n = a.n", "within 10 seconds"),
        ("A as a -> B as b without A as x", "within 10 seconds"),
        ("A as a -> B as b -> A as c within 5 seconds between (a b)", "within 10 seconds"),
        ("A as a -> B as b", "retain 3"),
        ("A as a -> B as b", "within 10 seconds with unique n"),
        ("every A as a select count() as c", "within 10 seconds"),
        ("A as a -> B as b after match skip past last event", "within 10 seconds"),
    ],
)
def test_other_patterns_are_not(find: str, window: str) -> None:
    assert compile_query(querylang.compile_text(_text(find, window)).plan.queries[0]).ages is None


def _comparison(chance: random.Random, names: str) -> str:
    """Of two events, or of one with itself or a number; now and then of texts, of decimals, or about the key alone."""
    sign, one, other = chance.choice(["<", "<=", ">", "=", "!="]), chance.choice(names), chance.choice(names)
    roll = chance.random()
    if roll < 0.2:
        field = chance.choice("sd")
        return f"{one}.{field} {sign} {other}.{field}"
    if roll < 0.3:
        return f"{one}.k {sign} 1"
    sides = [f"{name}.{chance.choice('vn')}" for name in (one, other)]
    sides = [chance.choice([side, side, f"({side} + {chance.randint(-3, 3)})"]) for side in sides]
    return f"{sides[0]} {sign} {chance.choice([sides[1], sides[1], str(chance.randint(-3, 3))])}"


def _table(chance: random.Random, count: int) -> pa.Table:
    rows = range(count)
    # Several events per millisecond, and values that are missing.
    moments = sorted(chance.randrange(count // 2) * 1000 for _ in rows)
    return pa.table(
        {
            "_kind": pa.array([chance.randrange(2) for _ in rows], pa.int16()),
            "_arrival": pa.array(moments, pa.int64()),
            "_source": pa.array(["t"] * count).dictionary_encode(),
            "_partition": pa.array([0] * count, pa.int64()),
            "_place": pa.array([0] * count, pa.int64()),
            "_offset": pa.array(rows),
            "_source_time": pa.array([NO_TIME] * count),
            "k:integer": pa.array([chance.randrange(3) for _ in rows], pa.int64()),
            "v:float": pa.array([None if chance.random() < 0.03 else chance.randint(-9, 9) / 2 for _ in rows]),
            "n:integer": pa.array(
                [None if chance.random() < 0.03 else chance.randint(-5, 5) for _ in rows], pa.int64()
            ),
            "s:string": pa.array([chance.choice(["", "a", "ab", "b", "é"]) for _ in rows]),
            "d:decimal": pa.array([Decimal(chance.randint(-3, 3)) / 2 for _ in rows], pa.decimal128(38, 18)),
        }
    )


def _found(text: str, parts: list[pa.Table], matcher: str) -> list[list[int]]:
    engine = Engine(querylang.compile_text(text).plan, matcher=matcher)
    rows = [
        row for part in parts for table in engine.process(Arrivals(part)).matches.values() for row in table.to_pylist()
    ]
    return [[member["offset"] for member in row["members"].values()] for row in rows]


@pytest.mark.parametrize("seed", range(60))
def test_a_chain_finds_what_the_reference_matcher_finds(seed: int) -> None:
    """Of one to five names, with windows of few events or so many that the search looks ahead, in one call or several."""
    chance = random.Random(seed)
    names = "abcde"[: chance.randint(1, 5)]
    steps = " -> ".join(f"{chance.choice('AB')} as {name}" for name in names)
    steps = f"{chance.choice(['', '', 'wait(0.01) -> '])}{steps}{chance.choice(['', '', ' -> wait(0.02)'])}"
    wheres = " ".join(f"where {_comparison(chance, names)}" for _ in range(chance.randint(0, 4)))
    within = chance.choice(["", "within 0.02 seconds"])
    text = _text(f"{steps} {wheres} {within}", f"within {chance.choice(['0.01', '0.05', '0.2'])} seconds")
    assert compile_query(querylang.compile_text(text).plan.queries[0]).ages is not None
    table = _table(chance, 400)
    size = chance.choice([400, 130, 17])
    parts = [table.slice(start, size) for start in range(0, 400, size)]
    found = _found(text, parts, "kernel")
    assert found == _found(text, parts, "reference")


def _all_found(text: str, parts: list[pa.Table]) -> list[tuple[list[list[int]], list[str]]]:
    engine, found = Engine(querylang.compile_text(text).plan, matcher="kernel"), []
    for part in parts:
        results = engine.process(Arrivals(part))
        rows = [row for table in results.matches.values() for row in table.to_pylist()]
        members = [[member["offset"] for member in row["members"].values()] for row in rows]
        found.append((members, results.outputs.column("text").to_pylist()))
    return found


@pytest.mark.parametrize("most", [3, 10_000], ids=["too many", "all"])
@pytest.mark.parametrize("seed", range(20))
def test_all_matches_of_a_chain_are_those_of_the_general_search(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an order that tells the most recent ones; with so little room that it has to grow, and with too many matches."""
    chance = random.Random(seed)
    names = "abc"[: chance.randint(1, 3)]
    steps = " -> ".join(f"{chance.choice('AB')} as {name}" for name in names)
    wheres = " ".join(f"where {_comparison(chance, names)}" for _ in range(chance.randint(0, 3)))
    text = _text(f"all {steps} {wheres}", f"within {chance.choice([0.02, 0.3])}")
    table = _table(chance, 150)
    cuts = sorted(chance.randint(0, 150) for _ in range(chance.randrange(3)))
    parts = [table.slice(first, stop - first) for first, stop in pairwise([0, *cuts, 150])]
    monkeypatch.setattr(matchers, "LEAST_ROOM", 1)
    monkeypatch.setattr(matchers, "MOST_MATCHES", most)
    plan = querylang.compile_text(text).plan
    assert isinstance(kernel_matcher(plan, plan.queries[0]), ChainMatcher)
    found = _all_found(text, parts)
    monkeypatch.setattr(ChainMatcher, "of", staticmethod(lambda plan, query: None))
    assert found == _all_found(text, parts)


@pytest.mark.parametrize(
    ("find", "window"),
    [
        ("A as a -> B as b -> wait(2.0)", "within 10 seconds"),
        ("wait(2.0) -> A as a -> B as b", "within 10 seconds"),
        ("A as a+ -> B as b", "within 10 seconds"),
        ("A as a -> B as b", "retain 3"),
        ("A as a -> B as b without A as x", "within 10 seconds"),
    ],
)
def test_all_matches_of_other_patterns_have_the_general_search(find: str, window: str) -> None:
    plan = querylang.compile_text(_text(f"all {find}", window)).plan
    assert ChainMatcher.of(plan, plan.queries[0]) is None


def test_a_find_all_of_a_chain_has_the_listing_of_the_chain() -> None:
    texts = [_text(f"{word}A as a -> B as b where b.v > a.v") for word in ("", "all ")]
    first, every = (listing(plan, plan.queries[0]) for plan in (querylang.compile_text(text).plan for text in texts))
    assert first == every
