"""What the plan says: automaton, places of conditions, keys, clocks, event types."""

from __future__ import annotations

import json

import pytest

from querylang import QueryErrors, Source, Type, check_text, compile_text
from querylang import plan as plans
from querylang.automaton import ACCEPT, Automaton, State, Transition
from querylang.expression import FieldOf
from querylang.plan import EventType, Field, Heartbeat, QueryPlan

A = "event A { integer id; integer x; boolean b; }\nevent B { integer id; integer x; }\n"


def query(text: str) -> QueryPlan:
    return compile_text(A + text).plan.queries[0]


def test_a_sequence_is_consumed_from_its_end() -> None:
    plan = query("inputs { A() within 3; B() within 3; } find A as a -> B as b -> A as c")
    assert plan.automaton == Automaton(
        (
            State((Transition(0, (2,), (), 1),)),
            State((Transition(1, (1,), (), 2),)),
            State((Transition(0, (0,), (), ACCEPT),)),
        )
    )
    assert [(term.name, term.input) for term in plan.terms] == [("a", 0), ("b", 1), ("c", 0)]


def test_one_term_accepts_at_once() -> None:
    assert query("inputs { A() within 3; } find A as a").automaton == Automaton(
        (State((Transition(0, (0,), (), ACCEPT),)),)
    )


CHECKED_AT = {
    "c.x = 3": 0,
    "b.x = c.x": 1,
    "b.x = 3": 1,
    "a.x = c.x": 2,
    "a.x = 3": 2,
    "true": 0,
    "id = 3": 0,
    "id = b.x": 1,
    'a.toString() = "x"': 2,
}


@pytest.mark.parametrize(("condition", "state"), CHECKED_AT.items())
def test_a_condition_is_checked_when_its_last_name_is_bound(condition: str, state: int) -> None:
    plan = query(
        f"inputs {{ A() key id within 3; B() key id within 3; }} find A as a -> B as b -> A as c where {condition}"
    )
    checks = [item.transitions[0].checks for item in plan.automaton.states]
    assert checks == [(0,) if number == state else () for number in range(3)]


def test_conditions_are_split_at_outer_ands_of_all_clauses() -> None:
    plan = query(
        "inputs { A() within 3; } find A as a -> A as c where (a.b and (c.b and a.x = c.x)) where c.b or a.b and c.b"
    )
    assert len(plan.conditions) == 4
    assert [state.transitions[0].checks for state in plan.automaton.states] == [(1,), (0, 2, 3)]


def test_a_key_is_read_from_the_last_term() -> None:
    plan = query("inputs { A() key id as k within 3; B() key x as k within 3; } find A as a -> B as b where k = 3")
    assert plan.keys == ("k",)
    assert [item.keys for item in plan.inputs] == [("id",), ("x",)]
    assert plan.conditions[0].left == FieldOf(Type.INTEGER, 1, "x")


TIMED = """
@TimeFrom("at") @Heartbeat("Beat")
event T { string k; integer n; float ts; integer seconds; action at() returns float { return ts; } }
event Beat { string k; float other; action at() returns float { return other; } }
@TimeFrom("time") event Tick { float time; }
@com.apama.queries.OutOfOrder() @TimeFrom("ts") event O { string k; float ts; }
event Plain { string k; }
"""


def clock(text: str) -> tuple[str | None, Heartbeat | None]:
    item = compile_text(TIMED + f"inputs {{ {text}; }} find {text.partition('(')[0]} as a").plan.queries[0].inputs[0]
    return item.time_from, item.heartbeat


CLOCKS = {
    "T() key k within 3 wait 5": ("ts", Heartbeat("Beat", ("k",), "other")),
    "T() within 3 wait 5": ("ts", Heartbeat("Beat", (), "other")),
    "T() key n within 3 wait 5": ("ts", Heartbeat("Beat", (), "other")),
    "T() key k within 3": ("ts", None),
    "T() key k within 3 wait 5 or Tick": ("ts", Heartbeat("Tick", (), "time")),
    "T() key k within 3 time from seconds wait 5 or Beat": ("seconds", Heartbeat("Beat", ("k",), None)),
    "T() key k within 3 time from at wait 5 or Beat": ("ts", Heartbeat("Beat", ("k",), "other")),
    "T() key k within 3 time from ts wait 5 or Tick": ("ts", Heartbeat("Tick", (), "time")),
    "O() key k within 3 wait 5": ("ts", None),
    "Plain() key k within 3 wait 5": (None, None),
    "Plain() key k within 3 wait 5 or Beat": (None, Heartbeat("Beat", ("k",), None)),
}


@pytest.mark.parametrize(("text", "expected"), CLOCKS.items())
def test_clocks_and_heartbeats(text: str, expected: tuple[str | None, Heartbeat | None]) -> None:
    assert clock(text) == expected


def test_out_of_order_is_the_types() -> None:
    plan = compile_text(TIMED + "inputs { O() within 3 wait 5; T() within 3; } find O as a").plan.queries[0]
    assert [item.out_of_order for item in plan.inputs] == [True, False]


def test_windows() -> None:
    plan = query("inputs { A() within 3 retain 4; B() retain 5; } find A as a")
    assert [(item.within, item.retain, item.wait) for item in plan.inputs] == [(3_000_000, 4, None), (None, 5, None)]


def test_the_plan_holds_all_defined_types_and_all_used_ones() -> None:
    text = 'inputs { A() within 3 wait 1 or H; } find A as a { send S() to "x"; }'
    assert [event.name for event in compile_text(text).plan.events] == ["A", "H", "S"]
    assert [
        event.name for event in compile_text("event Z { } event S { } event A { } event H { }" + text).plan.events
    ] == [
        "Z",
        "S",
        "A",
        "H",
    ]


def test_plans_survive_as_plain_data() -> None:
    text = (
        TIMED
        + "inputs { T(n > 3) key k within 3 retain 5 wait 5; } find T as a -> T as b where a.n = b.n within 3 { print a.toString(); send a to k; }"
    )
    plan = compile_text(text).plan
    assert plans.from_dict(json.loads(json.dumps(plans.to_dict(plan)))) == plan


SCHEMAS = {"A": {"id": Type.INTEGER, "v": Type.FLOAT}, "Unused": {"z": Type.STRING}}


def test_data_gives_the_fields_of_types_without_definition() -> None:
    plan = compile_text("inputs { A() key id within 3; } find A as a where a.v > 1.0", schemas=SCHEMAS).plan
    assert plan.events == (EventType("A", (Field("id", Type.INTEGER), Field("v", Type.FLOAT))),)


def test_a_definition_counts_more_than_data() -> None:
    plan = compile_text("event A { integer id; } inputs { A() key id within 3; } find A as a", schemas=SCHEMAS).plan
    assert plan.events == (EventType("A", (Field("id", Type.INTEGER),)),)


def test_definitions_and_data_may_be_mixed() -> None:
    plan = compile_text(
        "event B { integer x; } inputs { A() within 3; B() within 3; } find A as a", schemas=SCHEMAS
    ).plan
    assert [event.name for event in plan.events] == ["B", "A"]


def test_a_type_that_only_looks_like_one_of_the_data_is_warned_of() -> None:
    schemas = {"Withdrawal": {"id": Type.INTEGER}}
    compiled = compile_text("inputs { Withdrawl() within 3; } find Withdrawl as a", schemas=schemas)
    (warning,) = compiled.warnings
    assert str(warning) == (
        "query:1:10: unseen-event: nothing says which fields 'Withdrawl' has: neither a definition nor the data; "
        "did you mean 'Withdrawal'?\n"
        "  1 | inputs { Withdrawl() within 3; } find Withdrawl as a\n"
        "    |          ^^^^^^^^^"
    )


def test_checking_leaves_types_without_definition_open() -> None:
    checked = check_text(
        "inputs { A(x > 3, y = 1.0) key k within 3; } find A as a where a.any = 3 and a.other() { print k; send a to a.z; }"
    )
    assert [item.event for item in checked.queries[0].inputs] == ["A"]


def test_checking_still_sees_what_is_wrong_around_open_types() -> None:
    with pytest.raises(QueryErrors) as caught:
        check_text("inputs { A() key k within 3; } find A as a where b.any = 3 and 1 + 1.5 > a.x")
    assert [error.code for error in caught.value.errors] == ["unknown-name", "type"]


def test_definitions_beside_the_text() -> None:
    beside = Source("cards.mon", "package p; event A { integer id; }")
    assert compile_text("inputs { A() key id within 3; } find A as a", definitions=[beside]).plan.events[0].fields
    with pytest.raises(QueryErrors, match="there is no event type 'B'"):
        compile_text("inputs { B() within 3; } find B as a", "other/q.query", definitions=[beside])
