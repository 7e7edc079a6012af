"""Conditions of random queries: one tree that can be written as query text and as SQL, and that Python can decide.

Made for comparing: nothing of `querylang` or `runtime` is used, so that a mistake there cannot hide here.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Values = Mapping[str, Any]
Bound = Mapping[str, Values]
"""The fields of the event behind each name."""


MOMENT = "getTime()"
"""Under this name `Values` hold the event's time in seconds."""


class NoValueError(Exception):
    """It fails: an integer was divided by zero, or a float does not fit an integer."""


class Short:
    """A dataclass's repr without the fields that have their default."""

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True)
class Name:
    """Field `field` of the event behind the name `term`; `type` is one of integer, float, string, boolean."""

    term: str
    field: str
    type: str


@dataclass(frozen=True)
class Moment:
    """`term.getTime()`: the event's time in seconds."""

    term: str


@dataclass(frozen=True)
class Constant:
    """A literal."""

    value: Any


@dataclass(frozen=True)
class Operation:
    """`left operator right`."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Not:
    """`not operand`."""

    operand: Node


@dataclass(frozen=True)
class Negative:
    """`-operand`."""

    operand: Node


@dataclass(frozen=True)
class Method:
    """`operand.name()`."""

    name: str
    operand: Node


@dataclass(frozen=True)
class Aggregate:
    """`function(arguments)` over all candidates."""

    function: str
    arguments: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Selected:
    """The value of a `select` clause, by its name."""

    name: str


Node = Name | Moment | Constant | Operation | Not | Negative | Method | Aggregate | Selected


def to_query(node: Node, fields: Callable[[str, str], str]) -> str:
    """The condition in the query language; `fields` says what the event behind a name calls a field."""

    def text(inner: Node) -> str:
        return to_query(inner, fields)

    match node:
        case Name(term, field, _):
            return f"{term}.{fields(term, field)}"
        case Moment(term):
            return f"{term}.getTime()"
        case Constant(bool() as value):
            return str(value).lower()
        case Constant(str() as value):
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case Constant(value):
            return repr(value)
        case Operation(sign, left, right):
            return f"({text(left)} {sign} {text(right)})"
        case Not(operand):
            return f"(not {text(operand)})"
        case Negative(operand):
            return f"(-{text(operand)})"
        case Method(name, operand):
            return f"{text(operand)}.{name}()"
        case Aggregate(function, arguments):
            return f"{function}({', '.join(map(text, arguments))})"
        case Selected(name):
            return name


def to_sql(node: Node) -> str:
    """The condition in SQL, where each name is the alias of a table with one column a field."""
    match node:
        case Name(term, field, _):
            return f"{term}.{field}"
        case Constant(bool() as value):
            return str(value).lower()
        case Constant(str() as value):
            return "'" + value.replace("'", "''") + "'"
        case Constant(float() as value):
            return f"CAST('{value!r}' AS DOUBLE)"
        case Constant(value):
            return f"CAST({value!r} AS BIGINT)"
        case Operation("xor", left, right):
            return f"({to_sql(left)} <> {to_sql(right)})"
        case Operation("+", left, right) if is_text(left):
            return f"({to_sql(left)} || {to_sql(right)})"
        case Operation(sign, left, right):
            return f"({to_sql(left)} {'<>' if sign == '!=' else sign} {to_sql(right)})"
        case Not(operand):
            return f"(NOT {to_sql(operand)})"
        case Negative(operand):
            return f"(-{to_sql(operand)})"
        case Method("toFloat", operand):
            return f"CAST({to_sql(operand)} AS DOUBLE)"
        case _:
            raise AssertionError(f"no SQL for {node}")


def is_text(node: Node) -> bool:
    """Whether the value is a string."""
    match node:
        case Name(_, _, type_):
            return type_ == "string"
        case Constant(value):
            return isinstance(value, str)
        case Operation("+", left, _):
            return is_text(left)
        case Method(name, _):
            return name == "toString"
        case _:
            return False


def sql_can_say(node: Node) -> bool:
    """Whether SQL means the same: no integer that overflows or is divided, no text of numbers."""
    match node:
        case Name() | Constant():
            return True
        case Operation(sign, left, right):
            return sign not in {"/", "%", "*"} and sql_can_say(left) and sql_can_say(right)
        case Not(operand) | Negative(operand):
            return sql_can_say(operand)
        case Method(name, operand):
            return name == "toFloat" and sql_can_say(operand)
        case _:
            return False


def parts_of(node: Node) -> tuple[Node, ...]:
    """The expressions right below."""
    match node:
        case Operation(_, left, right):
            return (left, right)
        case Not(operand) | Negative(operand) | Method(_, operand):
            return (operand,)
        case Aggregate(_, arguments):
            return arguments
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """The expression and all below it."""
    yield node
    for part in parts_of(node):
        yield from walk(part)


def names_in(node: Node) -> frozenset[str]:
    """The names that the expression mentions."""
    return frozenset(item.term for item in walk(node) if isinstance(item, Name | Moment))


def replaced(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """The expression in which each part for which `change` gives another one is that one."""
    other = change(node)
    if other is not None:
        return other
    match node:
        case Operation(sign, left, right):
            return Operation(sign, replaced(left, change), replaced(right, change))
        case Not(operand):
            return Not(replaced(operand, change))
        case Negative(operand):
            return Negative(replaced(operand, change))
        case Method(name, operand):
            return Method(name, replaced(operand, change))
        case _:
            return node


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "xor": operator.ne,
}


def is_true(node: Node, bound: Bound) -> bool:
    """Whether the condition holds; one that is null or fails does not."""
    try:
        return value_of(node, bound) is True
    except NoValueError:
        return False


def value_of(node: Node, bound: Bound) -> Any:
    """The value, None for a null; raises NoValueError."""
    match node:
        case Name(term, field, _):
            return bound[term][field]
        case Moment(term):
            return value_of(Name(term, MOMENT, "float"), bound)
        case Constant(value):
            return value
        case Operation("and" | "or" as sign, left, right):
            decisive = sign == "or"
            sides = [value_of(left, bound)]
            if sides[0] is not decisive:
                sides.append(value_of(right, bound))
            if decisive in sides:
                return decisive
            return None if None in sides else not decisive
        case _:
            values = [value_of(part, bound) for part in parts_of(node)]
            return None if None in values else worked_out(node, values)


def worked_out(node: Node, values: list[Any]) -> Any:
    """What an operation makes of the values of its parts."""
    match node:
        case Operation(sign) if sign in COMPARE:
            return COMPARE[sign](*values)
        case Operation(sign):
            return arithmetic(sign, *values)
        case Not():
            return not values[0]
        case Negative():
            return arithmetic("*", values[0], -1)
        case Method("toFloat"):
            return float(values[0])
        case Method("toInteger"):
            return to_integer(values[0])
        case Method("toString"):
            return str(values[0])
        case _:
            raise AssertionError(node)


def to_integer(value: float) -> int:
    """Truncated; raises NoValueError where no 64-bit integer is near."""
    if math.isnan(value) or not -(2.0**63) <= value < 2.0**63:
        raise NoValueError
    return math.trunc(value)


def arithmetic(sign: str, left: Any, right: Any) -> Any:
    """64-bit wrapping integers, IEEE doubles, joined strings."""
    if isinstance(left, str):
        return left + right
    whole = isinstance(left, int)
    match sign:
        case "+":
            exact = left + right
        case "-":
            exact = left - right
        case "*":
            exact = left * right
        case "/" if whole:
            if right == 0:
                raise NoValueError
            exact = left // right
            exact += exact < 0 and exact * right != left
        case "/":
            return float_divide(left, right)
        case "%" if whole:
            if right == 0:
                raise NoValueError
            exact = int(math.copysign(1, left)) * (abs(left) % abs(right))
        case _:
            raise AssertionError(sign)
    return int.from_bytes((exact % 2**64).to_bytes(8, "big"), "big", signed=True) if whole else exact


def float_divide(left: float, right: float) -> float:
    """IEEE division."""
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.inf if (left > 0) == (math.copysign(1, right) > 0) else -math.inf
