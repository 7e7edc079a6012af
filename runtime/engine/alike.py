"""Queries that differ in constants, as one query over the records of all of them.

Such queries are a *family*. Its query has one key more, the number of the member whose record a row
is, and the constants that differ are fields of the events. So what is done for a call is done once
for the family, and no key has rows of two members. Columns that no part of the search reads are not
in its records: each has a number, under which the rest of its event is found
(`runtime.engine.families`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from math import copysign
from typing import Any, TypeGuard

import pyarrow as pa

from querylang.dataclass import dataclass, fields, replace
from querylang.plan.expression import (
    NODES,
    Aggregate,
    Binary,
    Call,
    EndOf,
    EventOf,
    Expression,
    FieldOf,
    Invoke,
    KeyOf,
    Kind,
    Literal,
    LocalOf,
    MemberOf,
    New,
    Type,
    Unary,
    children,
    rewritten,
    walk,
)
from querylang.plan.model import Condition, EventType, Every, Field, Input, Key, Plan, QueryPlan, Where, Without
from runtime.column_types import arrow_type
from runtime.columns.arrivals import column_name
from runtime.engine.query_state import QueryParts, query_parts
from runtime.input_policies import adjusts, clock_inputs, has_ends

OWNER = "#owner"
"""The field with the number of the member; a name that no user can write."""

OWNER_COLUMN = column_name(OWNER, Type.INTEGER)

ROW = "#row"
"""The field with the number under which the rest of an event is found; no user can write it."""

ROW_COLUMN = column_name(ROW, Type.INTEGER)

_NAME = "#"
"""Of the query of a family."""

_CONSTANTS = (Type.INTEGER, Type.FLOAT, Type.STRING)
_ARITHMETIC = ("+", "-", "*", "/", "%")
_COMPARISONS = ("<", "<=", ">", ">=", "=", "!=")


@dataclass(frozen=True, slots=True)
class QueryShape:
    """A query without its names, and with fields in place of constants.

    constants: by number of the field, its value
    """

    query: QueryPlan
    constants: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """Queries of one shape.

    parts: of the query that stands for all of them
    members: the parts of these queries
    constants: by column, the values by member
    in_keys: those of them that are keys, too, behind the keys of members
    rest: the columns of members that no part of the search reads
    """

    parts: QueryParts
    members: tuple[QueryParts, ...]
    constants: tuple[tuple[str, pa.Array], ...]
    in_keys: tuple[pa.Array, ...]
    rest: pa.Schema


def families_of(plan: Plan, parts: Sequence[QueryParts], fewest: int) -> list[tuple[Family, list[int]]]:
    """The families of at least so many queries, each with the places of its members."""
    groups: dict[int, list[tuple[int, QueryShape]]] = {}
    for place, shape in enumerate(_shapes(plan, parts)):
        if shape is not None:
            groups.setdefault(id(shape.query), []).append((place, shape))
    return [
        (_family(plan, [parts[place] for place, _ in own], [shape for _, shape in own]), [place for place, _ in own])
        for own in groups.values()
        if len(own) >= fewest
    ]


_SHAPES: dict[int, tuple[QueryParts, QueryShape | None]] = {}
"""By the identity of parts, which are kept beside, their shape; equal queries are one object.

A change of a job's queries leaves most parts as they are.
"""

_MOST_SHAPES = 20_000


def _shapes(plan: Plan, parts: Sequence[QueryParts]) -> list[QueryShape | None]:
    """The shapes of queries; those of one shape have the same object as their query."""
    if len(_SHAPES) > max(_MOST_SHAPES, 2 * len(parts)):
        _SHAPES.clear()
    nested = frozenset(event.name for event in plan.events if any(_has_event(field.type) for field in event.fields))
    known = [found if (found := _SHAPES.get(id(item))) is not None and found[0] is item else None for item in parts]
    different = {id(found[1].query): found[1].query for found in known if found is not None and found[1] is not None}
    queries = {query: query for query in different.values()}
    shapes = list[QueryShape | None]()
    for item, found in zip(parts, known, strict=True):
        if found is None:
            shape = shape_of(item, nested)
            if shape is not None:
                shape = QueryShape(queries.setdefault(shape.query, shape.query), shape.constants)
            _SHAPES[id(item)] = item, shape
        else:
            shape = found[1]
        shapes.append(shape)
    return shapes


def shape_of(parts: QueryParts, nested: Collection[str]) -> QueryShape | None:
    """The shape of a query; None = it keeps or gives something that only it can.

    Filters are not part of it: records are found before. Events of the types `nested` have events
    as fields, which would have other fields then.
    """
    query = parts.query
    has_nested = any(item.event in nested for item in query.inputs)
    if has_nested or parts.forgetting.is_on or not _can_have_family(query):
        return None
    constants: list[Literal] = []
    conditions = [_changed(item, lambda node: _with_fields(node, constants)) for item in query.conditions]
    every = query.every
    if every is not None:
        every = replace(every, having=tuple(_with_thresholds(node, constants) for node in every.having))
    plain = replace(
        query,
        name=_NAME,
        inputs=tuple(item if item.filter is None else replace(item, filter=None) for item in query.inputs),
        conditions=tuple(conditions),
        every=every,
        block=(),
        slots=0,
        actions=(),
        routes=(),
        selects=(),
        at_most=None,
        parameters=(),
        metadata=(),
        instance="",
        pattern="",
        edition=0,
        shows_metadata=False,
    )
    return QueryShape(plain, tuple(constants)) if all(map(_can_be_shared, _parts(plain))) else None


def _can_have_family(query: QueryPlan) -> bool:
    """Whether admission keeps no more than families divide, and the search finds matches only.

    Members do themselves what comes behind the search: what matches select, `at most` and blocks.
    Only a `find every` computes the values of `at most` with those that it selects.
    """
    compares_aggregates = query.every is not None and query.at_most is not None
    has_clock = clock_inputs(query) or adjusts(query) or has_ends(query)
    is_part = query.starts is not None or query.ends is not None
    is_plain = all(_is_plain(item) for item in query.inputs) and not (query.tables or query.optional_keys)
    return is_plain and not (query.shared_types or compares_aggregates or has_clock or is_part)


def _is_plain(item: Input) -> bool:
    return item.heartbeat is None and (item.policy is None or item.policy.imports is None)


def _parts(query: QueryPlan) -> Iterator[Expression]:
    """All parts of a query's expressions."""
    of_inputs = chain.from_iterable(
        (*item.keys, *item.unique, item.time_from, *(item.new.values if item.new is not None else ()))
        for item in query.inputs
    )
    of_conditions = (item.condition for item in query.conditions if isinstance(item, Where | Without))
    every = query.every or Every((), ())
    of_every = (*(item.value for item in every.selects), *every.having)
    for own in chain(of_inputs, of_conditions, of_every):
        if own is not None:
            yield from walk(own)


def _has_event(type_: Type) -> bool:
    return type_.kind is Kind.EVENT or any(map(_has_event, type_.of))


def _can_be_shared(node: Expression) -> bool:
    """Whether a part of an expression means the same in a family, and differs from all others.

    -0.0 equals 0.0: two shapes that differ in it would seem to be the same. Events have more
    fields: so no expression may show one.
    """
    match node:
        case Literal(value=float() as value):
            return value != 0.0 or copysign(1, value) > 0
        case New() | Invoke() | MemberOf() | LocalOf():
            return False
        case Aggregate() | Call(method="getTime"):
            return True
    return not any(isinstance(child, EventOf | EndOf) for child in children(node))


def _changed(condition: Condition, change: Callable[[Expression], Expression]) -> Condition:
    """The condition with its expression changed."""
    match condition:
        case Where(condition=own):
            return replace(condition, condition=change(own))
        case Without(condition=own) if own is not None:
            return replace(condition, condition=change(own))
    return condition


def _with_fields(node: Expression, constants: list[Literal]) -> Expression:
    """The expression with fields in place of constants, which it adds.

    A constant beside a field becomes a field of the same event. Where that event is unset, the
    operation has the same outcome, as its other side is null.
    """
    if isinstance(node, Binary):
        left = _field_for(node.left, node.right, constants) or _with_fields(node.left, constants)
        right = _field_for(node.right, node.left, constants) or _with_fields(node.right, constants)
        return Binary(node.type, node.operator, left, right)  # `replace` takes five times as long
    if not children(node):
        return node
    changed: dict[str, Any] = {}
    for item in fields(node):
        value = getattr(node, item.name)
        if type(value) in NODES:
            changed[item.name] = _with_fields(value, constants)
        elif isinstance(value, tuple) and any(type(part) in NODES for part in value):
            changed[item.name] = tuple(_with_fields(part, constants) for part in value)
    return replace(node, **changed)


def _with_thresholds(node: Expression, constants: list[Literal]) -> Expression:
    """A `having` with fields in place of what its values are compared with, which it adds.

    Behind the search there are no fields but those of the key: they become parts of it.
    """
    if isinstance(node, Unary):
        return replace(node, operand=_with_thresholds(node.operand, constants))
    if not isinstance(node, Binary):
        return node
    sides = list[Expression]()
    for side in (node.left, node.right):
        is_threshold = node.operator in _COMPARISONS and isinstance(side, Literal) and side.type in _CONSTANTS
        if is_threshold and isinstance(side, Literal):
            sides.append(FieldOf(side.type, 0, _field_name(len(constants))))
            constants.append(side)
        else:
            sides.append(_with_thresholds(side, constants))
    return replace(node, left=sides[0], right=sides[1])


def _field_for(node: Expression, beside: Expression, constants: list[Literal]) -> Expression | None:
    """A field in place of a constant; None = it stays."""
    term = _term_of(beside)
    if not isinstance(node, Literal) or node.type not in _CONSTANTS or term is None:
        return None
    constants.append(node)
    return FieldOf(node.type, term, _field_name(len(constants) - 1))


def _term_of(node: Expression) -> int | None:
    """A term whose field decides whether an expression is null."""
    match node:
        case FieldOf(term=term):
            return term
        case Unary(operator="-", operand=operand):
            return _term_of(operand)
        case Binary(operator=operator, left=left, right=right) if operator in _ARITHMETIC:
            found = _term_of(left)
            return _term_of(right) if found is None else found
    return None


def _field_name(number: int) -> str:
    return f"#{number}"


def _family(plan: Plan, parts: Sequence[QueryParts], shapes: Sequence[QueryShape]) -> Family:
    by_number = list(zip(*(shape.constants for shape in shapes), strict=True))
    same = {_field_name(number): own[0] for number, own in enumerate(by_number) if len(set(map(_exactly, own))) == 1}
    differing = {_field_name(number): own for number, own in enumerate(by_number) if _field_name(number) not in same}

    def change(node: Expression) -> Expression:
        if isinstance(node, FieldOf):
            return same.get(node.field, node)
        return replace(node, index=node.index + 1) if isinstance(node, KeyOf) else node

    def changed(node: Expression) -> Expression:
        return rewritten(node, change)

    query = shapes[0].query
    own_key = FieldOf(Type.INTEGER, 0, OWNER)
    every, in_keys = query.every, list[FieldOf]()
    if every is not None:
        selects = tuple(replace(item, value=changed(item.value)) for item in every.selects)
        in_keys = [node for node in chain.from_iterable(map(walk, every.having)) if _is_threshold(node, differing)]
        places = {node.field: 1 + len(query.keys) + place for place, node in enumerate(in_keys)}
        having = [rewritten(changed(node), lambda own: _as_key(own, places)) for node in every.having]
        every = Every(selects, tuple(having))
    whole = replace(
        query,
        keys=(Key(OWNER, Type.INTEGER), *query.keys, *(Key(node.field, node.type) for node in in_keys)),
        inputs=tuple(replace(item, keys=(own_key, *item.keys, *in_keys)) for item in query.inputs),
        conditions=tuple(_changed(item, changed) for item in query.conditions),
        every=every,
    )
    used, read = (
        {item.event for item in query.inputs},
        {part.field for part in _parts(query) if isinstance(part, FieldOf)},
    )
    rest = {item.name for event in plan.events if event.name in used for item in event.fields} - read
    added = (
        *(Field(name, Type.INTEGER) for name in ((OWNER, ROW) if rest else (OWNER,))),
        *(Field(name, own[0].type) for name, own in differing.items()),
    )
    events = tuple(_for_search(event, read, added) if event.name in used else event for event in plan.events)
    constants = [
        (column_name(name, own[0].type), pa.array([item.value for item in own], arrow_type(own[0].type, plan)))
        for name, own in differing.items()
    ]
    own_parts = query_parts(replace(plan, events=events, queries=(whole,), stopped=()), whole, "auto", _NAME)
    names = frozenset(own_parts.schema.names)
    columns = pa.schema([column for column in parts[0].schema if column.name not in names])
    by_name = dict(zip(differing, (values for _, values in constants), strict=True))
    behind = tuple(by_name[node.field] for node in in_keys)
    return Family(own_parts, tuple(parts), tuple(constants), behind, columns)


def _is_threshold(node: Expression, differing: Collection[str]) -> TypeGuard[FieldOf]:
    """Whether a part of a `having` stands for a constant that differs."""
    return isinstance(node, FieldOf) and node.field in differing


def _as_key(node: Expression, places: Mapping[str, int]) -> Expression:
    """The key in place of a field; `places`: by name of the field, the number of its key."""
    return KeyOf(node.type, places[node.field]) if isinstance(node, FieldOf) and node.field in places else node


def _exactly(node: Literal) -> tuple[Any, ...]:
    """What tells constants of one type apart; -0.0 equals 0.0."""
    is_negative = isinstance(node.value, float) and copysign(1, node.value) < 0
    return type(node.value), node.value, is_negative


def _for_search(event: EventType, read: Collection[str], added: Sequence[Field]) -> EventType:
    """An event type with the fields of these names, and more."""
    return replace(event, fields=(*(item for item in event.fields if item.name in read), *added))
