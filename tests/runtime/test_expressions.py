"""The column form of an expression means what the interpreter says, value by value."""

import math

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from querylang.expression import Binary, Call, Expression, FieldOf, Literal, Type, Unary
from runtime.batch import ARROW_TYPES, column_name
from runtime.expressions import evaluate, holds
from runtime.interpreter import EvaluationError
from runtime.interpreter import evaluate as interpret

INTEGERS = st.sampled_from([0, 1, -1, 2, 7, -7, 10**6, 2**53 + 1, 2**63 - 1, -(2**63)]) | st.integers(
    -(2**63), 2**63 - 1
)
FLOATS = (
    st.sampled_from([0.0, -0.0, 1.5, -2.5, 1e308, -1e308, 5e-324, 2.0**63, math.inf, -math.inf, math.nan]) | st.floats()
)
STRINGS = st.sampled_from(["", "a", "b", "ab", "é", "żółć", "😀", "\uffff", "A"])
VALUES = {Type.INTEGER: INTEGERS, Type.FLOAT: FLOATS, Type.STRING: STRINGS, Type.BOOLEAN: st.booleans()}
FIELDS = {"i": Type.INTEGER, "j": Type.INTEGER, "x": Type.FLOAT, "y": Type.FLOAT, "s": Type.STRING, "b": Type.BOOLEAN}
NUMBERS = (Type.INTEGER, Type.FLOAT)


@st.composite
def expressions(draw: st.DrawFn, type_: Type, depth: int = 3) -> Expression:
    """A well-typed expression over one event."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        if draw(st.booleans()):
            return Literal(type_, draw(VALUES[type_]))
        return FieldOf(type_, 0, draw(st.sampled_from([name for name, kind in FIELDS.items() if kind is type_])))
    deeper = depth - 1
    if type_ is Type.STRING:
        return Binary(type_, "+", draw(expressions(type_, deeper)), draw(expressions(type_, deeper)))
    if type_ in NUMBERS:
        match draw(st.sampled_from(["binary", "minus", "convert"])):
            case "binary":
                operator = draw(st.sampled_from("+-*/%"))
                return Binary(type_, operator, draw(expressions(type_, deeper)), draw(expressions(type_, deeper)))
            case "minus":
                return Unary(type_, "-", draw(expressions(type_, deeper)))
        method = "toFloat" if type_ is Type.FLOAT else "toInteger"
        return Call(type_, method, draw(expressions(draw(st.sampled_from(NUMBERS)), deeper)))
    match draw(st.sampled_from(["compare", "logic", "not"])):
        case "compare":
            kind = draw(st.sampled_from([Type.INTEGER, Type.FLOAT, Type.STRING]))
            operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
            return Binary(type_, operator, draw(expressions(kind, deeper)), draw(expressions(kind, deeper)))
        case "logic":
            operator = draw(st.sampled_from(["and", "or", "xor", "=", "!="]))
            return Binary(type_, operator, draw(expressions(type_, deeper)), draw(expressions(type_, deeper)))
    return Unary(type_, "not", draw(expressions(type_, deeper)))


ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | VALUES[type_] for name, type_ in FIELDS.items()}), min_size=1, max_size=5
)


@settings(max_examples=1_000, deadline=None)
@given(st.sampled_from(list(Type)).flatmap(expressions), ROWS)
def test_columns_agree_with_the_interpreter(expression: Expression, rows: list[dict[str, object]]) -> None:
    columns = {
        column_name(name, type_): pa.array([row[name] for row in rows], ARROW_TYPES[type_])
        for name, type_ in FIELDS.items()
    }
    table = pa.table(columns)
    column = evaluate(expression, table)
    got = column.values.to_pylist() if isinstance(column.values, pa.Array) else column.values.tolist()
    valid = np.ones(len(rows), np.bool_) if column.valid is None else column.valid
    for row, value, has_value in zip(rows, got, valid.tolist(), strict=True):
        try:
            expected = interpret(expression, [row])
        except EvaluationError:
            assert not has_value
            continue
        assert has_value
        assert repr(value) == repr(expected)
    if expression.type is Type.BOOLEAN:
        assert holds(expression, table).tolist() == [bool(value) and has for value, has in zip(got, valid, strict=True)]
