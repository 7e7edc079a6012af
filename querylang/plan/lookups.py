"""What a query looks up in tables beside the stream, and what of it is stored with its events.

A lookup whose keys are about one event is stored with that event when it is admitted, with what the
table says at the event's arrival. Any other is done where its value is needed, with what the table
says when the candidate's latest event arrives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from querylang.dataclass import dataclass, fields, is_dataclass, replace
from querylang.plan.expression import (
    NODES,
    Aggregate,
    EndOf,
    EventOf,
    Expression,
    FieldOf,
    Fold,
    Kind,
    LocalOf,
    Lookup,
    MemberOf,
    PrevOf,
    SelectOf,
    Type,
    children,
    rewritten,
    walk,
)
from querylang.plan.model import EventType, QueryPlan, Table, Without
from querylang.plan.text import Names, expression_text

Subject = tuple[str, int]
"""Which event a part is about: of a term, or its `prev`, `first` or `last`."""

_OF_TERM, _PREV = "", "prev"


@lru_cache(16_384)
def subject_of(lookup: Lookup) -> Subject | None:
    """The only event that its keys are about; None: they are about several, or about none.

    Keys of the partition are those of each of its events.
    """
    found: set[Subject] = set()
    for key in lookup.keys:
        for node in walk(key):
            match node:
                case EventOf(type=Type(kind=Kind.SEQUENCE)) | LocalOf() | SelectOf() | Aggregate() | Fold():
                    return None
                case FieldOf(term=term) | EventOf(term=term):
                    found.add((_OF_TERM, term))
                case PrevOf(term=term):
                    found.add((_PREV, term))
                case EndOf(function=function, term=term):
                    found.add((function, term))
    return found.pop() if len(found) == 1 else None


@lru_cache(16_384)
def over_one_event(lookup: Lookup) -> Lookup:
    """The lookup with its only event as term 0."""

    def moved(node: Expression) -> Expression:
        match node:
            case FieldOf(type=type_, field=name):
                return FieldOf(type_, 0, name)
            case PrevOf(type=type_, field=name) if name:
                return FieldOf(type_, 0, name)
            case EventOf(type=type_) | EndOf(type=type_):
                return EventOf(type_.required, 0)
            case MemberOf(type=type_, receiver=EventOf(), field=name):
                return FieldOf(type_, 0, name)
        return node

    return replace(lookup, keys=tuple(rewritten(key, moved) for key in lookup.keys))


LOOKUP = "lookup "
"""Begins the names of stored lookups; no field has such a name, as it contains a space."""

_FEW_KEYS = 100


@lru_cache(16_384)
def stored_name(lookup: Lookup) -> str | None:
    """The name of the column in which its value is stored; None: it is not about one event."""
    if subject_of(lookup) is None:
        return None
    keys = tuple(f"key {place}" for place in range(_FEW_KEYS))
    return f"{LOOKUP}{expression_text(over_one_event(lookup), Names(('',), keys))}"


def failed_name(name: str) -> str:
    """The name of the column that says on which rows a stored lookup has failed."""
    return f"failed {name}"


@dataclass(frozen=True, slots=True)
class StoredLookup:
    """A lookup that is stored with events.

    - `name`: of its column.
    - `lookup`: over the event as term 0.
    - `events`: the types of the events.
    """

    name: str
    lookup: Lookup
    events: tuple[str, ...]


def stored_lookups(query: QueryPlan, events: Iterable[EventType]) -> tuple[StoredLookup, ...]:
    """What is stored with the events of a query, in text order.

    `events`: of the plan.
    """
    if not query.tables:
        return ()
    fields_of: Mapping[str, EventType] = {event.name: event for event in events}
    found: dict[str, tuple[Lookup, dict[str, None]]] = {}

    def add(lookup: Lookup, names: Iterable[str]) -> None:
        name = stored_name(lookup)
        if name is not None and not _needs_time(over_one_event(lookup)):
            found.setdefault(name, (over_one_event(lookup), {}))[1].update(dict.fromkeys(names))

    for item in query.inputs:
        for lookup in lookups_in((item.unique, item.new)):
            add(lookup, [item.event])
    inputs = [query.inputs[term.input].event for term in query.terms]
    for condition in query.conditions:
        own = [query.inputs[condition.input].event] if isinstance(condition, Without) else []
        for lookup in lookups_in(condition):
            add(lookup, _events_of(lookup, [*inputs, *own], query, fields_of))
    for part in (query.selects, query.every, query.at_most, query.block):
        for lookup in lookups_in(part):
            add(lookup, _events_of(lookup, inputs, query, fields_of))
    return tuple(StoredLookup(name, lookup, tuple(names)) for name, (lookup, names) in found.items())


def _events_of(lookup: Lookup, terms: list[str], query: QueryPlan, known: Mapping[str, EventType]) -> Iterator[str]:
    """The types of the event that a lookup is about; the event before may be of several."""
    subject = subject_of(lookup)
    if subject is None:
        return
    kind, term = subject
    if kind != _PREV:
        yield terms[term]
        return
    read = {(node.field, node.type) for key in lookup.keys for node in walk(key) if isinstance(node, PrevOf)}
    for item in query.inputs:
        own = {(part.name, part.type) for part in known[item.event].fields}
        if read <= own:
            yield item.event


def _needs_time(lookup: Lookup) -> bool:
    """Whether its keys may need the event's time, which is not known when it is admitted."""
    return any(isinstance(node, EventOf | PrevOf) for key in lookup.keys for node in walk(key))


def lookups_in(part: Any) -> Iterator[Lookup]:
    """All lookups in a part of a plan, in text order."""
    waiting = [part]
    while waiting:
        item = waiting.pop()
        if isinstance(item, tuple | list):
            waiting += reversed(item)
        elif is_dataclass(item) and not isinstance(item, Type):
            if isinstance(item, Lookup):
                yield item
            waiting += reversed([getattr(item, one.name) for one in fields(item)])


def tables_of(part: Any, tables: Mapping[str, Table]) -> tuple[Table, ...]:
    """The tables that a part of a plan looks something up in, by name in text order."""
    return tuple(tables[name] for name in dict.fromkeys(lookup.table for lookup in lookups_in(part)))


def looks_at_several(expression: Expression) -> bool:
    """Whether an expression has a lookup that is not about one event."""
    return any(isinstance(node, Lookup) and subject_of(node) is None for node in walk(expression))


def with_stored(expression: Expression, stored: Collection[str]) -> Expression | None:
    """The expression with fields in place of stored lookups; each has its name as a field.

    None: a lookup about one event is not among them, or is about a `prev`, `first` or `last`.

    `stored`: the names of those that are.
    """
    if isinstance(expression, Lookup) and (subject := subject_of(expression)) is not None:
        name = stored_name(expression)
        if name is None or name not in stored or subject[0] != _OF_TERM:
            return None
        return FieldOf(expression.type, subject[1], name)
    if not children(expression):
        return expression
    values: dict[str, Any] = {}
    for item in fields(expression):
        own = _with_stored(getattr(expression, item.name), stored)
        if own is _IMPOSSIBLE:
            return None
        values[item.name] = own
    return replace(expression, **values)


_IMPOSSIBLE: Any = object()


def _with_stored(part: Any, stored: Collection[str]) -> Any:
    if isinstance(part, tuple):
        parts = [_with_stored(item, stored) for item in part]
        return _IMPOSSIBLE if _IMPOSSIBLE in parts else tuple(parts)
    if type(part) not in NODES:
        return part
    own = with_stored(part, stored)
    return _IMPOSSIBLE if own is None else own
