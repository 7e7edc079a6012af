"""Plans of queries that differ in constants and names: others are made of one that was checked.

A constant is *free* if nothing that the checker does depends on its value: it is compared with, or
added to, what is not constant; it is an element of a list in which such a value is looked for; it
is an argument of a method; it is all that is printed. Other constants are part of the template.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from querylang.dataclass import dataclass, fields, is_dataclass, replace
from querylang.plan.constant_folding import is_calculable
from querylang.plan.expression import Binary, Call, Expression, Items, Literal, ParameterOf, Type, walk
from querylang.plan.model import Log, Print, QueryPlan, Where, Without

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
