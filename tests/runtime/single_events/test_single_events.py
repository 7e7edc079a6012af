"""What single events bring is what the engine finds: random queries, one event after another."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import fields, replace

import pytest

from querylang import compile_text
from querylang.plan.expression import Expression
from querylang.plan.model import Input, Plan, QueryPlan, Term
from runtime.columns.arrivals import Arrivals, row_events
from runtime.engine.engine import Engine
from runtime.interpreter.context import Context, PlanWorld
from runtime.interpreter.expressions import evaluate
from runtime.interpreter.values import Value
from runtime.matching.find_every import aggregates_of
from runtime.results.schemas import Results, in_order
from runtime.single_events import windows
from runtime.single_events.events import CallResults, SingleEvents, can_foresee
from runtime.single_events.windows import FoundMatch, SingleEvent, UnforeseenError
from tests.differential.compare import plan_of
from tests.differential.patterns import random_queries
from tests.support.scenario import EVENTS, Scenario, arrivals_of

_ORDER = ("_step", "_rank")


def foreseeable(seed: int) -> tuple[list[Scenario], Plan]:
    """Random queries over one stream without heartbeats, and without records that are not events."""
    scenarios = []
    for scenario in random_queries(seed, 3):
        inputs = tuple(
            replace(item, heartbeat=None, time="column" if item.time == "field" else item.time)
            for item in scenario.inputs
        )
        rows = tuple(row for row in scenario.rows if row.kind in EVENTS)
        rows = tuple(row for row in rows if None not in (row.k, row.c, row.v, row.f, row.s, row.g))
        scenarios.append(replace(scenario, inputs=inputs, rows=rows))
    plan = plan_of(*scenarios)
    first, *others = plan.queries
    told = replace(first, metadata=(("severity", "high"), ("owner", "us")), shows_metadata=True)
    return scenarios, replace(plan, queries=(told, *others))


def single(plan: Plan, record: Arrivals) -> SingleEvent:
    """The event of a table with one record."""
    row = record.table.to_pylist()[0]
    event = plan.events[row["_kind"]]
    values = row_events(event, record.table, PlanWorld(plan), [None])[0].values
    place = (row["_source"], row["_partition"], row["_offset"])
    return SingleEvent(event, values, row["_arrival"], place, row["_source_time"])


def facts(results: Results) -> str:
    """The rows of matches and outputs, in order; as text, in which NaN equals NaN."""
    matches = {
        name: table.drop_columns(list(_ORDER)).to_pylist() for name, table in results.matches.items() if len(table)
    }
    return str((matches, results.outputs.drop_columns(list(_ORDER)).to_pylist()))


def test_single_events_bring_what_the_engine_finds(request: pytest.FixtureRequest) -> None:
    count: int = max(8, request.config.getoption("--streams") // 4)
    first: int = request.config.getoption("--streams-seed") * 1_000_000
    seen = sum((found_by_both(seed) for seed in range(first, first + count)), Counter[str]())
    assert seen["told"] > seen["calls"] / 2
    assert seen["matches"] > 10


def test_a_new_part_of_plans_is_thought_of_here() -> None:
    """Whoever adds a field to these decides in `can_foresee` whether single events bring the same with it."""
    known = {
        Plan: "events queries stopped",
        QueryPlan: "name keys inputs terms automaton conditions block slots actions leading trailing decided_late every"
        " parameters metadata instance pattern forget_keys selects skip finds_all edition starts ends"
        " nulls_fail at_most shows_metadata routes tables",
        Term: "name input is_optional sides group may_be_empty side",
        Input: "event keys filter within retain unique wait time_from out_of_order heartbeat policy sources new"
        " optional_keys role",
    }
    assert {kind: {field.name for field in fields(kind)} for kind in known} == {
        kind: set(names.split()) for kind, names in known.items()
    }


def test_what_has_columns_for_its_place_is_left_to_the_engine() -> None:
    plan = compile_text("event A { integer k; } query Q { inputs { A() within 9.0; } find A as a }").plan
    event = plan.events[0]
    for place, is_known in ((("t", 0, 1), True), (None, False)):
        found = SingleEvents(Engine(plan)).take(SingleEvent(event, {"k": 1}, 0, place))
        assert (found is not None) == is_known


@pytest.mark.parametrize(
    "text", ["find all A as a", "find A as a select a.k as n", "find A as a after match skip past last event"]
)
def test_what_only_the_engine_selects_is_left_to_it(text: str) -> None:
    plan = compile_text(f"event A {{ integer k; }} query Q {{ inputs {{ A(k > 0) within 9.0; }} {text} }}").plan
    for value, known in ((0, []), (1, None)):
        found = SingleEvents(Engine(plan)).take(SingleEvent(plan.events[0], {"k": value}, 0, ("t", 0, 1)))
        assert found == known


def test_blocks_that_a_limit_cuts_off_are_left_to_the_engine() -> None:
    text = "event A { integer k; } query Q { inputs { A() within 9.0; } find A as a { while true { } } }"
    plan = compile_text(text).plan
    (query,), event = plan.queries, plan.events[0]
    found = SingleEvents(Engine(plan)).take(SingleEvent(event, {"k": 1}, 0, ("t", 0, 1)))
    assert found
    early = CallResults(plan).of([(0, query, found[0][1])])
    assert len(early) == 1
    assert early.tables is None


def found_by_both(seed: int) -> Counter[str]:
    """Compares; counts calls and matches."""
    scenarios, plan = foreseeable(seed)
    chooser, results, seen = random.Random(seed), CallResults(plan), Counter[str]()
    assert can_foresee(plan)
    engine, events = Engine(plan), None
    for item in scenarios[0].ordered():
        record = arrivals_of(scenarios, plan, [item])
        if events is None or chooser.random() < 0.1:
            events = SingleEvents(engine)
        brought: list[tuple[int, QueryPlan, FoundMatch]] | None = None
        event = single(plan, record)
        try:
            timers, found = events.advance(event.arrival), events.take(event)
            if timers is not None and found is not None:
                brought = [*((-1, *timer) for timer in timers), *((0, *match) for match in found)]
        except UnforeseenError:
            events = None
        expected = in_order(plan, engine.process(record))
        seen["calls"] += 1
        if brought is not None:
            early = results.of(brought)
            told = early.tables
            assert told is not None
            assert len(early) == len(brought)
            assert facts(told) == facts(expected)
            assert {name: table.schema for name, table in told.matches.items()} == {
                name: table.schema for name, table in expected.matches.items() if len(table)
            }
            seen["told"] += 1
            seen["matches"] += len(brought)
    return seen


def test_a_find_every_of_one_name_asks_each_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "find every A as a where a.k != 7 select avg(a.k) as mean select last(a) as newest select count() as n"
    plan = compile_text(f"event A {{ integer k; }} query Q {{ inputs {{ A() retain 250; }} {text} }}").plan
    arguments = [argument for node in aggregates_of(plan.queries[0]) for argument in node.arguments]
    asked: list[object] = []

    def watched(node: Expression, context: Context) -> Value:
        asked.extend([node] if node in arguments else [])
        return evaluate(node, context)

    monkeypatch.setattr(windows, "evaluate", watched)
    events, event = SingleEvents(Engine(plan)), plan.events[0]
    for number in range(300):
        found = events.take(SingleEvent(event, {"k": number}, number, ("t", 0, number)))
        assert found is not None
        assert len(found) == (number != 7)
    (_, finding), *_ = found
    assert finding.selected == {"mean": sum(range(50, 300)) / 250, "n": 250}
    assert [None if member is None else member.place for member in finding.members] == [("t", 0, 299)]
    assert len(asked) == 2 * 299
