"""Compile the text of a change: for the event types that are known, and with new ones behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from querylang.errors import QueryErrors
from querylang.load import compile_text
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
    schemas = {
        event.name: {field.name: field.type for field in event.fields}
        for event in known
        if event.fields and event.name not in defined
    }
    try:
        plan = compile_text(text, schemas={**infer(text), **schemas}).plan
    except QueryErrors as errors:
        found = (f"line {error.span.line}: {error.message}" for error in errors.errors)
        raise ChangeError("; ".join(found)) from None
    if not plan.queries:
        raise ChangeError("the text has no query")
    return plan, with_events(known, plan.events)


def with_events(known: Sequence[EventType], more: Sequence[EventType]) -> tuple[EventType, ...]:
    """The known event types, then the new ones: the number of a type never changes.

    A known type without fields may get some. Raises ChangeError for a type with other fields.
    """
    own = {event.name: event for event in more}
    for event in known:
        if event.fields and own.get(event.name, event).fields not in ((), event.fields):
            raise ChangeError(f"event type '{event.name}' is known with other fields")
    joined = [own.pop(event.name, event) if not event.fields else event for event in known]
    names = {event.name for event in known}
    return (*joined, *(event for event in more if event.name not in names))
