"""Event types: definitions in any order, packages, files beside, data; and what is said about them."""

from __future__ import annotations

import pytest

from querylang import Compiled, QueryErrors, Source, compile_text
from querylang.plan.expression import Binary, Expression, FieldOf, Invoke, Type
from querylang.plan.model import Where

QUERY = "query Q { inputs { A() within 3; } find A as a where %s }"


def compiled(text: str, *beside: str, data: dict[str, dict[str, Type]] | None = None) -> Compiled:
    definitions = [Source(f"beside{number}.mon", definition) for number, definition in enumerate(beside)]
    return compile_text(text, "q.query", data, definitions)


def reported(text: str, *beside: str, data: dict[str, dict[str, Type]] | None = None) -> str:
    """The mistakes as lines `text: code: message`; empty: there are none."""
    try:
        compiled(text, *beside, data=data)
    except QueryErrors as found:
        return "\n".join(f"{error.span.text}: {error.code}: {error.message}" for error in found.errors)
    return ""


def called(actions: str, name: str) -> Expression:
    """What `a.name()` is in the plan, the event having a field `x` and these actions."""
    text = f"event A {{ float x; {actions} }}" + QUERY % f"a.{name}() = 1.0"
    where = compiled(text).plan.queries[0].conditions[0]
    assert isinstance(where, Where)
    assert isinstance(where.condition, Binary)
    return where.condition.left


LEGAL = [
    "event A { B b; sequence<B> bs; dictionary<string, B> named; optional<B> o; } event B { location l; decimal d; }"
    + QUERY % "a.b.l.x1 > 1.0 and a.bs[0].d = 1d",
    'event A { constant integer MAX := -3; constant decimal D := 1.5d; constant string S := "x"; integer n; }'
    + QUERY % "a.n > A.MAX and A.S = a.n.toString() and A.D = 1.5d",
    "event A { float x; action f(float y) returns float { x := y; g(); return self.f(x) + K.toFloat(); }"
    " action g() { print toText(); } action toText() returns string { return self.toString(); }"
    " constant integer K := 1; }" + QUERY % "a.f(1.0) > 0.0",
    "event A { float x; float y; action f(A x) returns float { return x.x + y; } }" + QUERY % "a.f(a) > 0.0",
    '@TimeFrom("ts") event A { integer ts; }' + QUERY % "true",
    'using com.apama.queries.*; @TimeFrom("t") @OutOfOrder() @DefaultWait("3 seconds") event A { float ts;'
    " action t() returns float { return ts; } }" + QUERY % "true",
    "@com.apama.queries.OutOfOrder() @other.Thing(3) event A { float ts; }" + QUERY % "true",
    "using other.Thing; @Thing(3) event A { float ts; }" + QUERY % "true",
    "event A { integer x; } event A { integer x; }" + QUERY % "true",
]  # fmt: skip


@pytest.mark.parametrize("text", LEGAL)
def test_legal_definitions(text: str) -> None:
    assert reported(text) == ""


MISTAKES = {
    "event A { A a; }": "a: event-cycle: 'A' contains itself through 'a': A → A; no table could hold it",
    "event A { B b; } event B { sequence<C> cs; } event C { optional<A> a; }": "a: event-cycle: 'C' contains itself through "
    "'a': A → B → C → A; no table could hold it",
    "event A { float x; integer x; }": "x: duplicate-name: 'A' already has a field or action 'x'",
    "event A { float x; action x() { } }": "x: duplicate-name: 'A' already has a field or action 'x'",
    "event A { constant float x := 1.0; action x() { } }": "x: duplicate-name: 'A' already has a field or action 'x'",
    "event A { flaot x; }": "flaot: unknown-type: unknown type 'flaot'; did you mean 'float'?",
    "event A { sequence<Bb> x; } event B { }": "Bb: unknown-type: unknown type 'Bb'; did you mean 'B'?",
    "event A { constant integer K := 1.5; }": "1.5: type: 'K' must be integer, not float; "
    "convert the float with `.toInteger()`",
    "event A { constant sequence<float> K := 1.5; }": "sequence<float>: type: a constant is boolean, integer, float, "
    "decimal or string, not sequence<float>",
    "event A { float x; action f() { y := 1.0; } }": "y: unknown-name: unknown name 'y': "
    "neither a member of the event nor a variable",
    "event A { float x; action f() { xx := 1.0; } }": "xx: unknown-name: unknown name 'xx': "
    "neither a member of the event nor a variable; did you mean 'x'?",
    "event A { action f() { self := new A; } }": "self: assignment: 'self' is the event itself: it cannot be assigned to",
    "event A { constant float K := 1.0; action f() { K := 2.0; } }": "K: assignment: a constant cannot be assigned to",
    "event A { action f() returns float { return k; } integer k; }": "k: type: what 'f' returns must be float, not integer; "
    "convert the integer with `.toFloat()`",
    "event A { integer x; } event A { float x; }": "A: duplicate-event: 'A' is defined with other fields or annotations "
    "at q.query:1",
    "@OutOfOrdr() event A { }": "OutOfOrdr: unknown-annotation: unknown annotation '@OutOfOrdr'; "
    "did you mean 'OutOfOrder'?",
    "@com.apama.queries.Wrong() event A { }": "com.apama.queries.Wrong: unknown-annotation: "
    "unknown annotation '@Wrong'",
    '@TimeFrom("tss") event A { float ts; }': "\"tss\": unknown-field: 'A' has neither a field nor an action 'tss'; "
    "did you mean 'ts'?",
    '@TimeFrom("s") event A { string s; }': "\"s\": time-type: a source time is float or integer seconds; 's' is string",
    '@TimeFrom("f") event A { action f() { } }': '"f": time-type: a source time is float or integer seconds; '
    "'f' is nothing",
    '@TimeFrom("f") event A { action f(float x) returns float { return x; } }': '"f": time-type: '
    "a source time is an action without parameters; 'f' has some",
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), MISTAKES.items())
def test_what_is_said_about_definitions(text: str, message: str) -> None:
    assert reported(text + QUERY % "true") == message


def test_events_nested_too_deep() -> None:
    chain = "".join(f"event A{level} {{ A{level + 1} a; }}" for level in range(20)) + "event A20 { float x; }"
    assert reported(chain + "query Q { inputs { A0() within 3; } find A0 as a }") == (
        "A0: limit: events are nested more than 20 levels deep in 'A0'"
    )


def test_an_empty_event_that_would_be_too_large() -> None:
    fields = " ".join(f"integer f{number};" for number in range(1000))
    text = f"event A {{ {fields} }} query Q {{ inputs {{ A() within 3; }} find A as a {{ A x; }} }}"
    assert reported(text) == "A: limit: an empty 'A' has more than 1000 parts"


# Packages

X, Y = "package com.x; event B { integer b; }", "package com.y; event B { integer c; }"


@pytest.mark.parametrize(
    "text",
    [
        "query Q { inputs { com.y.B() within 3; } find com.y.B as b where b.c = 1 and com.y.B(1) = b }",
        "using com.y.B; query Q { inputs { B() within 3; } find B as b where b.c = 1 }",
        "using com.y.*; query Q { inputs { B() within 3; } find B as b where b.c = 1 }",
        "package com.y; query Q { inputs { B() within 3; } find B as b where b.c = 1 }",
        "package com.x; using com.y.B; query Q { inputs { B() within 3; } find B as b where b.b = 1 }",
        "event B { integer c; } query Q { inputs { B() within 3; } find B as b where b.c = 1 }",
        "query Q { inputs { com.x.B() within 3; com.y.B() within 3; } find com.x.B as b -> com.y.B as c where b.b = c.c }",
        "query Q { inputs { com.x.B() within 3; } find com.x.B as b { com.y.B c := com.y.B(b.b); route c; } }",
    ],
)  # fmt: skip
def test_names_of_packages(text: str) -> None:
    assert reported(text, X, Y) == ""


def test_types_that_share_a_name_have_their_package_in_the_plan() -> None:
    plan = compiled("query Q { inputs { com.y.B() within 3; } find com.y.B as b }", X, Y).plan
    assert [event.name for event in plan.events] == ["com.x.B", "com.y.B"]


def test_a_type_that_shares_its_name_with_none_is_short_in_the_plan() -> None:
    plan = compiled("query Q { inputs { com.y.B() within 3; } find com.y.B as b }", Y).plan
    assert [event.name for event in plan.events] == ["B"]


@pytest.mark.parametrize("usings", ["", "using com.x.*; using com.y.*;"])
def test_a_bare_name_of_several_types_is_ambiguous(usings: str) -> None:
    assert reported(f"{usings} query Q {{ inputs {{ B() within 3; }} find B as b }}", X, Y) == (
        "B: ambiguous-event: 'B' may be 'com.x.B' or 'com.y.B': write the package too"
    )


def test_a_leading_point_means_no_package() -> None:
    assert reported("query Q { inputs { .B() within 3; } find .B as b }", X) == (
        ".B: unknown-event: unknown event type '.B'; did you mean 'B'?"
    )


# Definitions beside

BESIDE = """
package com.x;
event A {
    float x;
    action go() { spawn other(); }
    action bad() returns float { return y; }
    action worse() returns float { return bad(); }
    action good() returns float { return x; }
}
event Broken { Wrong w; }
event Speaker { Broken b; }
"""


def test_mistakes_beside_are_nothing_to_a_query_that_does_not_use_them() -> None:
    assert [event.name for event in compiled(QUERY % "a.good() > 1.0", BESIDE).plan.events] == ["A"]


@pytest.mark.parametrize("action", ["bad", "worse"])
def test_a_mistake_in_an_action_beside_is_told_to_who_calls_it(action: str) -> None:
    assert reported(QUERY % f"a.{action}() > 1.0", BESIDE) == (
        "y: unknown-name: unknown name 'y': neither a member of the event nor a variable"
    )


def test_what_only_monitors_can_do_is_told_to_who_calls_it() -> None:
    text = "query Q { inputs { A() within 3; } find A as a { a.go(); } }"
    assert reported(text, BESIDE).startswith("spawn other();: not-in-queries: `spawn` cannot")


@pytest.mark.parametrize("event", ["Broken", "Speaker"])
def test_a_mistake_in_a_definition_beside_is_told_to_who_uses_it(event: str) -> None:
    assert reported(f"query Q {{ inputs {{ {event}() within 3; }} find {event} as a }}", BESIDE) == (
        "Wrong: unknown-type: unknown type 'Wrong'"
    )


# Data


@pytest.mark.parametrize("defined", ["integer", "float", "decimal", "string", "boolean", "optional<float>"])
def test_a_column_of_numbers_may_be_these(defined: str) -> None:
    assert reported(f"event A {{ {defined} x; }}" + QUERY % "true", data={"A": {"x": Type.INTEGER}}) == ""


@pytest.mark.parametrize("defined", ["boolean", "sequence<float>", "dictionary<string, float>", "location"])
def test_a_column_of_numbers_cannot_be_these(defined: str) -> None:
    shown = defined.replace(" ", "")
    assert reported(f"event A {{ {defined} x; }}" + QUERY % "true", data={"A": {"x": Type.FLOAT}}) == (
        f"{defined}: schema: 'x' is {shown} here, but the column 'x' of 'A' is float"
    )


def test_elements_are_compared_too() -> None:
    data = {"A": {"x": Type.sequence(Type.BOOLEAN)}}
    assert reported("event A { sequence<float> x; }" + QUERY % "true", data=data) == (
        "sequence<float>: schema: 'x' is sequence<float> here, but the column 'x' of 'A' is sequence<boolean>"
    )


def test_without_a_definition_data_say_the_fields() -> None:
    data = {"A": {"x": Type.sequence(Type.FLOAT)}}
    assert reported(QUERY % "a.x[0] = 1d", data=data) == (
        "a.x[0] = 1d: type: `=` does not take float and decimal; convert the float with `.toDecimal()`"
    )


def test_data_may_call_a_type_by_its_package() -> None:
    data = {"com.x.B": {"b": Type.INTEGER}}
    plan = compiled("query Q { inputs { B() within 3; } find B as b where b.b = 1 }", X, data=data).plan
    assert [event.name for event in plan.events] == ["com.x.B"]


# What the plan keeps


def test_an_event_type_has_its_fields_and_actions() -> None:
    event = compiled(
        "event A { float x; action f(float y) returns float { return x + y; } }" + QUERY % "true"
    ).plan.events[0]
    assert [field.name for field in event.fields] == ["x"]
    assert [(action.name, action.parameters, action.slots) for action in event.actions] == [("f", (Type.FLOAT,), 2)]


INLINED = [
    "action f() returns float { return x; }",
    "action f() returns float { return self.x; }",
    "action f() returns float { return g(); } action g() returns float { return x; }",
    "action g() returns float { return x; } action f() returns float { return self.g(); }",
]


@pytest.mark.parametrize("actions", INLINED)
def test_an_action_that_is_an_expression_is_a_matter_of_columns(actions: str) -> None:
    assert called(actions, "f") == FieldOf(Type.FLOAT, 0, "x")


CALLED = [
    "action f() returns float { float y := x; return y; }",
    "action f() returns float { if x > 1.0 { return 1.0; } return f(); }",
    "action f() returns float { return g(x); } action g(float y) returns float { return y; }",
    "action f() returns float { return g(); } action g() returns float { return f(); }",
]


@pytest.mark.parametrize("actions", CALLED)
def test_any_other_action_is_called(actions: str) -> None:
    assert isinstance(called(actions, "f"), Invoke)


def test_expressions_that_would_double_are_called() -> None:
    actions = "action a0() returns float { return x; }" + " ".join(
        f"action a{n + 1}() returns float {{ return a{n}() + a{n}(); }}" for n in range(60)
    )
    assert isinstance(called(actions, "a60"), Invoke)
