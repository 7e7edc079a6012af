"""The meaning of operators, methods and texts, as a table of facts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querylang.expression import Binary, Call, EventText, Expression, FieldOf, Literal, Type, Unary
from querylang.plan import EventType, Field
from runtime.interpreter import EvaluationError, Value, evaluate, event_text, floating_text, holds

LEAST, MOST = -(2**63), 2**63 - 1
INF, NAN = math.inf, math.nan


def literal(value: Value) -> Literal:
    types = {bool: Type.BOOLEAN, int: Type.INTEGER, float: Type.FLOAT, str: Type.STRING}
    return Literal(types[type(value)], value)


def binary(left: Value, sign: str, right: Value) -> Expression:
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
    ],
)
def test_binary(left: Value, sign: str, right: Value, value: Value) -> None:
    found = evaluate(binary(left, sign, right), ())
    assert type(found) is type(value)
    assert found == value or (found != found and value != value)  # noqa: PLR0124


@pytest.mark.parametrize(("sign", "right"), [("/", 0), ("%", 0)])
def test_integer_division_by_zero_has_no_value(sign: str, right: int) -> None:
    with pytest.raises(EvaluationError, match="division by zero"):
        evaluate(binary(1, sign, right), ())


@pytest.mark.parametrize(
    ("type_", "sign", "operand", "value"),
    [
        (Type.INTEGER, "-", 3, -3),
        (Type.INTEGER, "-", LEAST, LEAST),
        (Type.FLOAT, "-", 0.0, -0.0),
        (Type.BOOLEAN, "not", True, False),
    ],
)
def test_unary(type_: Type, sign: str, operand: Value, value: Value) -> None:
    found = evaluate(Unary(type_, sign, literal(operand)), ())
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    ("receiver", "method", "type_", "value"),
    [
        (3, "toFloat", Type.FLOAT, 3.0),
        (MOST, "toFloat", Type.FLOAT, 9.223372036854775808e18),
        (2.9, "toInteger", Type.INTEGER, 2),
        (-2.9, "toInteger", Type.INTEGER, -2),
        (-9.223372036854775808e18, "toInteger", Type.INTEGER, LEAST),
        (True, "toString", Type.STRING, "true"),
        (False, "toString", Type.STRING, "false"),
        (-42, "toString", Type.STRING, "-42"),
        (4.0, "toString", Type.STRING, "4.0"),
        ('a"b', "toString", Type.STRING, 'a"b'),
    ],
)
def test_method(receiver: Value, method: str, type_: Type, value: Value) -> None:
    found = evaluate(Call(type_, method, literal(receiver)), ())
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", [INF, -INF, NAN, 9.223372036854775808e18, 1e300])
def test_a_float_that_is_no_integer_has_no_value_as_one(value: float) -> None:
    with pytest.raises(EvaluationError):
        evaluate(Call(Type.INTEGER, "toInteger", literal(value)), ())


NULL = Binary(Type.BOOLEAN, "=", FieldOf(Type.INTEGER, 0, "x"), literal(1))


@pytest.mark.parametrize(
    ("condition", "true"),
    [
        (NULL, False),
        (Unary(Type.BOOLEAN, "not", NULL), False),
        (Binary(Type.BOOLEAN, "or", literal(True), NULL), True),
        (Binary(Type.BOOLEAN, "or", NULL, literal(True)), False),
        (Unary(Type.BOOLEAN, "not", Binary(Type.BOOLEAN, "and", literal(False), NULL)), True),
        (Unary(Type.BOOLEAN, "not", Binary(Type.BOOLEAN, "and", NULL, literal(False))), False),
        (Binary(Type.BOOLEAN, "xor", literal(True), NULL), False),
    ],
)
def test_a_condition_that_uses_a_null_is_false_unless_it_was_decided_before(
    condition: Expression, *, true: bool
) -> None:
    assert holds(condition, [{"x": None}]) is true


def test_a_field_is_taken_from_its_term() -> None:
    difference = Binary(Type.INTEGER, "-", FieldOf(Type.INTEGER, 1, "x"), FieldOf(Type.INTEGER, 0, "x"))
    assert evaluate(difference, [{"x": 3}, {"x": 10}]) == 7


def test_a_null_says_which_field() -> None:
    with pytest.raises(EvaluationError, match="field 'x' is null"):
        evaluate(NULL, [{"x": None}])


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
    values: dict[str, Value | None] = {"b": True, "f": 2.5, "s": 'a "b" \\ c\n', "i": 1}
    assert event_text(EventType("A", fields), values) == r'A(1,"a \"b\" \\ c\n",2.5,true)'
    assert event_text(EventType("A", fields), {"i": 1}) == "A(1,null,null,null)"
    assert evaluate(EventText(0), [values], [EventType("A", fields[:1])]) == "A(1)"
