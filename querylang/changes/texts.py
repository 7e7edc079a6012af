"""Compile the text of a change: for the event types that are known, and with new ones behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from querylang.checker.event_types.known_types import other_actions
from querylang.errors import QueryErrors
from querylang.load import compile_for_known
from querylang.plan.model import EventType, Plan
from querylang.plan.value_types import Type
from querylang.source import Source
from querylang.syntax.parser import parse

Schemas = Mapping[str, Mapping[str, Type]]

Infer = Callable[[str], Schemas]
"""Gives the fields of event types that neither the text nor the known types define, from data."""


class ChangeError(Exception):
    """A change cannot be done; the message says all that is wrong."""


def nothing_inferred(_text: str) -> Schemas:
    """There is no data to see fields in."""
    return {}


def compiled(
    text: str, known: Sequence[EventType], infer: Infer = nothing_inferred
) -> tuple[Plan, tuple[EventType, ...]]:
    """The templates of a text, and all event types, its own last; raises ChangeError."""
    file, _ = parse(Source("query", text))
    defined = {item.name.text for item in file.events}
    used = [event for event in known if event.fields and event.name not in defined]
    try:
        plan = compile_for_known(text, used, infer(text)).plan
    except QueryErrors as errors:
        found = (f"line {error.span.line}: {error.message}" for error in errors.errors)
        raise ChangeError("; ".join(found)) from None
    if not plan.queries:
        raise ChangeError("the text has no query")
    return plan, with_events(known, plan.events)


def with_events(known: Sequence[EventType], more: Sequence[EventType]) -> tuple[EventType, ...]:
    """The known event types, then the new ones: the number of a type never changes.

    A known type may get fields if it has none, actions, and other annotations. Raises ChangeError
    for a type with other fields, or with another action of a known name.
    """
    own = {event.name: event for event in more}
    joined = [_joined(event, own.pop(event.name)) if event.name in own else event for event in known]
    return (*joined, *own.values())


def _joined(known: EventType, event: EventType) -> EventType:
    """A known event type once a text defines it, too."""
    if not known.fields or not event.fields:
        return event if not known.fields else known
    if event.fields != known.fields:
        raise ChangeError(f"event type '{event.name}' is known with other fields: {_difference(known, event)}")
    others = other_actions(known, event)
    if others:
        raise ChangeError(f"event type '{event.name}' is known with another action '{others[0]}'; rename the new one")
    names = {action.name for action in known.actions}
    actions = (*known.actions, *(action for action in event.actions if action.name not in names))
    return replace(known, actions=actions).annotated_as(event)


def _difference(known: EventType, event: EventType) -> str:
    """How the fields of a definition differ from the known ones."""
    before, now = ({field.name: field.type for field in item.fields} for item in (known, event))
    words = [f"'{name}' is new" for name in now if name not in before]
    words += [f"'{name}' is missing" for name in before if name not in now]
    words += [
        f"'{name}' is {now[name]}, not {before[name]}" for name in now if now[name] != before.get(name, now[name])
    ]
    return ", ".join(words) or "they are in another order"


def annotated_as(events: Sequence[EventType], others: Iterable[EventType]) -> tuple[EventType, ...]:
    """The event types with the annotations that others of equal name and fields have."""
    own = {(event.name, event.fields): event for event in others}
    return tuple(event.annotated_as(own.get((event.name, event.fields), event)) for event in events)
