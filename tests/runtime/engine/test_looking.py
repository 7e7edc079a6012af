"""What an engine of many queries looks at, and what it leaves alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from querylang import compile_text
from querylang.plan.expression import FieldOf, Type
from querylang.plan.model import Plan
from runtime.admission.filter_index import FilterIndex, Lookup, lookup_of
from runtime.admission.selection import Selector
from runtime.columns.arrivals import Arrivals
from runtime.columns.rows import RepeatedTexts
from runtime.engine import Crossing, families, query_state
from runtime.engine.engine import Engine
from runtime.matching.matchers import KernelMatcher
from runtime.replay.replay import read_records

TYPES = "event A { integer x; string s; float f; }\n"


def plan_of(*filters: str) -> Plan:
    queries = [f"query Q{n} {{ inputs {{ A({wanted}) retain 1; }} find A as a }}" for n, wanted in enumerate(filters)]
    return compile_text(TYPES + "\n".join(queries)).plan


def rows(*values: int) -> list[dict[str, Any]]:
    return [{"at": float(at), "event": "A", "x": x, "s": "ab"[x % 2], "f": x / 2} for at, x in enumerate(values)]


@pytest.mark.parametrize(
    ("wanted", "field", "values", "is_whole"),
    [
        ("x = 1", "x", (1,), True),
        ("1 = x", "x", (1,), True),
        ("x = 1 or x = 2 or x = 1", "x", (1, 2), True),
        ('s in ["a", "b"]', "s", ("a", "b"), True),
        ('f > 1.0 and s = "a"', "s", ("a",), False),
        ("f = 1.0", "f", None, True),
        ("x > 1 and x < 5", "x", None, True),
        ('s.like("a*") and f > x.toFloat()', "s", None, False),
        ('x = 1 or s = "a"', "", None, True),
        ("x.toFloat() > f", "", None, True),
    ],
)
def test_an_input_is_looked_up_by(wanted: str, field: str, values: tuple[Any, ...] | None, is_whole: bool) -> None:
    filter_ = plan_of(wanted).queries[0].inputs[0].filter
    assert filter_ is not None
    found: Lookup = lookup_of(filter_)
    assert (found.field.field if found.field else "", found.values, found.is_whole) == (field, values, is_whole)


SMALLEST, LARGEST = -(2**63), 2**63 - 1

Filter = tuple[str, Callable[[int], bool]]
"""What is written, and for which values of `x` it is true."""


def a_range(least: int, most: int) -> Filter:
    return f"x > {least} and x <= {most}", lambda x: least < x <= most


def ranges(chance: random.Random, *, are_apart: bool) -> list[Filter]:
    if are_apart:
        ends = sorted(chance.sample(range(-5, 60), 10))
        found = [a_range(*ends[at : at + 2]) for at in range(0, 10, 2)]
        limit = 60
    else:
        found = [a_range(*sorted(chance.choices(range(-5, 60), k=2))) for _ in range(5)]
        limit = chance.randrange(60)
    found.append((f"x >= {limit}", lambda x: x >= limit))
    return found if chance.random() < 0.7 else [*found, (f"x > {LARGEST}", lambda _: False)]


def values(chance: random.Random, *, are_apart: bool) -> list[Filter]:
    """They are near each other, or far."""
    step = chance.choice([1, 1, 2, 1_000_000])
    known = [step * n for n in range(20)] + [SMALLEST + 1, LARGEST][: chance.choice([0, 0, 2])]
    own = chance.sample(known, 12) if are_apart else chance.choices(known, k=12)
    pairs = [tuple(own[at : at + 2]) for at in range(0, 12, 2)]
    return [(f"x = {pair[0]} or x = {pair[1]}", pair.__contains__) for pair in pairs]


@pytest.mark.parametrize("seed", range(120))
def test_an_index_finds_the_records_that_filters_are_true_for(seed: int) -> None:
    chance = random.Random(seed)
    wanted = [item for make in (ranges, values) for item in make(chance, are_apart=chance.random() < 0.6)]
    wanted = chance.choice([wanted[:6], wanted[6:], wanted[::-2]])
    own = [chance.choice("AAB") if seed % 2 else "A" for _ in wanted]
    queries = [
        f"query Q{n} {{ inputs {{ {event}({text}) retain 1; }} find {event} as a }}"
        for n, (event, (text, _)) in enumerate(zip(own, wanted, strict=True))
    ]
    plan = compile_text("event A { integer x; }\nevent B { integer x; }\n" + "\n".join(queries)).plan
    far = chance.choice([[], [], [1_000_000, 19_000_000]])
    given: list[int | None] = [chance.choice([*range(-8, 64), *far]) for _ in range(chance.choice([5, 200, 200]))]
    given += [SMALLEST, SMALLEST + 1, LARGEST][: chance.choice([0, 0, 3])] + [None] * chance.choice([0, 0, 2])
    table = [{"at": float(at), "event": chance.choice("AAB"), "x": x} for at, x in enumerate(given)]
    arrivals = read_records([table], plan).arrivals.table
    kinds = arrivals.column("_kind").to_numpy().astype(np.int64)
    index = FilterIndex(plan, [Selector(plan, query).wanted for query in plan.queries])
    found = index.found(RepeatedTexts(arrivals), kinds)
    expected = [
        [
            at
            for at, (row, x) in enumerate(zip(table, given, strict=True))
            if row["event"] == event and x is not None and is_true(x)
        ]
        for event, (_, is_true) in zip(own, wanted, strict=True)
    ]
    assert [found.of(number).tolist() for number in range(len(wanted))] == expected
    asked = sorted(chance.sample(range(len(wanted)), 4))
    pairs = sorted((row, place) for place, number in enumerate(asked) for row in expected[number])
    place, row = found.by_record(asked)
    assert list(zip(row.tolist(), place.tolist(), strict=True)) == pairs
    assert {row for part in found.parts_of(asked) for row in part.tolist()} == {row for row, _ in pairs}


@pytest.mark.parametrize("last", [LARGEST, SMALLEST + 50])
def test_ranges_at_the_ends_of_the_integers_are_told_apart(last: int) -> None:
    """As floats, and so near to each other, they would be one number."""
    bounds = [(last - 10 * n - 9, last - 10 * n) for n in range(5)]
    plan = plan_of(*(f"x >= {low} and x <= {high}" for low, high in bounds))
    given = [last, last - 15, last - 49, last - 20, last] * 20
    arrivals = read_records([rows(*given)], plan).arrivals.table
    kinds = arrivals.column("_kind").to_numpy().astype(np.int64)
    found = FilterIndex(plan, [Selector(plan, query).wanted for query in plan.queries]).found(
        RepeatedTexts(arrivals), kinds
    )
    assert [found.of(number).tolist() for number in range(5)] == [
        [at for at, x in enumerate(given) if low <= x <= high] for low, high in bounds
    ]


def test_records_of_several_event_types_of_a_query_are_in_order() -> None:
    queries = [
        f"query Q{n} {{ inputs {{ A(x = {n}) retain 1; B(x = {n}) retain 1; }} find A as a -> B as b }}"
        for n in range(6)
    ]
    plan = compile_text("event A { integer x; }\nevent B { integer x; }\n" + "\n".join(queries)).plan
    table = [{"at": float(at), "event": "BA"[at % 2], "x": at // 2 % 6} for at in range(60)]
    arrivals = read_records([table], plan).arrivals.table
    kinds = arrivals.column("_kind").to_numpy().astype(np.int64)
    found = FilterIndex(plan, [Selector(plan, query).wanted for query in plan.queries]).found(
        RepeatedTexts(arrivals), kinds
    )
    assert [found.of(number).tolist() for number in range(6)] == [
        [at for at, row in enumerate(table) if row["x"] == number] for number in range(6)
    ]


def test_only_pairs_that_the_index_finds_are_looked_at() -> None:
    plan = plan_of(*(f"x = {n}" for n in range(10)))
    engine = Engine(plan)
    results = engine.process(read_records([rows(*range(10), 1)], plan).arrivals)
    assert (engine.looked_at.looked_at, engine.looked_at.count) == (11, 110)
    assert {title: len(table) for title, table in results.matches.items()} == {
        f"Q{n}": 2 if n == 1 else 1 for n in range(10)
    }


def test_queries_without_a_record_make_no_state_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "FEWEST", 100)
    plan = plan_of(*(f"x = {n}" for n in range(10)))
    engine = Engine(plan)
    engine.process(read_records([rows(3, 3)], plan).arrivals)
    engine.flush()
    begun = [runner.query.title for runner in engine._runners if runner.admission.has_begun]
    assert begun == ["Q3"]
    own = engine.ledger().to_pylist()
    assert {(row["query"], row["what"], row["count"]) for row in own if row["query"] in ("Q3", "Q4")} == {
        *{("Q3", "received", 2), ("Q3", "used", 2)},
        *{("Q4", "received", 2), ("Q4", "filtered", 2)},
    }


def test_expired_events_of_queries_that_were_left_out_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "FEWEST", 100)
    queries = [f"query Q{n} {{ inputs {{ A(x = {n}) within 5.0; }} find A as a -> A as b }}" for n in range(10)]
    plan = compile_text(TYPES + "\n".join(queries)).plan
    engine, table = Engine(plan), read_records([rows(1, *[2] * 20)], plan).arrivals.table
    engine.process(Arrivals(table.slice(0, 1)))
    assert engine.retained() == 1
    engine.process(Arrivals(table.slice(1)))
    assert engine.stored_events() == 6, "that of Q1 has expired, and was left alone"
    assert engine.retained() == 5


def test_a_family_gives_its_queries_their_states() -> None:
    queries = [f"query Q{n} {{ inputs {{ A(x = {n}) within 5.0; }} find A as a -> A as b }}" for n in range(10)]
    plan = compile_text(TYPES + "\n".join(queries)).plan
    engine, table = Engine(plan), read_records([rows(1, *[2] * 20)], plan).arrivals.table
    engine.process(Arrivals(table.slice(0, 1)))
    begun = [runner.query.title for runner in engine._runners if runner.admission.has_begun]
    assert (begun, engine.stored_events()) == ([], 1), "the family has it"
    engine.process(Arrivals(table.slice(1)))
    assert engine.stored_events() == 5, "what has expired is evicted with the records of other queries"
    assert {title: own["events"] for title, own in engine.sizes().items() if own["events"]} == {"Q2": 5}
    again = Engine.restore(plan, engine.snapshot())
    assert {title: own["events"] for title, own in again.sizes().items() if own["events"]} == {"Q2": 5}


def test_a_search_is_left_out_where_no_new_event_can_serve_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [
        f"query Q{n} {{ inputs {{ A() within 50.0; }} find A as a -> A as b where a.x = {n} and b.x = {n + 1} }}"
        for n in range(10)
    ]
    plan, searched = compile_text(TYPES + "\n".join(queries)).plan, list[int]()
    search = KernelMatcher.match

    def counting(self: KernelMatcher, events: Any) -> Any:
        searched.append(len(events.row))
        return search(self, events)

    monkeypatch.setattr(KernelMatcher, "match", counting)
    engine = Engine(plan)
    results = engine.process(read_records([rows(0, 7, 5, 7, 6, 7)], plan).arrivals)
    assert list(results.matches) == ["Q5", "Q6"]
    assert searched == [2, 4], "Q5 sees 5 and 6, and Q6 sees 7, 7, 6 and 7"


def test_terms_of_lookups_are_fields_of_the_event() -> None:
    filter_ = plan_of("x = 1").queries[0].inputs[0].filter
    assert filter_ is not None
    assert lookup_of(filter_).field == FieldOf(Type.INTEGER, 0, "x")


def test_a_query_of_a_family_gets_what_another_engine_begins_to_route() -> None:
    """A live change makes queries of other engines feed those of one that stays as it is."""
    types = "event A { integer x; } event S { integer x; }\n"
    taking = [
        f"query R{n} {{ inputs {{ S(x != -{n}) within 99.0; }} find S as a -> S as b where b.x > {n} }}"
        for n in range(6)
    ]
    feeding = "query P { inputs { A() within 9.0; } find A as a { route S(a.x); } }"
    plan, other = (compile_text(types + text).plan for text in ("".join(taking), feeding))
    other = replace(other, queries=tuple(replace(query, routes=("S",)) for query in other.queries))
    engine, feeder = Engine(plan), Engine(other)
    engine.process(read_records([[{"at": at, "event": "S", "x": 9} for at in (1.0, 2.0)]], plan).arrivals)
    assert engine._families is not None
    assert len(engine._families.members) == 6
    levels = {"P": 0, **{query.name: 1 for query in plan.queries}}
    for each in (engine, feeder):
        each.cross(Crossing(levels, frozenset({"S"})))
    given = [{"at": 3.0, "event": "A", "x": 4}, {"at": 4.0, "event": "S", "x": 1}]
    calls = [
        engine.process_in_rounds(read_records([given[1:]], plan).arrivals),
        feeder.process_in_rounds(read_records([given[:1]], other).arrivals, now=4_000_000),
    ]
    routed = [found for call in calls if (found := next(call)) is not None]
    with pytest.raises(StopIteration) as ended:
        calls[0].send(routed)
    matches = ended.value.value.matches
    found = {title: [row["time"].second for row in table.to_pylist()] for title, table in matches.items()}
    assert found == {"R0": [3, 4], "R1": [3], "R2": [3], "R3": [3]}


def test_what_a_plan_of_very_many_queries_needs_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_state, "_MOST_PARTS", 3)
    plan = plan_of(*(f"x = {n}" for n in range(10)))
    first, again = (query_state.all_parts(plan, "auto") for _ in range(2))
    assert all(one is other for one, other in zip(first, again, strict=True))
