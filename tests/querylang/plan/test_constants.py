"""Constants are worth what they are worth everywhere: against the interpreter, on random expressions."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as some

from querylang.plan.constants import NoValueError, is_calculable, is_constant, value_of
from querylang.plan.expression import Binary, Call, Expression, FieldOf, Literal, ParameterOf, Type, Unary
from querylang.plan.library import LARGEST_INTEGER, SMALLEST_INTEGER
from runtime.interpreter.context import Context
from runtime.interpreter.expressions import evaluate
from runtime.interpreter.values import EvaluationError

INTEGERS = some.one_of(
    some.integers(-5, 5), some.integers(SMALLEST_INTEGER, LARGEST_INTEGER), some.sampled_from([SMALLEST_INTEGER, -1])
)
DECIMALS = some.decimals(-(10**6), 10**6, places=6, allow_nan=False, allow_infinity=False)
FLOATS = some.one_of(some.floats(), some.sampled_from([0.0, -0.0, 1.5, math.inf, math.nan]))

_CONVERSION = {Type.INTEGER: "toInteger", Type.FLOAT: "toFloat", Type.DECIMAL: "toDecimal"}


@cache
def numbers(type_: Type, depth: int = 2) -> some.SearchStrategy[Expression]:
    """Expressions of that type."""
    values = {Type.INTEGER: INTEGERS, Type.FLOAT: FLOATS, Type.DECIMAL: DECIMALS}[type_]
    literals: some.SearchStrategy[Expression] = some.builds(Literal, some.just(type_), values)
    if not depth:
        return literals
    inner = numbers(type_, depth - 1)
    others = some.sampled_from(sorted(_CONVERSION, key=str)).flatmap(lambda other: numbers(other, depth - 1))
    return some.one_of(
        literals,
        some.builds(Unary, some.just(type_), some.just("-"), inner),
        some.builds(Binary, some.just(type_), some.sampled_from(["+", "-", "*", "/", "%"]), inner, inner),
        some.builds(Call, some.just(type_), some.just(_CONVERSION[type_]), others),
        some.builds(Call, some.just(type_), some.just("abs"), inner),
        some.builds(Call, some.just(type_), some.sampled_from(["min", "max"]), inner, some.tuples(inner)),
        some.builds(Call, some.just(type_), some.just(f"{type_}.max"), inner, some.tuples(inner)),
    )


EXPRESSIONS = some.sampled_from(sorted(_CONVERSION, key=str)).flatmap(numbers)


def found(expression: Expression) -> object:
    try:
        return value_of(expression)
    except NoValueError:
        return None


def expected(expression: Expression) -> object:
    try:
        return evaluate(expression, Context())
    except EvaluationError:
        return None


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS)
def test_constants_are_worth_what_the_interpreter_says(expression: Expression) -> None:
    assert is_constant(expression)
    one, other = found(expression), expected(expression)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(other):
        assert math.isnan(one)
    else:
        assert (type(one), one) == (type(other), other)


def test_what_is_no_constant() -> None:
    field, parameter = FieldOf(Type.FLOAT, 0, "x"), ParameterOf(Type.FLOAT, "p")
    assert not is_calculable(field)
    assert not is_calculable(Call(Type.FLOAT, "sqrt", parameter))
    assert not is_calculable(Call(Type.INTEGER, "length", Literal(Type.STRING, "x")))
    assert is_calculable(parameter)
    assert not is_constant(Binary(Type.FLOAT, "+", parameter, Literal(Type.FLOAT, 1.0)))


def test_decimals_are_rounded_to_eighteen_places() -> None:
    third = Binary(Type.DECIMAL, "/", Literal(Type.DECIMAL, Decimal(1)), Literal(Type.DECIMAL, Decimal(3)))
    assert value_of(third) == Decimal("0.333333333333333333")
