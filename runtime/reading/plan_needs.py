"""What a plan needs to know of the rows of each event type: times, and fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from querylang.plan.expression import FieldOf, MemberOf
from querylang.plan.model import Plan, plain_field
from querylang.plan.reads import FieldPair, events_within, unread_fields
from runtime.policies.per_input import uses_source_time


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
    """The event types of all inputs, without heartbeats."""
    return list(dict.fromkeys(item.event for query in plan.queries for item in query.inputs))


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
    if isinstance(part, FieldOf) or (
        isinstance(part, MemberOf) and part.receiver.type is not None and part.receiver.type.name in events
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
