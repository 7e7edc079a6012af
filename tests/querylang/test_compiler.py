"""What the plan says: automaton, places of conditions, keys, clocks, event types."""

from __future__ import annotations

import json

import pytest

from querylang import QueryErrors, Source, Type, check_text, compile_text
from querylang.plan import model as plans
from querylang.plan.expression import (
    Aggregate,
    Binary,
    EventOf,
    Expression,
    FieldOf,
    Invoke,
    KeyOf,
    Literal,
    ParameterOf,
    SelectOf,
    walk,
)
from querylang.plan.model import (
    ACCEPT,
    Automaton,
    Between,
    EventType,
    Field,
    Heartbeat,
    Key,
    QueryPlan,
    Select,
    State,
    Term,
    Transition,
    Wait,
    Within,
    Without,
)
from querylang.plan.text import INPUT_NAMES, expression_text

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


def own(field: str, type_: Type = Type.INTEGER) -> FieldOf:
    """A field in an input's own expressions."""
    return FieldOf(type_, 0, field)


def test_a_key_goes_by_the_querys_name() -> None:
    plan = query("inputs { A() key id as k within 3; B() key x as k within 3; } find A as a -> B as b where k = 3")
    assert plan.keys == (Key("k", Type.INTEGER),)
    assert [item.keys for item in plan.inputs] == [(own("id"),), (own("x"),)]
    assert plan.conditions == (
        plans.Where(Binary(Type.BOOLEAN, "=", KeyOf(Type.INTEGER, 0), Literal(Type.INTEGER, 3)), ()),
    )


TIMED = """
@TimeFrom("at") @Heartbeat("Beat")
event T { string k; integer n; float ts; integer seconds; action at() returns float { return ts; } }
event Beat { string k; float other; action at() returns float { return other; } }
@TimeFrom("time") event Tick { float time; }
@com.apama.queries.OutOfOrder() @TimeFrom("ts") event O { string k; float ts; }
event Plain { string k; }
"""


def seconds(field: str) -> FieldOf:
    return own(field, Type.INTEGER if field == "seconds" else Type.FLOAT)


K = own("k", Type.STRING)


def clock(text: str) -> tuple[Expression | None, Heartbeat | None]:
    item = compile_text(TIMED + f"inputs {{ {text}; }} find {text.partition('(')[0]} as a").plan.queries[0].inputs[0]
    return item.time_from, item.heartbeat


CLOCKS = {
    "T() key k within 3 wait 5": (seconds("ts"), Heartbeat("Beat", (K,), seconds("other"))),
    "T() within 3 wait 5": (seconds("ts"), Heartbeat("Beat", (), seconds("other"))),
    "T() key n within 3 wait 5": (seconds("ts"), Heartbeat("Beat", (), seconds("other"))),
    "T() key k within 3": (seconds("ts"), None),
    "T() key k within 3 wait 5 or Tick": (seconds("ts"), Heartbeat("Tick", (), seconds("time"))),
    "T() key k within 3 time from seconds wait 5 or Beat": (seconds("seconds"), Heartbeat("Beat", (K,), None)),
    "T() key k within 3 time from at wait 5 or Beat": (seconds("ts"), Heartbeat("Beat", (K,), seconds("other"))),
    "T() key k within 3 time from ts wait 5 or Tick": (seconds("ts"), Heartbeat("Tick", (), seconds("time"))),
    "O() key k within 3 wait 5": (seconds("ts"), None),
    "Plain() key k within 3 wait 5": (None, None),
    "Plain() key k within 3 wait 5 or Beat": (None, Heartbeat("Beat", (K,), None)),
}


@pytest.mark.parametrize(("text", "expected"), CLOCKS.items())
def test_clocks_and_heartbeats(text: str, expected: tuple[Expression | None, Heartbeat | None]) -> None:
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
        "query:1:10: unseen-event: the fields of 'Withdrawl' are not known: neither a definition nor the data gives them; "
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
        check_text("inputs { A() key k within 3; } find A as a where b.any = 3 and 1d + 1.5 > a.x")
    assert [error.code for error in caught.value.errors] == ["unknown-name", "type"]


def test_definitions_beside_the_text() -> None:
    beside = Source("cards.mon", "package p; event A { integer id; }")
    assert compile_text("inputs { A() key id within 3; } find A as a", definitions=[beside]).plan.events[0].fields
    with pytest.raises(QueryErrors, match="unknown event type 'B'"):
        compile_text("inputs { B() within 3; } find B as a", "other/q.query", definitions=[beside])


# ------------------------------------------------------------------------------------------------ patterns

PATTERNS = {
    "(A as a -> (B as b)) -> (A as c -> B as d)": "A as a -> B as b -> A as c -> B as d",
    "A as a -> (B as b or (A as c and B as d))": "A as a -> B as b or A as c and B as d",
    "wait(1.0) -> (A as a) -> wait(2.0)": "A as a",
}


@pytest.mark.parametrize(("text", "expected"), PATTERNS.items())
def test_a_pattern_is_written_without_waits_and_needless_brackets(text: str, expected: str) -> None:
    checked = check_text(f"{A} inputs {{ A() within 3; B() within 3; }} find {text}").queries[0]
    assert checked.pattern == expected


WRITTEN = [
    "A as a -> B as b -> A as c",
    "A as a or B as b and A as c",
    "(A as a or B as b) and A as c",
    "(A as a -> B as b) and A as c or B as d",
    "A as a -> B as b or A as c -> A as d",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_a_pattern_is_written_as_it_was_read(text: str) -> None:
    assert query(f"inputs {{ A() within 3; B() within 3; }} find {text}").pattern == text


def test_terms_under_an_or_are_optional() -> None:
    plan = query("inputs { A() within 3; B() within 3; } find A as a -> (B as b or (A as c -> B as d)) -> A as e")
    assert plan.terms == (Term("a", 0), Term("b", 1, True), Term("c", 0, True), Term("d", 1, True), Term("e", 0))


def test_an_optional_term_is_an_optional_in_the_block_and_an_event_in_conditions() -> None:
    plan = query(
        'inputs { A() within 3; B() within 3; } find A as a or B as b where a.toString() = "" { print a.toString(); }'
    )
    (where,), (statement,) = plan.conditions, plan.block
    assert isinstance(where, plans.Where)
    assert isinstance(statement, plans.Print)
    assert where.condition.left.receiver == EventOf(Type.event("A"), 0)  # type: ignore[union-attr]
    assert statement.text.receiver == EventOf(Type.optional(Type.event("A")), 0)  # type: ignore[union-attr]


WAITS = {
    "wait(1 min 30 sec) as t -> A as a": (Wait(90_000_000, "t"), None),
    "A as a -> wait(3)": (None, Wait(3_000_000, None)),
    "wait(0.5) -> A as a -> B as b -> wait(1 day) as u": (Wait(500_000, None), Wait(86_400_000_000, "u")),
}


@pytest.mark.parametrize(("text", "expected"), WAITS.items())
def test_waits(text: str, expected: tuple[Wait | None, Wait | None]) -> None:
    plan = query(f"inputs {{ A() within 3; B() within 3; }} find {text}")
    assert (plan.leading, plan.trailing) == expected


CLAUSES = {
    "within 2": Within(2_000_000, None),
    "within 2 between (b a)": Within(2_000_000, Between((0, 1))),
    "within 2 between (t a)": Within(2_000_000, Between((0,), leading=True)),
    "within 2 between (b u t)": Within(2_000_000, Between((1,), leading=True, trailing=True)),
    "without B as x": Without(1, "x", None, None),
    "without A as x between (a b)": Without(0, "x", None, Between((0, 1))),
    "without B as x where x.x = a.x": Without(
        1,
        "x",
        Binary(Type.BOOLEAN, "=", FieldOf(Type.INTEGER, 2, "x"), FieldOf(Type.INTEGER, 0, "x")),
        None,
    ),
}


@pytest.mark.parametrize(("text", "expected"), CLAUSES.items())
def test_conditions(text: str, expected: plans.Condition) -> None:
    plan = query(
        f"inputs {{ A() within 30; B() within 30; }} find wait(1) as t -> A as a -> B as b -> wait(1) as u {text}"
    )
    assert plan.conditions == (expected,)


def test_what_reaches_the_trailing_wait_is_decided_late() -> None:
    plan = query(
        """inputs { A() within 30; B() within 30; } find A as a -> B as b -> wait(1) as u
        where a.x = 1 within 2 within 3 between (a u) without A as c without A as d between (a b) without A as e between (b u)"""
    )
    assert plan.decided_late == (2, 3, 5)


def test_a_where_mentions_all_names_of_its_clause() -> None:
    plan = query(
        "inputs { A() within 3; B() within 3; } find A as a -> (A as b or B as c) -> A as d where a.x = 1 and b.x = d.x"
    )
    assert [item.mentions for item in plan.conditions if isinstance(item, plans.Where)] == [(0, 1, 3), (0, 1, 3)]


# ------------------------------------------------------------------------------------------------ find every


def test_selects_and_having() -> None:
    plan = query(
        """inputs { A() key id within 3; } find every A as a
        select count() as n select n * id as m having m > n having n > 1 and m > 2"""
    )
    count = Aggregate(Type.INTEGER, "count", ())
    n, m = SelectOf(Type.INTEGER, 0), SelectOf(Type.INTEGER, 1)
    greater = (
        Binary(Type.BOOLEAN, ">", m, n),
        *(Binary(Type.BOOLEAN, ">", of, Literal(Type.INTEGER, than)) for of, than in ((n, 1), (m, 2))),
    )
    assert plan.every == plans.Every(
        (Select("n", count), Select("m", Binary(Type.INTEGER, "*", count, KeyOf(Type.INTEGER, 0)))), greater
    )


# ------------------------------------------------------------------------------------------------ inputs

DAYS = """
event D { integer ts; integer shift;
    action day() returns integer { return ts / 86400; }
    action early() returns boolean { if ts % 86400 < 43200 { return true; } return false; }
    action part(integer n) returns integer { return ts % n; } }
"""


def one_input(text: str, parameters: str = "") -> plans.Input:
    section = f"parameters {{ {parameters} }}" if parameters else ""
    return compile_text(f"{DAYS} query Q {{ {section} inputs {{ D{text}; }} find D as d }}").plan.queries[0].inputs[0]


def test_actions_that_are_an_expression_become_that() -> None:
    assert one_input("() key day() as k within 3").keys == (
        Binary(Type.INTEGER, "/", own("ts"), Literal(Type.INTEGER, 86400)),
    )


def test_other_actions_are_called() -> None:
    event = EventOf(Type.event("D"), 0)
    keys = one_input("() key early() as e, part(7) as p, part(n) as q within 3", "integer n;").keys
    assert keys == (
        Invoke(Type.BOOLEAN, "early", event, ()),
        Invoke(Type.INTEGER, "part", event, (Literal(Type.INTEGER, 7),)),
        Invoke(Type.INTEGER, "part", event, (ParameterOf(Type.INTEGER, "n"),)),
    )


def test_unique_by_fields_and_actions() -> None:
    assert one_input("() within 3 with unique shift, day()").unique == (
        own("shift"),
        Binary(Type.INTEGER, "/", own("ts"), Literal(Type.INTEGER, 86400)),
    )


WINDOWS = {
    "() within 1 min": (60_000_000, None),
    "() within 0.5 * 3.0 retain 2 + 2": (1_500_000, 4),
    "() within p": (ParameterOf(Type.FLOAT, "p"), None),
    "() retain n + 1": (
        None,
        Binary(Type.INTEGER, "+", ParameterOf(Type.INTEGER, "n"), Literal(Type.INTEGER, 1)),
    ),
}


@pytest.mark.parametrize(("text", "expected"), WINDOWS.items())
def test_windows_of_parameters_stay_expressions(text: str, expected: tuple[object, object]) -> None:
    item = one_input(text, "float p; integer n;")
    assert (item.within, item.retain) == expected


FILTERS = {
    "()": None,
    "(*, *)": None,
    "(3)": "ts = 3",
    "(> 3, <= 4)": "ts > 3 and shift <= 4",
    "(shift = 4, ts < n)": "shift = 4 and ts < n",
    "([1 : 2))": "ts >= 1 and ts < 2",
    "(shift in (1 : 2])": "shift > 1 and shift <= 2",
    "(ts in (n : 5])": "n <= 5 and (ts > n and ts <= 5) or n > 5 and (ts > 5 and ts <= n)",
    "(ts = n * 2 - 1)": "ts = n * 2 - 1",
}


@pytest.mark.parametrize(("text", "expected"), FILTERS.items())
def test_filters(text: str, expected: str | None) -> None:
    found = one_input(f"{text} within 3", "integer n;").filter
    assert (None if found is None else expression_text(found, INPUT_NAMES)) == expected


def test_parameters_and_metadata() -> None:
    text = f"""{A} query Q {{
        metadata {{ "author": "risk", "note": "a \\"b\\"" }}
        parameters {{ float p; integer n := -3; }}
        inputs {{ A(x > n) within p; }} find A as a }}"""
    plan = compile_text(text).plan.queries[0]
    assert plan.parameters == (
        plans.Parameter("p", Type.FLOAT, None),
        plans.Parameter("n", Type.INTEGER, Literal(Type.INTEGER, -3)),
    )
    assert plan.metadata == (("author", "risk"), ("note", 'a "b"'))


def test_actions_of_a_query_see_its_parameters_and_keys() -> None:
    text = f"""{A} query Q {{ parameters {{ integer n; }} inputs {{ A() key id within 3; }} find A as a where f(a) > 1
        action f(A e) returns integer {{ return e.x + n + id; }} }}"""
    (action,) = compile_text(text).plan.queries[0].actions
    assert (action.name, action.parameters, action.slots, action.returns) == ("f", (Type.event("A"),), 1, Type.INTEGER)
    (returned,) = action.body
    assert isinstance(returned, plans.Return)
    assert returned.value is not None
    assert {type(node) for node in walk(returned.value)} >= {ParameterOf, KeyOf}


def test_a_definition_and_data_that_disagree_are_a_mistake() -> None:
    with pytest.raises(QueryErrors) as caught:
        compile_text(
            "event A { string id; integer v; } inputs { A() key id within 3; } find A as a",
            schemas={"A": {"id": Type.STRING, "v": Type.BOOLEAN}},
        )
    assert [(error.code, error.message) for error in caught.value.errors] == [
        ("schema", "'v' is integer here, but the column 'v' of 'A' is boolean")
    ]


def many(count: int, operator: str, *, of_one_type: bool = False) -> str:
    """A pattern of that many events in a row of the same operator."""
    types = ["A" if of_one_type else f"A{number}" for number in range(count)]
    inputs = " ".join(f"{name}() within 3;" for name in dict.fromkeys(types))
    terms = f" {operator} ".join(f"{name} as a{number}" for number, name in enumerate(types))
    return f"inputs {{ {inputs} }} find {terms}"


CHOICES = "inputs { A() within 3; B() within 3; } find " + " -> ".join(
    f"(A as a{number} or B as b{number})" for number in range(40)
)

LARGE = {
    "1,000 in a row": (many(1000, "->", of_one_type=True), 1000),
    "100 one or the other": (many(100, "or"), 1),
    "10 in any order": (many(10, "and"), 1023),
    "40 choices in a row": (CHOICES, 40),
    "10,000 parentheses": (f"inputs {{ A() within 3; }} find {'(' * 10_000}A as a{')' * 10_000}", 1),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_patterns(name: str) -> None:
    text, states = LARGE[name]
    assert len(compile_text(text).plan.queries[0].automaton.states) == states


TOO_LARGE = {
    "1,000 one or the other": many(1000, "or"),
    "12 in any order": many(12, "and"),
    "1,000 in any order": many(1000, "and"),
    "40 of one type, one or the other": many(40, "or", of_one_type=True),
    "40 choices in a row that conditions name": CHOICES
    + " ".join(f" within 2 between (a{number} b{number + 1})" for number in range(39)),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_patterns_that_are_too_large_are_refused_at_once(name: str) -> None:
    with pytest.raises(QueryErrors) as caught:
        compile_text(TOO_LARGE[name])
    assert [error.code for error in caught.value.errors] == ["limit"]
