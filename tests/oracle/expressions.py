"""Expressions of conditions and of `select`: their text and their value for one assignment of events to names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tests.oracle.events import SECOND, Event, Value

Binding = Event | tuple[Event, ...] | None
"""What a name is bound to: an event, a run, or nothing (unset)."""

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


class NoValueError(Exception):
    """An operation that fails."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean while an expression is evaluated.

    single: the event of each name, where it has one
    runs: the events of each run, for folds
    members: all events of the candidate in their total order, for `prev`
    """

    single: Mapping[str, Event]
    runs: Mapping[str, tuple[Event, ...]]
    members: Sequence[Event]

    def before(self, event: Event) -> Event | None:
        """The candidate's event directly before this one."""
        older = [member for member in self.members if member.place < event.place]
        return older[-1] if older else None

    def with_events(self, events: Mapping[str, Event]) -> Scope:
        return Scope({**self.single, **events}, self.runs, self.members)


@dataclass(frozen=True, slots=True)
class Constant:
    value: Value

    def text(self) -> str:
        return constant_text(self.value)


@dataclass(frozen=True, slots=True)
class Field:
    """`a.v` or `a.getTime()`."""

    name: str
    field: str

    def text(self) -> str:
        return f"{self.name}.{self.field}"


@dataclass(frozen=True, slots=True)
class Prev:
    """`prev(a).v`."""

    name: str
    field: str

    def text(self) -> str:
        return f"prev({self.name}).{self.field}"


@dataclass(frozen=True, slots=True)
class End:
    """`first(a).v`, `last(a).v`."""

    which: str
    name: str
    field: str

    def text(self) -> str:
        return f"{self.which}({self.name}).{self.field}"


@dataclass(frozen=True, slots=True)
class Whole:
    """`a` by itself: a whole run, in `count(a)` and in `select a as n`."""

    name: str

    def text(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Fold:
    """`sum(a.v)`, `count(a)`."""

    function: str
    inside: Node

    def text(self) -> str:
        return f"{self.function}({self.inside.text()})"


@dataclass(frozen=True, slots=True)
class Operation:
    """Two sides and a sign: arithmetic, a comparison, `and`, `or`, `xor`."""

    sign: str
    left: Node
    right: Node

    def text(self) -> str:
        return f"({self.left.text()} {self.sign} {self.right.text()})"


@dataclass(frozen=True, slots=True)
class Not:
    inside: Node

    def text(self) -> str:
        return f"(not {self.inside.text()})"


@dataclass(frozen=True, slots=True)
class IsNull:
    """`x is null`, `x is not null`."""

    inside: Node
    is_denied: bool

    def text(self) -> str:
        return f"({self.inside.text()} is {'not ' if self.is_denied else ''}null)"


@dataclass(frozen=True, slots=True)
class OneOf:
    """`x in [...]`, `x not in [...]`."""

    inside: Node
    values: tuple[Value, ...]
    is_denied: bool

    def text(self) -> str:
        words = "not in" if self.is_denied else "in"
        return f"({self.inside.text()} {words} [{', '.join(map(constant_text, self.values))}])"


Node = Constant | Field | Prev | End | Whole | Fold | Operation | Not | IsNull | OneOf


def nodes(node: Node, *, folds: bool = True) -> Iterator[Node]:
    """The node and all below it; `folds=False`: what stands inside folds is left out."""
    yield node
    match node:
        case Operation():
            yield from nodes(node.left, folds=folds)
            yield from nodes(node.right, folds=folds)
        case Not() | IsNull() | OneOf():
            yield from nodes(node.inside, folds=folds)
        case Fold() if folds:
            yield from nodes(node.inside)


def names_of(node: Node) -> set[str]:
    """All names that it mentions."""
    return {item.name for item in nodes(node) if isinstance(item, Field | Prev | End | Whole)}


def conjuncts(node: Node) -> list[Node]:
    """The parts of a condition at its top-level `and`s."""
    if isinstance(node, Operation) and node.sign == "and":
        return [*conjuncts(node.left), *conjuncts(node.right)]
    return [node]


def value(node: Node, scope: Scope) -> Value:
    """Its value, None for a null; raises NoValueError."""
    match node:
        case Constant():
            return node.value
        case Field():
            return scope.single[node.name].row.field(node.field)
        case Prev():
            before = scope.before(scope.single[node.name])
            assert before is not None, "who asks for prev has seen that it exists"
            return before.row.field(node.field)
        case End():
            run = scope.runs[node.name]
            return run[0 if node.which == "first" else -1].row.field(node.field)
        case Fold():
            return fold(node, scope)
        case Not():
            inside = value(node.inside, scope)
            return None if inside is None else not inside
        case IsNull():
            return (value(node.inside, scope) is None) != node.is_denied
        case OneOf():
            inside = value(node.inside, scope)
            return None if inside is None else (inside in node.values) != node.is_denied
        case Operation():
            return operation(node.sign, value(node.left, scope), value(node.right, scope))
        case Whole():
            raise AssertionError("a whole run has no single value")


def fold(node: Fold, scope: Scope) -> Value:
    """The value of a fold, without nulls; names of one group are taken in pairs; raises NoValueError."""
    runs = {name: scope.runs[name] for name in names_of(node.inside) if name in scope.runs}
    if node.function == "count":
        return len(next(iter(runs.values())))
    each = zip(*runs.values(), strict=True)
    all_values = [value(node.inside, scope.with_events(dict(zip(runs, events, strict=True)))) for events in each]
    values = [item for item in all_values if item is not None]
    numbers = [
        float(item) if isinstance(item, Fraction) else item for item in values if not isinstance(item, bool | str)
    ]
    assert len(numbers) == len(values), "folds are over numbers"
    match node.function:
        case "sum":
            return added(numbers, node.inside)
        case _ if not numbers:
            return None
        case "avg":
            return added(numbers, node.inside) / len(numbers)
        case "min":
            return min(numbers)
        case "max":
            return max(numbers)
    raise AssertionError(f"{node.function!r} is no fold")


def added(numbers: Sequence[int | float], inside: Node) -> int | float:
    """The sum, oldest first; of none the zero of the expression's type."""
    total: int | float = 0.0 if is_float(inside) else 0
    for number in numbers:
        total += number
    return total


def is_float(node: Node) -> bool:
    """Whether a number's expression is a float."""
    match node:
        case Constant():
            return isinstance(node.value, float)
        case Field() | Prev() | End():
            return node.field in {"w", "getTime()"}
        case Fold():
            return node.function == "avg" or (node.function != "count" and is_float(node.inside))
        case Operation():
            return is_float(node.left) or is_float(node.right)
    return False


def operation(sign: str, left: Value, right: Value) -> Value:
    """Two values and a sign; raises NoValueError for a division of integers by zero.

    What is calculated with times is exact, and numbers beside them are read as they are written.
    """
    if sign in {"and", "or"}:
        return decided(left, right, by=sign == "or")
    if left is None or right is None:
        return None
    if isinstance(left, Fraction) or isinstance(right, Fraction):
        left, right = exact(left), exact(right)
    if sign in COMPARISONS:
        return compare(sign, left, right)
    match sign, left, right:
        case "xor", _, _:
            return bool(left) != bool(right)
        case "+", str(), str():
            return left + right
    assert isinstance(left, int | float | Fraction)
    assert isinstance(right, int | float | Fraction)
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/" if isinstance(left, int) and isinstance(right, int):
            return divided(left, right)
        case "%" if isinstance(left, int) and isinstance(right, int):
            return left - right * divided(left, right)
    raise AssertionError(f"no operation {left!r} {sign} {right!r}")


def decided(left: Value, right: Value, *, by: bool) -> Value:
    """`and`, decided by a false side, or `or`, decided by a true one, in either order; a null does not decide."""
    if by in (left, right):
        return by
    return None if left is None or right is None else not by


def exact(number: Value) -> Fraction:
    """0.1 is a tenth."""
    return number if isinstance(number, Fraction) else Fraction(repr(number))


def divided(left: int, right: int) -> int:
    """Division of integers: truncates toward zero."""
    if not right:
        raise NoValueError
    return math.trunc(left / right)


def compare(sign: str, left: Value, right: Value) -> bool | None:
    """A comparison; strings by their code points; with a null it is null."""
    if left is None or right is None:
        return None
    if sign in {"=", "!="}:
        return (left == right) == (sign == "=")
    if isinstance(left, str) or isinstance(right, str):
        assert isinstance(left, str)
        assert isinstance(right, str)
        return in_order(sign, (left > right) - (left < right))
    return in_order(sign, (left > right) - (left < right))


def in_order(sign: str, difference: int) -> bool:
    return {"<": difference < 0, "<=": difference <= 0, ">": difference > 0, ">=": difference >= 0}[sign]


def constant_text(value: Value) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value)
        case _:
            return repr(value)


def seconds(duration: int) -> str:
    """A duration as float seconds."""
    return repr(duration / SECOND)
