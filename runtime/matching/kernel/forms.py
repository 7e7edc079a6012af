"""Compile once what queries have alike that differ in constants only: a book has few forms.

The first query of a form is compiled as it is. When there is a second, one is compiled with marks
in place of its constants, which shows where each of them is in the tables. If the first query, made
of these tables, is what was compiled of it, the others are made of them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from itertools import count
from operator import itemgetter
from typing import Any, Generic, TypeVar

import numpy as np

from querylang.dataclass import dataclass, field, fields, is_dataclass, replace
from querylang.plan.constants import Constant, Numbers, free_literals_in, numbers_of, part_with
from querylang.plan.expression import Literal, Type
from querylang.plan.model import EventType, Input, QueryPlan, Where, Without
from runtime.matching.kernel.program import NotForKernel

Made = TypeVar("Made")
Types = tuple[EventType, ...]

_OWN = frozenset({"name", "instance", "metadata", "pattern", "block", "slots", "parameters", "routes", "edition"})
_OWN |= {"starts", "ends", "forget_keys", "shows_metadata", "inputs"}
_WITH_CONSTANTS = ("conditions", "selects", "every")
_OF_INPUT = frozenset({"filter", "policy", "sources", "new"})
"""What tables do not depend on: of a query, and of an input."""

_INPUT: Any = Input

_MARK = 7_000_000_000_000
_MOST_SAME, _MOST_FORMS, _MOST_MADE = 50_000, 4_096, 16_384


class Shared(Generic[Made]):
    """Compiles queries; what those of one form have alike is compiled once."""

    def __init__(self, compiled: Callable[[QueryPlan, Types], Made]) -> None:
        self._compiled = compiled
        self._same = _Same()
        self._forms: dict[Any, _Form[Made]] = {}
        self._made: dict[int, tuple[QueryPlan, Types, Made]] = {}

    def __call__(self, query: QueryPlan, types: Types = ()) -> Made:
        """The tables of a query; raises NotForKernel.

        types: those whose actions conditions may call
        """
        known = self._made.get(id(query))
        if known is not None and known[0] is query and known[1] == types:
            return known[2]
        made = self._new(query, types)
        if len(self._made) >= _MOST_MADE:
            self._made.clear()
        self._made[id(query)] = query, types, made
        return made

    def _new(self, query: QueryPlan, types: Types) -> Made:
        written = _Writing(self._same)
        written.add_query(query)
        key = tuple(written.key), self._same.number(types)
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            form = _Form(query, written.literals, written.fixed)
            try:
                form.first = self._compiled(query, types)
            except NotForKernel as reason:
                form.refused = str(reason)
            self._forms[key] = form  # once it is whole: other threads may read it
        if form.refused is not None:
            raise NotForKernel(form.refused)
        if query is form.query:
            assert form.first is not None, "it was compiled"
            return form.first
        if not form.is_known:
            form.learn(self._compiled, types)
        if form.fill is not None:
            return form.fill([literal.value for literal in written.literals])  # type: ignore[misc]  # no decimals
        return self._compiled(query, types) if form.is_unlike else form.first  # type: ignore[return-value]


@dataclass(slots=True)
class _Form(Generic[Made]):
    """The queries of a form.

    query, literals: the first of them, and its different constants
    fixed: values that all have where a constant is not free, and so also where it is
    first: what was compiled of it; refused: why it is not for a kernel
    fill: makes the tables with other constants; None = there are none in the tables
    is_unlike: each query has to be compiled by itself
    """

    query: QueryPlan
    literals: list[Literal]
    fixed: Collection[tuple[Type, str]]
    first: Made | None = None
    refused: str | None = None
    fill: Callable[[Sequence[Constant]], Made] | None = None
    is_known: bool = False
    is_unlike: bool = False

    def learn(self, compiled: Callable[[QueryPlan, Types], Made], types: Types) -> None:
        """Find out where the constants are in the tables."""
        marks = [_mark(number, literal) for number, literal in enumerate(self.literals)]
        by_literal = {
            own: mark for own, mark in zip(map(_what, self.literals), marks, strict=True) if own not in self.fixed
        }
        changes = {name: _marked(getattr(self.query, name), by_literal) for name in _WITH_CONSTANTS}
        made = compiled(replace(self.query, **changes), types)
        fill = _filling(made, numbers_of(marks))
        own = made if fill is None else fill([literal.value for literal in self.literals])  # type: ignore[misc]
        self.is_unlike = not _is_equal(own, self.first)
        self.fill = None if self.is_unlike else fill
        self.is_known = True  # last: other threads may read it


class _Same:
    """A number for each value; equal ones have the same."""

    def __init__(self) -> None:
        self._numbers = count()
        self._by_identity: dict[int, tuple[Any, int]] = {}
        self._by_value: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        known = self._by_identity.get(id(value))
        if known is None:
            if len(self._by_identity) >= _MOST_SAME:
                self._by_identity.clear()
                self._by_value.clear()
            known = value, self._by_value.setdefault((type(value), value), next(self._numbers))
            self._by_identity[id(value)] = known
        return known[1]


@dataclass(slots=True)
class _Writing:
    """A query as a key in which constants that are free have numbers.

    literals: the different ones
    fixed: the values of all others, which are part of the key
    """

    same: _Same
    key: list[Any] = field(default_factory=list)
    literals: list[Literal] = field(default_factory=list)
    fixed: set[tuple[Type, str]] = field(default_factory=set)
    _free: set[int] = field(default_factory=set)
    _numbers: dict[tuple[Type, str], int] = field(default_factory=dict)

    def add_query(self, query: QueryPlan) -> None:
        """Add all that tables depend on."""
        self.key += [self.same.number(getattr(query, name)) for name in _names(QueryPlan)]
        self.key += [self.same.number(getattr(item, name)) for item in query.inputs for name in _names(_INPUT)]
        wholes = [item.condition for item in query.conditions if isinstance(item, Where | Without)]
        wholes += [item.value for item in query.selected]
        wholes += () if query.every is None else query.every.having
        self._free = {id(literal) for whole in wholes if whole is not None for literal in free_literals_in(whole)}
        for name in _WITH_CONSTANTS:
            self._add(getattr(query, name))
        self.key += [same for same in self._numbers.items() if same[0] in self.fixed]

    def _add(self, part: Any) -> None:
        kind: Any = type(part)
        if kind is Literal:
            self._add_literal(part)
        elif kind is tuple:
            self.key += (kind, len(part))
            for item in part:
                self._add(item)
        elif kind is Type or not is_dataclass(part):
            self.key.append(self.same.number(part) if kind is Type else part)
        else:
            self.key.append(kind)
            for name in _all_names(kind):
                self._add(getattr(part, name))

    def _add_literal(self, literal: Literal) -> None:
        what = _what(literal)
        if id(literal) not in self._free or literal.type not in (Type.INTEGER, Type.FLOAT, Type.STRING):
            self.key += (Literal, what)
            self.fixed.add(what)
            return
        number = self._numbers.setdefault(what, len(self._numbers))
        if number == len(self.literals):
            self.literals.append(literal)
        self.key += (literal.type.kind, number)


def _what(literal: Literal) -> tuple[Type, str]:
    return literal.type, repr(literal.value)  # 0.0 and -0.0 are equal, and not the same


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """The fields that tables may depend on, of a query or of an input."""
    left_out = {*_OWN, *_WITH_CONSTANTS} if kind is QueryPlan else _OF_INPUT
    return tuple(name for name in _all_names(kind) if name not in left_out)


@cache
def _all_names(kind: Any) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


def _mark(number: int, literal: Literal) -> Constant:
    mark = _MARK + 1000 * number
    return str(mark) if literal.type == Type.STRING else mark + 0.5 if literal.type == Type.FLOAT else mark


def _marked(part: Any, marks: Mapping[tuple[Type, str], Constant]) -> Any:
    """A part of a query with marks in place of its constants."""
    if isinstance(part, Literal):
        return Literal(part.type, marks.get(_what(part), part.value))
    if type(part) is tuple:
        return tuple(_marked(item, marks) for item in part)
    if is_dataclass(part) and not isinstance(part, Type | type):
        return replace(part, **{name: _marked(getattr(part, name), marks) for name in _all_names(type(part))})
    return part


def _filling(part: Any, marks: Numbers) -> Callable[[Sequence[Constant]], Any] | None:
    """A function that gives what was compiled with other constants; None: it has no marks."""
    if isinstance(part, Literal):
        literal = part_with(part, marks)
        return None if literal is None else literal.filled
    if isinstance(part, np.ndarray):
        return _filling_of_array(part, marks)
    if isinstance(part, str):
        return itemgetter(marks[part][0]) if part in marks else None
    if isinstance(part, tuple):
        own = list(part)
    elif is_dataclass(part) and not isinstance(part, Type | type):
        own = [getattr(part, name) for name in _all_names(type(part))]
    else:
        return None
    inner = [(place, fill) for place, item in enumerate(own) if (fill := _filling(item, marks)) is not None]
    kind = type(part)

    def filled(values: Sequence[Constant]) -> Any:
        made = own.copy()
        for place, fill in inner:
            made[place] = fill(values)
        return tuple(made) if kind is tuple else kind(*made)

    return filled if inner else None


def _filling_of_array(part: Any, marks: Numbers) -> Callable[[Sequence[Constant]], Any] | None:
    is_plain = part.dtype in (np.int64, np.float64) and part.ndim == 1
    known = [(place, marks.get(value, (0, 0))) for place, value in enumerate(part.tolist() if is_plain else ())]
    places = [(place, number) for place, (number, sign) in known if sign > 0]

    def filled(values: Sequence[Constant]) -> Any:
        made = part.copy()
        for place, number in places:
            made[place] = values[number]
        return made

    return filled if places else None


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two parts of tables are the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    if is_dataclass(one) and not isinstance(one, Type | type):
        return all(_is_equal(getattr(one, name), getattr(other, name)) for name in _all_names(type(one)))
    return bool(one == other)
