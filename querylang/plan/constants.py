"""Constants of a plan: computed ahead, and left open where plans differ in nothing else."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any, TypeVar

from querylang.dataclass import dataclass, fields, is_dataclass, replace
from querylang.plan.expression import (
    NUMBERS,
    Binary,
    Call,
    Expression,
    Items,
    Literal,
    ParameterOf,
    Type,
    Unary,
    children,
    walk,
)
from querylang.plan.library import ARITHMETIC, DECIMAL_LIMIT, DECIMAL_PLACES, LARGEST_INTEGER, SMALLEST_INTEGER
from querylang.plan.model import Log, Print, QueryPlan, Where, Without

# Evaluate constant expressions: numbers of the text, and values of parameters.
#
# Only what durations, counts and ranges consist of is supported: arithmetic, comparisons and
# conversions of numbers. They mean the same as everywhere. Integers are 64-bit and wrap; their
# division truncates toward zero; `%` takes the sign of the left side. Floats are IEEE doubles;
# decimals are exact to 18 places.

Value = bool | int | float | Decimal | str

SECOND = 1_000_000
LONGEST = 100_000 * 365 * 86_400 * SECOND
"""Microseconds; a time and a duration together fit 64 bits."""

_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_LAST_PLACE = Decimal(1).scaleb(-DECIMAL_PLACES)

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class NoValueError(Exception):
    """An expression without a value; the text gives the reason for users."""


class WrongNumberError(Exception):
    """A duration or count that no window or wait can have; the text gives the reason for users."""


def is_constant(node: Expression) -> bool:
    """Whether the expression can be evaluated from literals alone."""
    if isinstance(node, Literal):
        return True
    return is_calculable(node) and not any(isinstance(part, ParameterOf) for part in walk(node))


def is_calculable(node: Expression) -> bool:
    """Whether the expression consists of literals, parameters, and operations supported here."""
    match node:
        case Literal() | ParameterOf():
            return True
        case Unary(operator=sign):
            return sign == "-" and all(map(is_calculable, children(node)))
        case Binary(operator=sign, left=left):
            is_known = sign in _COMPARISONS or (sign in ARITHMETIC and left.type in NUMBERS)
            return is_known and all(map(is_calculable, children(node)))
        case Call(method=method, receiver=receiver):
            is_known = method.rpartition(".")[2] in _METHODS and receiver.type in NUMBERS
            return is_known and all(map(is_calculable, children(node)))
        case _:
            return False


def value_of(node: Expression) -> Value:
    """The value of a constant expression. Raises NoValueError."""
    if isinstance(node, Literal):
        return node.value
    match node:
        case Unary(operand=operand):
            return _fitting(node.type, -_number(operand))
        case Binary(operator=sign, left=left, right=right) if sign in _COMPARISONS:
            return _COMPARISONS[sign](value_of(left), value_of(right))
        case Binary(operator=sign, left=left, right=right):
            return _fitting(node.type, _calculated(sign, _number(left), _number(right)))
        case Call(method=method, receiver=receiver, arguments=arguments):
            values = [_number(part) for part in (receiver, *arguments)]
            return _fitting(node.type, _METHODS[method.rpartition(".")[2]](*values))
    raise AssertionError("only constants are evaluated")


def number_of(node: Expression) -> int | float:
    """The value of a constant integer or float. Raises NoValueError."""
    number = value_of(node)
    assert isinstance(number, int | float), "durations and counts are integers or floats"
    return number


def microseconds_of(node: Expression) -> int:
    """A duration in constant seconds.

    Raises NoValueError; WrongNumberError if it is not greater than 0, or too long.
    """
    seconds = number_of(node)
    length = of_seconds(seconds)
    if abs(length) > LONGEST:
        raise WrongNumberError(f"must not be longer than 100,000 years, but is {seconds} seconds")
    if round(length) <= 0:
        raise WrongNumberError(f"must be greater than 0, but is {seconds} seconds")
    return round(length)


def count_of(node: Expression) -> int:
    """A constant count. Raises NoValueError; WrongNumberError if it is not greater than 0."""
    number = number_of(node)
    if number <= 0:
        raise WrongNumberError(f"must be greater than 0, but is {number}")
    return int(number)


def decimal_of(number: Decimal) -> Decimal:
    """The nearest decimal of the language. Raises NoValueError."""
    if not number.is_finite() or number.copy_abs() >= DECIMAL_LIMIT:
        raise NoValueError(f"{number} is too large for a decimal")
    return number.quantize(_LAST_PLACE, context=_EXACT)


def of_seconds(number: float) -> Fraction:
    """Exact microseconds; infinite and undefined numbers become longer than all that is allowed."""
    return Fraction(number) * SECOND if math.isfinite(number) else Fraction(LONGEST + 1)


def _number(node: Expression) -> Any:
    value = value_of(node)
    assert not isinstance(value, str | bool), "only numbers are calculated with"
    return value


def _calculated(sign: str, left: Any, right: Any) -> Any:
    if isinstance(left, float):
        return _of_floats(sign, left, right)
    match sign:
        case "+":
            return _EXACT.add(left, right) if isinstance(left, Decimal) else left + right
        case "-":
            return _EXACT.subtract(left, right) if isinstance(left, Decimal) else left - right
        case "*":
            return _EXACT.multiply(left, right) if isinstance(left, Decimal) else left * right
    if right == 0:
        raise NoValueError("it divides by zero")
    if isinstance(left, Decimal):
        return _EXACT.divide(left, right) if sign == "/" else _EXACT.remainder(left, right)
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if sign == "/" else left - quotient * right


def _of_floats(sign: str, left: float, right: float) -> float:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/" if right != 0.0:
            return left / right
        case "%" if right != 0.0 and math.isfinite(left):
            return math.fmod(left, right)
    if sign == "%" or left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _integer(value: Any) -> int:
    if not math.isfinite(value) or not SMALLEST_INTEGER <= int(value) <= LARGEST_INTEGER:
        raise NoValueError(f"{value} is not an integer")
    return int(value)


def _decimal(value: Any) -> Decimal:
    """The decimal with a float's shortest digits: 0.1 is a tenth."""
    return decimal_of(Decimal(repr(value) if isinstance(value, float) else value))


def _smaller(left: Any, right: Any) -> Any:
    return math.nan if _is_nan(left, right) else min(left, right)


def _larger(left: Any, right: Any) -> Any:
    return math.nan if _is_nan(left, right) else max(left, right)


def _is_nan(*values: Any) -> bool:
    return any(isinstance(value, float) and math.isnan(value) for value in values)


_METHODS: dict[str, Callable[..., Any]] = {
    "toFloat": float,
    "toInteger": _integer,
    "toDecimal": _decimal,
    "abs": abs,
    "min": _smaller,
    "max": _larger,
}


def _fitting(type_: Type | None, value: Any) -> Any:
    """The value within the bounds of its type: integers wrap, decimals are rounded."""
    if type_ == Type.INTEGER:
        return (value - SMALLEST_INTEGER) % (1 << 64) + SMALLEST_INTEGER
    return decimal_of(value) if type_ == Type.DECIMAL else value


# Plans of queries that differ in constants and names: others are made of one that was checked.
#
# A constant is *free* if nothing that the checker does depends on its value: it is compared with,
# or added to, what is not constant; it is an element of a list in which such a value is looked for;
# it is an argument of a method; it is all that is printed. Other constants are part of the
# template.

Constant = int | float | str

_OPERATORS = frozenset({"=", "!=", "<", "<=", ">", ">=", "+", "-", "*"})
_LOOKED_AT = frozenset({"split", "inNetwork"})
"""Methods whose argument the checker looks at."""


@dataclass(frozen=True, slots=True)
class _Free:
    """A literal whose value is one of those given; `sign`: -1: there is a minus sign before it."""

    type: Type
    number: int
    sign: int

    def filled(self, values: Any) -> Any:
        value: Constant = values[self.number]
        if isinstance(value, str):
            return Literal(self.type, value)
        number = value * self.sign
        return Literal(self.type, float(number) if self.type == Type.FLOAT else number)


@dataclass(frozen=True, slots=True)
class _Given:
    """A parameter of a query, for which an instance has a value."""

    name: str

    def filled(self, values: Any) -> Any:
        return values[self.name]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a plan with something free in it: the values of its fields, or its elements."""

    kind: type
    values: list[Any]
    inner: tuple[tuple[int, Hole], ...]

    def filled(self, values: Any) -> Any:
        """The part with values: by number for literals, by name for parameters."""
        own = self.values.copy()
        for place, part in self.inner:
            own[place] = part.filled(values)
        return tuple(own) if self.kind is tuple else self.kind(*own)


Hole = Part | _Free | _Given


@dataclass(frozen=True, slots=True)
class Template:
    """The plan of a query whose free constants have no values."""

    plan: QueryPlan
    _whole: Hole | None

    def filled(self, name: str, values: Sequence[Constant]) -> QueryPlan:
        """The plan under this name, with these constants."""
        if self._whole is None:
            return replace(self.plan, name=name)
        made: QueryPlan = self._whole.filled(values)
        object.__setattr__(made, "name", name)  # nobody else has seen it yet
        return made


def template_of(plan: QueryPlan, marks: Sequence[Constant]) -> tuple[Template, frozenset[int]]:
    """The template of a plan in which these constants are free, and those of them that are not.

    marks: constants that are nowhere else in the plan, nor the same with a minus sign
    """
    free = {id(literal) for literal in free_literals(plan)}
    seen, refused = set[int](), set[int]()

    def found(literal: Literal, number: int) -> None:
        (seen if id(literal) in free else refused).add(number)

    return Template(plan, part_with(plan, numbers_of(marks), found)), frozenset(range(len(marks))) - (seen - refused)


def template_with(plan: QueryPlan, marks: Sequence[Constant]) -> Template:
    """The template of a plan in which each of these constants, which are nowhere else, is free."""
    return Template(plan, part_with(plan, numbers_of(marks)))


Numbers = Mapping[Any, tuple[int, int]]
"""By constant its number, and its sign there: 1, or -1 for one that has a minus sign."""


def numbers_of(marks: Sequence[Constant]) -> Numbers:
    """Those of constants and, unless they are text, of the same with a minus sign."""
    numbers: dict[Any, tuple[int, int]] = {}
    for number, mark in enumerate(marks):
        numbers[mark] = number, 1
        if not isinstance(mark, str):
            numbers[-mark] = number, -1
    return numbers


def part_with(part: Any, numbers: Numbers, found: Callable[[Literal, int], None] = lambda *_: None) -> Hole | None:
    """A part of a plan in which these constants are free; None: it has none of them.

    found: called with each literal that is one, and its number
    """

    def hole(part: Any) -> Hole | None:
        if not isinstance(part, Literal) or isinstance(part.value, bool) or part.value not in numbers:
            return None
        number, sign = numbers[part.value]
        found(part, number)
        return _Free(part.type, number, sign)

    return _with_holes(part, hole)


def _with_holes(part: Any, hole: Callable[[Any], Hole | None]) -> Hole | None:
    """A part of a plan with what `hole` gives in place of its parts; None: it gives nothing."""
    made = hole(part)
    if made is not None:
        return made
    if isinstance(part, tuple):
        own: list[Any] = list(part)
    elif is_dataclass(part) and not isinstance(part, Literal | Type | type):
        own = [getattr(part, item.name) for item in fields(part)]
    else:
        return None
    inner = tuple((place, has) for place, item in enumerate(own) if (has := _with_holes(item, hole)) is not None)
    return Part(tuple if isinstance(part, tuple) else type(part), own, inner) if inner else None


def part_with_parameters(part: Any) -> Hole | None:
    """A part of a plan to which the values of its parameters can be given; None: it has none."""
    return _with_holes(part, lambda own: _Given(own.name) if isinstance(own, ParameterOf) else None)


def free_parameters(query: QueryPlan) -> frozenset[str]:
    """The parameters whose values nothing depends on that is done before the query runs."""
    used, free = Counter[str](), Counter[str]()

    def found(own: Any) -> None:
        if isinstance(own, ParameterOf):
            used[own.name] += 1

    _with_holes(query, found)
    for whole in _wholes(query):
        free.update(own.name for node in walk(whole) for own in _free_in(node, ParameterOf))
    return frozenset(name for name, count in used.items() if free[name] == count)


def _wholes(plan: QueryPlan) -> Iterator[Expression]:
    """The expressions of a query in which something may be free."""
    wholes: list[Expression | None] = [item.filter for item in plan.inputs]
    wholes += [item.condition for item in plan.conditions if isinstance(item, Where | Without)]
    wholes += [item.value for item in plan.selected]
    if plan.every is not None:
        wholes += plan.every.having
    yield from (whole for whole in wholes if whole is not None)


def free_literals(plan: QueryPlan) -> Iterator[Literal]:
    """The literals of a plan whose values nothing depends on that is done before it runs."""
    for whole in _wholes(plan):
        yield from free_literals_in(whole)
    for statement in plan.block:
        if isinstance(statement, Print | Log) and isinstance(statement.text, Literal):
            yield statement.text


def free_literals_in(whole: Expression) -> Iterator[Literal]:
    """Those of an expression."""
    for node in walk(whole):
        yield from _free_in(node, Literal)


Leaf = TypeVar("Leaf", Literal, ParameterOf)


def _free_in(node: Expression, kind: type[Leaf]) -> Iterator[Leaf]:
    """The literals or parameters that are direct parts of an expression."""
    match node:
        case Binary(operator=operator, left=one, right=beside) if isinstance(one, kind) and operator in _OPERATORS:
            found = [one]
        case Binary(operator=operator, left=beside, right=one) if isinstance(one, kind) and operator in _OPERATORS:
            found = [one]
        case Call(method="contains", receiver=Items(items=items), arguments=(beside,)):
            found = [item for item in items if isinstance(item, kind)]
        case Call(method=method, receiver=beside, arguments=arguments) if "." not in method:
            found = [item for item in arguments if isinstance(item, kind) and method not in _LOOKED_AT]
        case _:
            return
    if not is_calculable(beside):
        yield from found
