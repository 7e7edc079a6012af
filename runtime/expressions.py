"""Expressions over one event as columns: the vectorised reading of the typed tree.

Takes an expression whose terms are all the same event, and the table that holds the events; gives its value on every row,
with a mask of the rows where evaluation succeeds. What each operator means is said once more, value by value, in
`runtime.interpreter`, and for conditions over several events in `runtime.kernel_program`; a differential test holds
the three together. What has no vectorised form (`toString`) goes through the interpreter, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.expression import Binary, Call, EventText, Expression, FieldOf, Literal, Type, Unary
from runtime.batch import ARROW_TYPES, column_name
from runtime.compiled import kernel
from querylang.plan import EventType, Plan
from runtime.arrow import arrow_type, one_chunk

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Column:
    """One value a row: a numpy array, for strings an Arrow array; `valid` None where every row has a value."""

    values: Any
    valid: Mask | None = None


def about_one_event(expression: Expression) -> Expression:
    """The same expression with term 0 for whatever term it mentions, so that equal ones compare equal."""
    match expression:
        case Literal():
            return expression
        case FieldOf() | EventText():
            return replace(expression, term=0)
        case Unary(operand=operand):
            return replace(expression, operand=about_one_event(operand))
        case Binary(left=left, right=right):
            return replace(expression, left=about_one_event(left), right=about_one_event(right))
        case Call(receiver=receiver, arguments=arguments):
            one = tuple(about_one_event(argument) for argument in arguments)
            return replace(expression, receiver=about_one_event(receiver), arguments=one)
    assert_never(expression)


def is_vectorised(expression: Expression) -> bool:
    """Whether `evaluate` has a vectorised form for the whole tree."""
    match expression:
        case Literal() | FieldOf():
            return True
        case EventText():
            return False
        case Unary(operand=operand):
            return is_vectorised(operand)
        case Binary(left=left, right=right):
            return is_vectorised(left) and is_vectorised(right)
        case Call(method=method, receiver=receiver):
            numeric = receiver.type in (Type.INTEGER, Type.FLOAT)
            return method in ("toFloat", "toInteger") and numeric and is_vectorised(receiver)
    assert_never(expression)


def evaluate(expression: Expression, table: pa.Table) -> Column:
    """The value of a vectorised expression on every row of `table` (columns named by `column_name`)."""
    match expression:
        case Literal(type=type_, value=value):
            return _constant(type_, value, len(table))
        case FieldOf(type=type_, field=field):
            return _field(table, field, type_)
        case Unary(operator=operator, operand=operand):
            inner = evaluate(operand, table)
            with np.errstate(over="ignore"):
                return Column(~inner.values if operator == "not" else -inner.values, inner.valid)
        case Binary(operator="and" | "or"):
            return _logical(expression, table)
        case Binary(operator=operator, left=left, right=right):
            return _binary(operator, left.type, evaluate(left, table), evaluate(right, table))
        case Call(method=method, receiver=receiver):
            return _convert(method, evaluate(receiver, table))
        case EventText():
            raise AssertionError("toString of an event has no vectorised form")
    assert_never(expression)


def holds(expression: Expression, table: pa.Table) -> Mask:
    """Where a boolean expression is true; a row on which it cannot be evaluated is false."""
    column = evaluate(expression, table)
    values: Mask = column.values
    return values if column.valid is None else values & column.valid


def as_array(expression: Expression, table: pa.Table, plan: Plan, event: EventType) -> pa.Array:
    """The value of any expression over one event (term 0, of type `event`) on every row, null where it has none."""
    if isinstance(expression, FieldOf):
        name = column_name(expression.field, expression.type)
        missing = pa.nulls(len(table), arrow_type(expression.type, plan))
        return one_chunk(table.column(name)) if name in table.column_names else missing
    column = evaluate(expression, table)
    if expression.type == Type.STRING:
        return column.values
    return pa.array(column.values, mask=None if column.valid is None else ~column.valid)


def _constant(type_: Type, value: Any, length: int) -> Column:
    if type_ is Type.STRING:
        return Column(pa.repeat(pa.scalar(value, pa.string()), length))
    return Column(np.full(length, value, ARROW_TYPES[type_].to_pandas_dtype()))


def _field(table: pa.Table, field: str, type_: Type) -> Column:
    name = column_name(field, type_)
    column = one_chunk(table.column(name)) if name in table.column_names else pa.nulls(len(table), ARROW_TYPES[type_])
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    if type_ is Type.STRING:
        return Column(column, valid)
    if valid is not None:
        column = column.fill_null(False if type_ is Type.BOOLEAN else 0)
    return Column(column.to_numpy(zero_copy_only=False), valid)


def both(left: Mask | None, right: Mask | None) -> Mask | None:
    """Where two columns both have a value."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _logical(expression: Binary, table: pa.Table) -> Column:
    """`and` and `or` do not look at the right side where the left decides, failures there included."""
    left, right = evaluate(expression.left, table), evaluate(expression.right, table)
    decided = ~left.values if expression.operator == "and" else left.values
    values = left.values & right.values if expression.operator == "and" else left.values | right.values
    right_valid = None if right.valid is None else right.valid | decided
    return Column(values, both(left.valid, right_valid))


def _binary(operator: str, type_: Type, left: Column, right: Column) -> Column:
    valid = both(left.valid, right.valid)
    if type_ is Type.STRING:
        return Column(_strings(operator, left.values, right.values), valid)
    a, b = left.values, right.values
    with np.errstate(all="ignore"):
        match operator:
            case "+":
                return Column(a + b, valid)
            case "-":
                return Column(a - b, valid)
            case "*":
                return Column(a * b, valid)
            case "/" if type_ is Type.INTEGER:
                return Column(_divide(a, b), both(valid, _nonzero(b)))
            case "/":
                return Column(a / b, valid)
            case "%" if type_ is Type.INTEGER:
                return Column(_remainder(a, b), both(valid, _nonzero(b)))
            case "%":
                return Column(np.fmod(a, b), valid)
            case "=":
                return Column(a == b, valid)
            case "!=" | "xor":
                return Column(a != b, valid)
            case "<":
                return Column(a < b, valid)
            case "<=":
                return Column(a <= b, valid)
            case ">":
                return Column(a > b, valid)
            case ">=":
                return Column(a >= b, valid)
    raise AssertionError(f"operator {operator!r} on {type_}")


def _nonzero(values: NDArray[np.int64]) -> Mask | None:
    mask: Mask = values != 0
    return None if mask.all() else mask


_STRING_COMPARISONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _strings(operator: str, left: pa.Array, right: pa.Array) -> Any:
    if operator == "+":
        return pc.binary_join_element_wise(left, right, "")
    answer = _STRING_COMPARISONS[operator](left, right)
    return answer.fill_null(False).to_numpy(zero_copy_only=False)


def _convert(method: str, inner: Column) -> Column:
    if method == "toFloat":
        return Column(inner.values.astype(np.float64), inner.valid)
    if inner.values.dtype == np.int64:
        return inner
    fits = (inner.values >= -(2.0**63)) & (inner.values < 2.0**63)
    whole = np.where(fits, inner.values, 0.0).astype(np.int64)
    return Column(whole, inner.valid if fits.all() else both(inner.valid, fits))


@kernel
def divide(a: int, b: int) -> int:
    """Integer division truncating toward zero, wrapping; `b` is not 0."""
    if b == -1:
        return -a
    quotient = a // b
    if quotient < 0 and quotient * b != a:
        quotient += 1
    return quotient


@kernel
def remainder(a: int, b: int) -> int:
    """What `divide` leaves; it has the sign of `a`; `b` is not 0."""
    if b == -1:
        return 0
    return a - divide(a, b) * b


@kernel
def _divide(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    result = np.zeros(len(a), np.int64)
    for row in range(len(a)):
        if b[row] != 0:
            result[row] = divide(a[row], b[row])
    return result


@kernel
def _remainder(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    result = np.zeros(len(a), np.int64)
    for row in range(len(a)):
        if b[row] != 0:
            result[row] = remainder(a[row], b[row])
    return result
