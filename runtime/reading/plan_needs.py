"""What a plan needs of the rows of each event type: times, and the fields that it reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from querylang.dataclass import dataclass
from querylang.plan import expression as nodes
from querylang.plan.model import (
    Assign,
    EventType,
    For,
    IfPresent,
    Input,
    Plan,
    QueryPlan,
    Return,
    Select,
    Without,
    plain_field,
)
from querylang.plan.routing import source_types
from runtime.input_policies import uses_source_time

FieldPair = tuple[str, str]
"""An event type and one of its fields."""


def source_time_fields(plan: Plan) -> set[tuple[str, str]]:
    """The (event type, field) pairs that are source times; they may be written in any form."""
    pairs = ((event, plain_field(source)) for event, source in plan.time_sources())
    return {(event, field) for event, field in pairs if field is not None}


def needs_source_time(plan: Plan, event: str, is_history: bool) -> bool:
    """Whether some query reads the event's source time from the column of source times."""
    for query in plan.queries:
        for item in query.inputs:
            if not (uses_source_time(item) or is_history):
                continue
            for reader in (item, item.heartbeat):
                if reader is not None and reader.event == event and reader.time_from is None:
                    return True
    return False


def input_types(plan: Plan) -> list[str]:
    """As `querylang.plan.routing.source_types`."""
    return source_types(plan.queries)


def timed_events(plan: Plan) -> set[str]:
    """The event types whose source time some query uses."""
    inputs = [item for query in plan.queries for item in query.inputs]
    heartbeats = {item.heartbeat.event for item in inputs if item.heartbeat is not None}
    return heartbeats | {item.event for item in inputs if uses_source_time(item)}


def unused_source_time(plan: Plan, column: str | None) -> str | None:
    """A warning that a column does nothing in tables with arrival times; None = it does something.

    column: that users name for source times; None = they name none
    """
    if column is None or not plan.queries or timed_events(plan):
        return None
    return (
        f"source_time '{column}' does nothing: no input has a 'wait' and there is no ordering policy, so events are taken"
        " in order of arrival"
    )


def interval_events(plan: Plan) -> set[str]:
    """The event types whose events may be intervals for some query."""
    inputs = [item for query in plan.queries for item in query.inputs]
    return {item.event for item in inputs if item.policy is not None and item.policy.events_last}


def indispensable_fields(plan: Plan, event: str) -> set[str]:
    """The fields that say whose an event of this type is, or when it happened."""
    found: set[str] = set()
    for item in (item for query in plan.queries for item in query.inputs):
        for reader in (item, item.heartbeat):
            if reader is not None and reader.event == event:
                found.update(_fields_in((reader.keys, reader.time_from), frozenset({event})))
        if item.event == event and item.policy is not None:
            found.update(item.policy.over)
    return found


def fields_read(plan: Plan, events: Collection[str]) -> set[str]:
    """The names of the fields that queries read of events of these types."""
    return {field for query in plan.queries for field in _fields_in(query, frozenset(events))}


def _fields_in(part: Any, events: frozenset[str]) -> Iterator[str]:
    if isinstance(part, nodes.FieldOf) or (
        isinstance(part, nodes.MemberOf) and part.receiver.type is not None and part.receiver.type.name in events
    ):
        yield part.field
    if dataclasses.is_dataclass(part):
        for item in dataclasses.fields(part):
            yield from _fields_in(getattr(part, item.name), events)
    elif isinstance(part, Mapping):
        for value in part.values():
            yield from _fields_in(value, events)
    elif isinstance(part, tuple | list):
        for value in part:
            yield from _fields_in(value, events)


@dataclass(frozen=True, slots=True)
class Leniency:
    """What of a row may be wrong without the row being so. A definition allows nothing.

    inferred: event types whose fields come from the data: lists and dictionaries in them may have
        nulls
    unread: fields of these that no query reads: what is not a value of one is null
    """

    inferred: frozenset[str] = frozenset()
    unread: frozenset[FieldPair] = frozenset()


NONE = Leniency()

_KNOWN: list[tuple[Plan, frozenset[str], Leniency]] = []
"""What was found last: a plan of thousands of queries reads many parts of tables."""

_MOST_KNOWN = 8


def leniency(plan: Plan, inferred: frozenset[str], unread: frozenset[FieldPair] | None = None) -> Leniency:
    """What may be wrong in rows for a plan; `inferred`, `unread`: as of `ColumnNames`."""
    if not inferred:
        return NONE
    if unread is not None:
        return Leniency(events_within(plan, sorted(inferred)), unread)
    for known, events, found in _KNOWN:
        if known is plan and events == inferred:
            return found
    names = sorted(inferred)
    made = Leniency(events_within(plan, names), unread_fields(plan, names))
    _KNOWN.insert(0, (plan, inferred, made))
    del _KNOWN[_MOST_KNOWN:]
    return made


# Conditions, keys, times, filters, selects and blocks read fields. What a match only shows of its
# events is not read.

_LOOKS_AT_NO_PART = ("getTime", "size", "isEmpty", "empty")
"""Methods that read nothing of what a value consists of."""


def pairs_read(plan: Plan) -> frozenset[FieldPair]:
    """The fields that the queries read, by event type; also of events that are fields of others.

    An event that is used as a whole, such as in `toString()` or `send`, is read with all fields.
    """
    reads = _Reads(plan)
    for query in plan.queries:
        reads.add_query(query)
    for event in plan.events:
        reads.visit(event.actions, ())
    return frozenset(reads.found)


def unread_fields(plan: Plan, events: Sequence[str]) -> frozenset[FieldPair]:
    """The fields of these event types, and of events inside of them, that no query reads."""
    read = pairs_read(plan)
    within = events_within(plan, events)
    return frozenset((name, item.name) for name in within for item in plan.event(name).fields) - read


def fields_divided(plan: Plan, query: QueryPlan) -> list[FieldPair]:
    """The fields under divisions of integers in a query, by event type, in order."""
    reads = _Reads(plan)
    reads.add_query(query)
    return list(reads.divided)


def events_within(plan: Plan, events: Sequence[str]) -> frozenset[str]:
    """These event types of the plan, and those that their fields have."""
    known = {event.name: event for event in plan.events}
    found: set[str] = set()
    waiting = [name for name in events if name in known]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [inner for item in known[name].fields for inner in _events_in(item.type)]
    return frozenset(found)


def _events_in(type_: nodes.Type) -> Iterator[str]:
    if type_.kind is nodes.Kind.EVENT:
        yield type_.name
    for part in type_.of:
        yield from _events_in(part)


class _Reads:
    """Collects what is read.

    found: what was found so far
    divided: what stands under a division of integers, in order
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._events: dict[str, EventType] = {event.name: event for event in plan.events}
        self._whole: set[str] = set()
        self.found: set[FieldPair] = set()
        self.divided: dict[FieldPair, None] = {}

    def add_query(self, query: QueryPlan) -> None:
        """What a query reads."""
        terms = [query.inputs[term.input].event for term in query.terms]
        for item in query.inputs:
            self._add_input(item)
        for condition in query.conditions:
            own = [query.inputs[condition.input].event] if isinstance(condition, Without) else []
            self.visit(condition, [*terms, *own])
        for part in (query.selects, query.every, query.at_most, query.block, query.actions):
            self.visit(part, terms)

    def _add_input(self, item: Input) -> None:
        own = item.keys, item.filter, item.unique, item.new, item.within, item.retain, item.time_from
        self.visit(own, [item.event])
        if item.heartbeat is not None:
            self.visit((item.heartbeat.keys, item.heartbeat.time_from), [item.heartbeat.event])
        if item.policy is not None:
            self.found |= {(item.event, name) for name in item.policy.over}

    def visit(self, part: Any, terms: Sequence[str], *, is_whole: bool = True) -> None:
        """Add what a part of a plan reads.

        terms: the event types of its terms
        is_whole: all of the part's value is used, not only what a node around it takes from it
        """
        if isinstance(part, tuple):
            for item in part:
                self.visit(item, terms, is_whole=is_whole)
            return
        if not dataclasses.is_dataclass(part) or isinstance(part, nodes.Type):
            return
        if isinstance(part, nodes.Binary) and part.operator == "/" and part.type == nodes.Type.INTEGER:
            self.divided |= dict.fromkeys(pair for node in nodes.walk(part) for pair in _fields_of(node, terms))
        self.found.update(_fields_of(part, terms))
        if is_whole and type(part) in nodes.NODES:
            for event in _events_in(_type_of(part)):
                self._add_whole(event)
        for item in dataclasses.fields(part):
            value = getattr(part, item.name)
            self.visit(value, terms, is_whole=_is_used(part, item.name, value))

    def _add_whole(self, event: str) -> None:
        if event in self._whole or event not in self._events:
            return
        self._whole.add(event)
        for item in self._events[event].fields:
            self.found.add((event, item.name))
            for inner in _events_in(item.type):
                self._add_whole(inner)


def _fields_of(node: Any, terms: Sequence[str]) -> Iterator[FieldPair]:
    """The fields that a node itself reads; `terms`: as of `_Reads.visit`."""
    match node:
        case nodes.FieldOf(term=term, field=name) | nodes.PrevOf(term=term, field=name):
            yield terms[term], name
        case nodes.MemberOf(receiver=receiver, field=name):
            yield from ((event, name) for event in _events_in(_type_of(receiver)))


def _type_of(node: Any) -> nodes.Type:
    """The type of an expression; a call of an action that gives nothing has none."""
    return nodes.Type.BOOLEAN if node.type is None else node.type


def _is_used(node: Any, name: str, value: Any) -> bool:
    """Whether a node uses all of one of its parts.

    What is assigned to a variable, given to an action or returned is read where that is used.
    """
    match node:
        case nodes.MemberOf() | nodes.IndexOf():
            return name != "receiver"
        case nodes.Call(method=method):
            return name != "receiver" or method not in _LOOKS_AT_NO_PART
        case Select():
            return not _is_event(value)
        case nodes.Aggregate(function="count" | "first" | "last" | "nth"):
            return False
        case Assign() | nodes.Invoke() | Return() | For() | IfPresent():
            return False
    return True


def _is_event(value: Any) -> bool:
    """Whether a select is an event, which its match shows."""
    return isinstance(value, nodes.EventOf | nodes.EndOf) or (
        isinstance(value, nodes.Aggregate) and not value.type.is_scalar
    )
