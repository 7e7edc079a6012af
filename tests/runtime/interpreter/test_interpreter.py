"""The meaning of operators, nodes and texts, as a table of facts. Methods have their own (`methods.cases`)."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querylang.plan.expression import (
    Aggregate,
    Binary,
    Call,
    EventOf,
    Expression,
    FieldOf,
    IndexOf,
    Items,
    KeyOf,
    Literal,
    LocalOf,
    MemberOf,
    New,
    SelectOf,
    Type,
    Unary,
)
from querylang.plan.model import EventType, Field, Plan
from runtime.interpreter.context import Context, PlanWorld
from runtime.interpreter.expressions import evaluate, holds, required
from runtime.interpreter.values import (
    Dictionary,
    EvaluationError,
    Event,
    Location,
    Value,
    clone,
    default_value,
    equal,
    event_text,
    floating_text,
    inner_text,
    order_key,
)
from runtime.interpreter.written_values import parse_value
from tests.runtime.plans import an_input, chain
from tests.support.typed_values import OF_X, TYPED, TYPES, WORLD, X

LEAST, MOST = -(2**63), 2**63 - 1
INF, NAN = math.inf, math.nan


Constant = bool | int | float | Decimal | str

NOTHING = Context()


def literal(value: Constant) -> Literal:
    types = {bool: Type.BOOLEAN, int: Type.INTEGER, float: Type.FLOAT, Decimal: Type.DECIMAL, str: Type.STRING}
    return Literal(types[type(value)], value)


def binary(left: Constant, sign: str, right: Constant) -> Expression:
    operand = literal(left)
    arithmetic = sign in {"+", "-", "*", "/", "%"}
    return Binary(operand.type if arithmetic else Type.BOOLEAN, sign, operand, literal(right))


@pytest.mark.parametrize(
    ("left", "sign", "right", "value"),
    [
        (7, "/", 2, 3),
        (-7, "/", 2, -3),
        (7, "/", -2, -3),
        (-7, "/", -2, 3),
        (7, "%", 3, 1),
        (-7, "%", 3, -1),
        (7, "%", -3, 1),
        (-7, "%", -3, -1),
        (MOST, "+", 1, LEAST),
        (LEAST, "-", 1, MOST),
        (MOST, "*", 2, -2),
        (LEAST, "/", -1, LEAST),
        (LEAST, "%", -1, 0),
        (7.0, "/", 2.0, 3.5),
        (1.0, "/", 0.0, INF),
        (1.0, "/", -0.0, -INF),
        (-1.0, "/", 0.0, -INF),
        (0.0, "/", 0.0, NAN),
        (NAN, "/", 0.0, NAN),
        (INF, "-", INF, NAN),
        (1e308, "*", 10.0, INF),
        (-7.5, "%", 2.0, -1.5),
        (7.5, "%", -2.0, 1.5),
        (7.5, "%", 0.0, NAN),
        (INF, "%", 2.0, NAN),
        (7.5, "%", INF, 7.5),
        (NAN, "=", NAN, False),
        (NAN, "!=", NAN, True),
        (NAN, "<", 1.0, False),
        (NAN, ">=", 1.0, False),
        (0.0, "=", -0.0, True),
        (1, "<", 2, True),
        (2, "<=", 2, True),
        (2, ">", 2, False),
        ("a", "<", "b", True),
        ("Z", "<", "a", True),
        ("z", "<", "é", True),
        ("\uffff", "<", "\U0001f600", True),
        ("a", "+", "b", "ab"),
        (True, "=", False, False),
        (True, "xor", True, False),
        (True, "xor", False, True),
        (True, "and", False, False),
        (False, "or", True, True),
        (Decimal("0.1"), "+", Decimal("0.2"), Decimal("0.3")),
        (
            Decimal("99999999999999999999.5"),
            "-",
            Decimal("0.000000000000000001"),
            Decimal("99999999999999999999.499999999999999999"),
        ),
        (Decimal("0.000000001"), "*", Decimal("0.0000000005"), Decimal(0)),
        (Decimal("0.000000001"), "*", Decimal("0.0000000015"), Decimal("0.000000000000000002")),
        (Decimal(1), "/", Decimal(3), Decimal("0.333333333333333333")),
        (Decimal(-7), "%", Decimal("2.5"), Decimal(-2)),
        (Decimal("1.0"), "=", Decimal("1.00"), True),
        (Decimal("1.5"), "<", Decimal("1.6"), True),
    ],
)
def test_binary(left: Constant, sign: str, right: Constant, value: Constant) -> None:
    found = evaluate(binary(left, sign, right), NOTHING)
    assert type(found) is type(value)
    assert found == value or (found != found and value != value)  # noqa: PLR0124


@pytest.mark.parametrize(
    ("left", "sign", "right", "problem"),
    [
        (1, "/", 0, "integer division by zero"),
        (1, "%", 0, "integer division by zero"),
        (Decimal(1), "/", Decimal(0), "decimal division by zero"),
        (Decimal("5e19"), "+", Decimal("5e19"), "1e+20 is out of the range of decimals"),
        (Decimal(99999999999999999999), "/", Decimal("0.5"), "2e+20 is out of the range of decimals"),
    ],
)
def test_an_operation_without_a_value_says_why(left: Constant, sign: str, right: Constant, problem: str) -> None:
    with pytest.raises(EvaluationError) as error:
        evaluate(binary(left, sign, right), NOTHING)
    assert str(error.value) == problem


@pytest.mark.parametrize(
    ("type_", "sign", "operand", "value"),
    [
        (Type.INTEGER, "-", 3, -3),
        (Type.INTEGER, "-", LEAST, LEAST),
        (Type.FLOAT, "-", 0.0, -0.0),
        (Type.BOOLEAN, "not", True, False),
        (Type.INTEGER, "not", 5, -6),
        (Type.DECIMAL, "-", Decimal(0), Decimal(0)),
        (
            Type.DECIMAL,
            "-",
            Decimal("99999999999999999999.000000000000000001"),
            Decimal("-99999999999999999999.000000000000000001"),
        ),
    ],
)
def test_unary(type_: Type, sign: str, operand: Constant, value: Constant) -> None:
    found = evaluate(Unary(type_, sign, literal(operand)), NOTHING)
    assert repr(found) == repr(value)


def of_x(*values: int | None) -> Context:
    """Terms whose field x has these values."""
    return Context(events=[Event(X, {"x": value}) for value in values])


NULL = Binary(Type.BOOLEAN, "=", FieldOf(Type.INTEGER, 0, "x"), literal(1))
FAILS = Binary(Type.BOOLEAN, "=", Binary(Type.INTEGER, "/", literal(1), literal(0)), literal(1))
QUERY = chain([an_input()], [0])
EARLIER = PlanWorld(Plan((), (replace(QUERY, nulls_fail=True),)))
"""The world of a plan of an earlier version."""


CONDITIONS: list[tuple[Expression, bool, bool]] = [
    (NULL, False, False),
    (Unary(Type.BOOLEAN, "not", NULL), False, False),
    (Binary(Type.BOOLEAN, "or", literal(True), NULL), True, True),
    (Binary(Type.BOOLEAN, "or", NULL, literal(True)), True, False),
    (Binary(Type.BOOLEAN, "or", NULL, literal(False)), False, False),
    (Unary(Type.BOOLEAN, "not", Binary(Type.BOOLEAN, "and", literal(False), NULL)), True, True),
    (Unary(Type.BOOLEAN, "not", Binary(Type.BOOLEAN, "and", NULL, literal(False))), True, False),
    (Unary(Type.BOOLEAN, "not", Binary(Type.BOOLEAN, "and", NULL, literal(True))), False, False),
    (Binary(Type.BOOLEAN, "xor", literal(True), NULL), False, False),
    # What fails ends the whole condition, unless it was decided before.
    (Binary(Type.BOOLEAN, "or", literal(True), FAILS), True, True),
    (Binary(Type.BOOLEAN, "or", FAILS, literal(True)), False, False),
    (Binary(Type.BOOLEAN, "or", Binary(Type.BOOLEAN, "and", NULL, FAILS), literal(True)), False, False),
    (Binary(Type.BOOLEAN, "or", Binary(Type.BOOLEAN, "and", literal(False), FAILS), literal(True)), True, True),
]
"""A condition, whether it holds, and whether it does in a plan of an earlier version."""


@pytest.mark.parametrize(("condition", "true", "was_true"), CONDITIONS)
def test_a_null_decides_nothing_and_what_fails_ends_a_condition(
    condition: Expression, *, true: bool, was_true: bool
) -> None:
    assert holds(condition, of_x(None)) is true
    assert holds(condition, replace(of_x(None), world=EARLIER)) is was_true


def test_an_unset_optional_is_null_in_a_comparison() -> None:
    unset = New(Type.optional(Type.INTEGER), ())
    same = Binary(Type.BOOLEAN, "=", unset, unset)
    assert evaluate(same, NOTHING) is None
    assert evaluate(same, replace(NOTHING, world=EARLIER)) is True
    assert evaluate(Call(Type.BOOLEAN, "empty", unset), NOTHING) is True


def test_what_an_optional_has_counts_and_not_what_would_stand_in_for_it() -> None:
    x = FieldOf(Type.INTEGER, 0, "x")
    for inside, value in (((literal(3),), 3), ((), None)):
        given = Call(Type.INTEGER, "getOr", New(Type.optional(Type.INTEGER), inside), (x,))
        assert evaluate(given, of_x(None)) == value


def test_a_field_is_taken_from_its_term() -> None:
    difference = Binary(Type.INTEGER, "-", FieldOf(Type.INTEGER, 1, "x"), FieldOf(Type.INTEGER, 0, "x"))
    assert evaluate(difference, of_x(3, 10)) == 7


def test_a_null_says_which_field() -> None:
    assert evaluate(NULL, of_x(None)) is None
    with pytest.raises(EvaluationError, match="field 'x' is null"):
        required(NULL, of_x(None))
    with pytest.raises(EvaluationError, match="field 'x' is null"):
        evaluate(NULL, replace(of_x(None), world=EARLIER))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.0, "4.0"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (2.5, "2.5"),
        (-12.75, "-12.75"),
        (0.1, "0.1"),
        (0.000001, "0.000001"),
        (0.00001234, "0.00001234"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (1e16, "10000000000000000.0"),
        (123456789012345680.0, "123456789012345680.0"),
        (1e20, "100000000000000000000.0"),
        (1e21, "1e+21"),
        (-1.25e300, "-1.25e+300"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (INF, "Infinity"),
        (-INF, "-Infinity"),
        (NAN, "NaN"),
    ],
)
def test_text_of_a_float(value: float, text: str) -> None:
    assert floating_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_text_of_a_float_reads_back_and_shows_that_it_is_one(value: float) -> None:
    text = floating_text(value)
    assert float(text) == value
    assert math.copysign(1.0, float(text)) == math.copysign(1.0, value)
    assert set(text) & {".", "e"}


def test_text_of_an_event() -> None:
    fields = (Field("i", Type.INTEGER), Field("s", Type.STRING), Field("f", Type.FLOAT), Field("b", Type.BOOLEAN))
    values: dict[str, Value] = {"b": True, "f": 2.5, "s": 'a "b" \\ c\n', "i": 1}
    assert event_text(EventType("A", fields), values) == r'A(1,"a \"b\" \\ c\n",2.5,true)'
    assert event_text(EventType("A", fields), {"i": 1}) == "A(1,null,null,null)"


NUMBERS, NAMED = Type.sequence(Type.INTEGER), Type.dictionary(Type.STRING, Type.INTEGER)
ITEMS = Items(NUMBERS, (literal(1), literal(2)))
PAIRS = Items(NAMED, (literal("b"), literal(1), literal("a"), literal(2)))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (KeyOf(Type.STRING, 1), "k"),
        (SelectOf(Type.FLOAT, 0), 2.5),
        (LocalOf(Type.INTEGER, 1), 8),
        (Aggregate(Type.INTEGER, "count", ()), 3),
        (EventOf(Type.optional(OF_X), 1), None),
        (FieldOf(Type.optional(Type.INTEGER), 0, "o"), None),
        (MemberOf(Type.INTEGER, EventOf(OF_X, 0), "x"), 5),
        (MemberOf(Type.FLOAT, New(Type.LOCATION, tuple(map(literal, (1.0, 2.0, 3.0, 4.0)))), "x2"), 3.0),
        (IndexOf(Type.INTEGER, ITEMS, literal(1)), 2),
        (IndexOf(Type.INTEGER, PAIRS, literal("a")), 2),
        (PAIRS, Dictionary.of([("a", 2), ("b", 1)])),
        (New(OF_X, (literal(1), New(Type.optional(Type.INTEGER), ()))), Event(X, {"x": 1, "o": None})),
        (New(OF_X, ()), Event(X, {"x": 0, "o": None})),
        (New(Type.optional(Type.INTEGER), (literal(3),)), 3),
        (New(NUMBERS, ()), []),
        (New(Type.LOCATION, ()), Location(0.0, 0.0, 0.0, 0.0)),
        (Binary(Type.BOOLEAN, "=", ITEMS, ITEMS), True),
        (Binary(Type.BOOLEAN, "!=", PAIRS, New(NAMED, ())), True),
    ],
)
def test_a_node_is_worth(expression: Expression, value: Value) -> None:
    context = Context(
        events=[Event(X, {"x": 5, "o": None}), None],
        keys=["x", "k"],
        selects=[2.5],
        aggregates={Aggregate(Type.INTEGER, "count", ()): 3},
        locals=[7, 8],
        world=WORLD,
    )
    assert evaluate(expression, context) == value


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (FieldOf(Type.INTEGER, 1, "x"), "the event is not set"),
        (EventOf(OF_X, 1), "the event is not set"),
        (IndexOf(Type.INTEGER, ITEMS, literal(2)), "index 2 is outside of a sequence of 2 elements"),
        (IndexOf(Type.INTEGER, ITEMS, literal(-1)), "index -1 is outside of a sequence of 2 elements"),
        (IndexOf(Type.INTEGER, PAIRS, literal("c")), 'the dictionary has no key "c"'),
        (Aggregate(Type.FLOAT, "avg", ()), "avg() is null"),
        (SelectOf(Type.FLOAT, 0), "the selected value is null"),
        (Call(Type.FLOAT, "getTime", EventOf(OF_X, 0)), "this X has no time: the program made it"),
    ],
)
def test_a_node_without_a_value_says_why(expression: Expression, problem: str) -> None:
    aggregates = {Aggregate(Type.FLOAT, "avg", ()): None}
    context = Context(events=[Event(X, {}), None], selects=[None], aggregates=aggregates, world=EARLIER)
    with pytest.raises(EvaluationError) as error:
        evaluate(expression, context)
    assert str(error.value) == problem


@settings(max_examples=500, deadline=None)
@given(TYPED)
def test_what_is_printed_reads_back(typed: tuple[Type, Any]) -> None:
    type_, value = typed
    read = parse_value(inner_text(value, type_), type_, WORLD)
    assert inner_text(read, type_) == inner_text(value, type_)
    assert order_key(read) == order_key(value)


@settings(max_examples=200, deadline=None)
@given(TYPED)
def test_a_copy_is_the_same_and_shares_nothing(typed: tuple[Type, Any]) -> None:
    type_, value = typed
    copy = clone(value)
    before = inner_text(value, type_)
    assert inner_text(copy, type_) == before
    if isinstance(copy, list):
        copy.append(None)
    elif isinstance(copy, Event):
        copy.values["x"] = None
    assert inner_text(value, type_) == before


@settings(max_examples=200, deadline=None)
@given(TYPES)
def test_every_type_has_a_default_value_that_is_equal_to_itself(type_: Type) -> None:
    first, second = default_value(type_, WORLD), default_value(type_, WORLD)
    assert equal(first, second)
    assert order_key(first) == order_key(second)


def test_nan_is_equal_to_nothing_inside_of_values_too() -> None:
    assert not equal([NAN], [NAN])
    assert not equal(Location(NAN, 0.0, 0.0, 0.0), Location(NAN, 0.0, 0.0, 0.0))
