"""Times and the durations between them, calculated in whole microseconds.

`getTime()` is a float of seconds, which has about a quarter of a microsecond to spare today. A
difference of two such floats is not the float nearest to a duration: events 0.1 seconds apart seem
to be 0.09999990463256836 or 0.10000014305114746 apart. So the times in one sum are added up as
integers, and only the result becomes a float: the one nearest to the duration, as `0.1` is the one
nearest to a tenth. In a comparison all times of both sides are one sum: `b.getTime() <=
a.getTime() + 0.1` is asked as `b.getTime() - a.getTime() <= 0.1`.

Every evaluator calculates with what this module makes of an expression, so they cannot differ.
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

from querylang.dataclass import dataclass, field, fields, replace
from querylang.plan.constants import NoValueError, is_constant, number_of
from querylang.plan.expression import (
    NODES,
    Aggregate,
    Binary,
    Call,
    Expression,
    FieldOf,
    Fold,
    Kind,
    Literal,
    LocalOf,
    PrevOf,
    Type,
    Unary,
)
from querylang.plan.model import QueryPlan

MICROSECONDS = "microseconds"
"""The method of events that gives `getTime()` as an integer; no text can call it."""

SECOND = 1_000_000

_MOST_TIMES = 16
"""The sum of so many times fits 64 bits."""

_DEEPEST = 64
"""So deep in a sum times are looked for: a long sum would take the square of its length."""

_LONGEST = (1 << 53) // SECOND
"""Seconds, of which each number of microseconds has a float of its own."""

_PICKED = ("min", "max", "first", "last", "nth")
"""Folds and aggregates that give one of their values."""

_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


def with_exact_sum(node: Binary) -> Expression | None:
    """A sum or comparison in which several times are, with their sum in microseconds; else None."""
    if node.left.type is None or node.left.type.kind is not Kind.FLOAT:
        return None
    return _known_exact_sum(node) if _mentions_time(node.left) or _mentions_time(node.right) else None


def _mentions_time(node: Expression, depth: int = _DEEPEST) -> bool:
    """Whether a time may be a part of a sum of floats."""
    if not depth:
        return False
    match node:
        case FieldOf() | Literal() | LocalOf():
            return False
        case Call(method=method):
            return method == "getTime"
        case PrevOf(field=name, type=type_):
            return not name and type_ == Type.FLOAT
        case Binary(operator="+" | "-", left=left, right=right):
            return _mentions_time(left, depth - 1) or _mentions_time(right, depth - 1)
        case Unary(operator="-", operand=argument) | Fold(argument=argument) | Aggregate(arguments=(argument, *_)):
            return _mentions_time(argument, depth - 1)
        case _:
            return False


@lru_cache(maxsize=4096)  # the interpreter asks at every evaluation
def _known_exact_sum(node: Binary) -> Expression | None:
    if node.operator in ("+", "-"):
        terms = _Terms.of(node)
        return terms.value() if terms.has_several_times else None
    if node.operator not in _COMPARISONS:
        return None
    terms = _Terms.of(Binary(Type.FLOAT, "-", node.left, node.right))
    return terms.compared(node.operator) if terms.has_several_times else None


def with_exact_times(part: Any) -> Any:
    """An expression, or any other part of a plan, with all its sums of times in microseconds."""
    if isinstance(part, tuple):
        return tuple(with_exact_times(item) for item in part)
    if not isinstance(part, NODES):
        return part
    if isinstance(part, Binary):
        part = with_exact_sum(part) or part
    return replace(part, **{item.name: with_exact_times(getattr(part, item.name)) for item in fields(part)})


def query_with_exact_times(query: QueryPlan) -> QueryPlan:
    """The query with conditions whose sums of times are in microseconds."""
    conditions = tuple(
        replace(item, condition=with_exact_times(item.condition)) if hasattr(item, "condition") else item
        for item in query.conditions
    )
    return query if conditions == query.conditions else replace(query, conditions=conditions)


@dataclass(slots=True)
class _Terms:
    """A sum: what is added and what is subtracted.

    later, earlier: times, in microseconds
    others: floats in text order; True: it is subtracted
    """

    later: list[Expression] = field(default_factory=list)
    earlier: list[Expression] = field(default_factory=list)
    others: list[tuple[bool, Expression]] = field(default_factory=list)

    @staticmethod
    def of(node: Expression) -> _Terms:
        terms = _Terms()
        for is_subtracted, part in _parts(node, is_subtracted=False):
            time = _in_microseconds(part)
            if time is None:
                terms.others.append((is_subtracted, part))
            else:
                (terms.earlier if is_subtracted else terms.later).append(time)
        return terms

    @property
    def has_several_times(self) -> bool:
        return 2 <= len(self.later) + len(self.earlier) <= _MOST_TIMES

    def value(self) -> Expression:
        """The sum, in seconds."""
        return _added([(False, self._seconds()), *self.others])

    def compared(self, operator: str) -> Expression:
        """Whether the sum compares so with 0."""
        if not self.others:
            return self._compared(operator, 0)
        bound = _added([(not is_subtracted, part) for is_subtracted, part in self.others])
        limit = _limit(operator, bound)
        if limit is not None:
            return self._compared(operator, limit)
        return Binary(Type.BOOLEAN, operator, self._seconds(), bound)

    def _compared(self, operator: str, limit: int) -> Expression:
        """Each side is about one event where possible: such a side is computed as a column."""
        earlier = [*self.earlier, Literal(Type.INTEGER, limit)] if limit or not self.earlier else self.earlier
        return Binary(Type.BOOLEAN, operator, _total(self.later), _total(earlier))

    def _seconds(self) -> Expression:
        whole = _total(self.later)
        if self.earlier:
            whole = reduce(lambda left, right: Binary(Type.INTEGER, "-", left, right), self.earlier, whole)
        floating = Call(Type.FLOAT, "toFloat", whole)
        return Binary(Type.FLOAT, "/", floating, Literal(Type.FLOAT, float(SECOND)))


def _parts(node: Expression, *, is_subtracted: bool) -> Iterator[tuple[bool, Expression]]:
    """What a sum consists of, in text order, and whether it is subtracted."""
    match node:
        case Binary(operator="+" | "-" as operator, left=left, right=right) if _mentions_time(node):
            yield from _parts(left, is_subtracted=is_subtracted)
            yield from _parts(right, is_subtracted=is_subtracted != (operator == "-"))
        case Unary(operator="-", operand=operand) if _mentions_time(node):
            yield from _parts(operand, is_subtracted=not is_subtracted)
        case _:
            yield is_subtracted, node


def _in_microseconds(node: Expression) -> Expression | None:
    """A time as an integer; None: it is another value."""
    if node.type != Type.FLOAT:
        return None
    match node:
        case Call(method="getTime", receiver=receiver):
            return Call(Type.INTEGER, MICROSECONDS, receiver)
        case PrevOf(field=""):
            return replace(node, type=Type.INTEGER)
        case Fold(function=function, argument=argument) if function in _PICKED:
            time = _in_microseconds(argument)
            return None if time is None else replace(node, type=Type.INTEGER, argument=time)
        case Aggregate(function=function, arguments=(argument, *others)) if function in _PICKED:
            time = _in_microseconds(argument)
            return None if time is None else replace(node, type=Type.INTEGER, arguments=(time, *others))
        case _:
            return None


def _total(parts: Sequence[Expression]) -> Expression:
    if not parts:
        return Literal(Type.INTEGER, 0)
    return reduce(lambda left, right: Binary(Type.INTEGER, "+", left, right), parts)


def _added(parts: Sequence[tuple[bool, Expression]]) -> Expression:
    """A sum of floats, from the left."""
    (is_subtracted, first), *others = parts
    result = Unary(Type.FLOAT, "-", first) if is_subtracted else first
    for is_subtracted, part in others:
        result = Binary(Type.FLOAT, "-" if is_subtracted else "+", result, part)
    return result


def _limit(operator: str, bound: Expression) -> int | None:
    """The microseconds with which a number of them compares as its seconds do with a constant.

    None: there is no such number, or the bound is not a constant.
    """
    if not is_constant(bound):
        return None
    try:
        seconds = float(number_of(bound))
    except NoValueError:
        return None
    if not abs(seconds) < _LONGEST:
        return None
    least = round(Fraction(seconds) * SECOND) - 2
    is_below = _IS_BELOW[operator]
    while is_below(least / SECOND, seconds):
        least += 1
    if operator in ("=", "!="):
        return least if least / SECOND == seconds else None
    # `x < least` and `x >= least` as they are; `<=` and `>` compare with the number before.
    return least if operator in ("<", ">=") else least - 1


_IS_BELOW: dict[str, Callable[[float, float], bool]] = {
    **dict.fromkeys(("<", ">=", "=", "!="), operators.lt),
    **dict.fromkeys(("<=", ">"), operators.le),
}
"""By operator, which numbers of seconds are on the lower side of the bound."""
