"""Queries with equal inputs share what is admitted and stored: each still finds what the oracle finds for it alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from querylang import compile_text
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.reading.tables import read_arrivals
from runtime.replay.replay import read_records
from tests.differential.compare import check_together, plan_of
from tests.differential.streams import Drawing, random_scenario
from tests.support.patterns import Clause, Where, Within, chain, leaves_of
from tests.support.scenario import SECOND, Scenario, arrivals_of


def alike(seed: int, count: int) -> list[Scenario]:
    """Queries over one stream with the same inputs, and other patterns, conditions and lengths."""
    base, choose = random_scenario(seed), random.Random(seed)
    events = [item.event for item in base.inputs]
    drawing, found = Drawing(choose.choice), [replace(base, name="Q0")]
    for number in range(1, count):
        pattern = chain(*choose.choices(events, k=choose.choice((1, 2, 2, 3))))
        clauses: list[Clause] = [Where(drawing._condition(leaves_of(pattern)))] if choose.random() < 0.7 else []
        clauses += [Within(choose.choice((2, 5, 20)) * SECOND)] if choose.random() < 0.3 else []
        same = base.clauses if choose.random() < 0.2 else tuple(clauses)
        pattern = base.pattern if same is base.clauses else pattern
        prints = choose.random() < 0.3
        found.append(replace(base, name=f"Q{number}", pattern=pattern, clauses=same, prints=prints))
    return found


@pytest.mark.parametrize("seed", range(25))
def test_queries_that_share_give_what_each_gives_alone(seed: int) -> None:
    check_together(alike(seed, 5), seed=seed)


def test_queries_with_equal_inputs_store_their_events_once() -> None:
    several = alike(3, 5)
    states = []
    for scenarios in ([several[0]], several):
        plan = plan_of(*scenarios)
        engine = Engine(plan)
        engine.process(arrivals_of(scenarios, plan, scenarios[0].ordered()))
        states.append(len(engine.snapshot()))
        restored = Engine.restore(plan, engine.snapshot())
        assert len({id(runner.admission) for runner in restored._runners}) == 1
    assert states[1] < 1.5 * states[0], "five queries over the same events"


LOOPING = """
event A { string k; string does; }
query Loops { inputs { A() key k retain 2; } find A as a {
    if a.does = "loop" { string s := "x"; while true { s := s + s; } }
    print "ran"; } }
query Prints { inputs { A() key k retain 2; } find A as a -> A as b { print a.does + b.does; } }
query Finds { inputs { A() key k retain 2; } find A as a -> A as b where a.does != b.does }
"""


def test_a_query_leaves_the_others_when_its_blocks_are_cut_off() -> None:
    choose = random.Random(1)
    rows = [
        {"at": float(at), "event": "A", "k": choose.choice("xy"), "does": choose.choices(("loop", "end"), (25, 1))[0]}
        for at in range(60)
    ]
    whole = compile_text(LOOPING).plan
    arrivals = read_records([rows], whole).arrivals
    found: dict[str, list[object]] = {}
    for titles in (["Loops", "Prints", "Finds"], ["Loops"], ["Prints"], ["Finds"]):
        engine = Engine(type(whole)(whole.events, tuple(whole.query(title) for title in titles)))
        told: dict[str, list[object]] = {title: [] for title in titles}
        for first in range(0, 60, 7):
            results = engine.process(Arrivals(arrivals.table.slice(first, 7)))
            for title in titles:
                of_query = pc.equal(results.outputs.column("query"), title)
                told[title].extend(results.outputs.filter(of_query).to_pylist())
                told[title].extend(results.matches[title].to_pylist() if title in results.matches else [])
            engine = Engine.restore(engine.plan, engine.snapshot()) if first % 2 else engine
        for title, own in told.items():
            assert found.setdefault(title, own) == own, title
        assert len({id(runner.admission) for runner in engine._runners}) == min(2, len(titles))
    assert "not run" in str(found["Loops"])


def test_what_one_query_forgets_others_keep() -> None:
    plan = compile_text(LOOPING).plan
    rows = [{"at": float(at), "event": "A", "k": "x", "does": "end"} for at in range(3)]
    engine, key = Engine(plan), [pa.scalar("x")]
    engine.process(read_records([rows], plan).arrivals)
    forgotten, _ = engine.forget_key("Prints", key)
    assert len(forgotten.events) == 2
    assert engine.key_contents("Prints", key).is_empty
    assert len(engine.key_contents("Finds", key).events) == 2


def test_later_queries_begin_empty_and_share_once_their_windows_are_full() -> None:
    plan = compile_text(LOOPING).plan
    some = type(plan)(plan.events, plan.queries[:2])
    rows = [{"at": float(at), "event": "A", "k": "x", "does": str(at)} for at in range(8)]
    arrivals = read_records([rows], plan).arrivals.table
    engine = Engine(some)
    engine.process(Arrivals(arrivals.slice(0, 4)))
    engine, _ = engine.followed_by(plan, {})
    assert len({id(runner.admission) for runner in engine._runners}) == 2
    first = engine.process(Arrivals(arrivals.slice(4, 1)))
    assert "Finds" not in first.matches, "its window was empty"
    assert "Prints" in first.matches
    assert len(engine.process(Arrivals(arrivals.slice(5, 3))).matches["Finds"]) == 3
    engine = Engine.restore(plan, engine.snapshot())
    assert len({id(runner.admission) for runner in engine._runners}) == 1


def test_queries_that_were_alone_before_share_nothing_but_what_is_equal() -> None:
    """An engine keeps what it has made of a query for the next one in this process."""
    inputs = [
        "A(v = 1) key k within 9.0;",
        "A(v > 0) key k within 9.0;",
        "A(v = 1) key k within 9.0; B() key k within 9.0;",
    ]
    events = "event A { integer k; integer v; } event B { integer k; } "
    text = events + " ".join(f"query Q{n} {{ inputs {{ {own} }} find A as a }}" for n, own in enumerate(inputs))
    plan = compile_text(text).plan
    arrivals = read_arrivals([{"at": at, "event": "A", "k": 0, "v": at % 3} for at in range(12)], plan)
    alone = [
        len(Engine(replace(plan, queries=(query,))).process(arrivals).matches[query.title]) for query in plan.queries
    ]
    together = Engine(plan).process(arrivals).matches
    assert [len(together[query.title]) for query in plan.queries] == alone == [4, 8, 4]
