"""The statements of queries that write something, and events that are routed to nobody.

Needs only the language, because `ensue check` asks it of every file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from querylang.checker.checked import Written
from querylang.plan.expression import Expression, Literal, type_of
from querylang.plan.model import Emit, For, If, IfPresent, Log, Plan, Print, Route, Send, Statement, While

WrittenBy = Mapping[str, Sequence[Written]]
"""What each query writes, by its name."""


def lost_routes(written: WrittenBy, taken: Collection[str]) -> Iterator[str]:
    """A warning for each event type that a query routes and no query takes."""
    routed = {(name, item.event): None for name, items in written.items() for item in items}
    for name, event in routed:
        if event is not None and event not in taken:
            yield f"query {name}: routes {event!r}, which no query here takes"


def taken_events(plan: Plan) -> set[str]:
    """The event types that the queries take."""
    return {item.event for query in plan.queries for item in query.inputs}


def written_by(plan: Plan, texts: WrittenBy | None = None) -> dict[str, list[Written]]:
    """What each query of a plan writes.

    texts: the same as the texts say it, for plans that lack what depends on event types that
        nothing defines. They do not know values of parameters
    """
    found: dict[str, list[Written]] = {query.name: [] for query in plan.queries}
    for query in plan.queries:  # of each instance: values of parameters may be names of channels
        blocks = (query.block, *(action.body for action in query.actions))
        planned = [_written(item) for block in blocks for item in _writing(block)]
        written = () if texts is None else texts[query.name]
        found[query.name] += planned if len(planned) >= len(written) else written
    return found


def _writing(block: Sequence[Statement]) -> Iterator[Print | Log | Send | Emit | Route]:
    """The statements of a block that write, those within others too."""
    for statement in block:
        match statement:
            case If(then=then, otherwise=otherwise) | IfPresent(then=then, otherwise=otherwise):
                yield from _writing((*then, *otherwise))
            case While(body=body) | For(body=body):
                yield from _writing(body)
            case Print() | Log() | Send() | Emit() | Route():
                yield statement
            case _:  # the others write nothing
                pass


def _written(statement: Print | Log | Send | Emit | Route) -> Written:
    match statement:
        case Print():
            return Written("print")
        case Log():
            return Written("log")
        case Send(channel=channel):
            return _to_channel("send", channel)
        case Emit(channel=to):
            return Written("emit") if to is None else _to_channel("emit", to)
        case Route(event=event):
            return Written("route", event=type_of(event).name)


def _to_channel(word: str, channel: Expression) -> Written:
    match channel:
        case Literal(value=str(name)):
            return Written(word, name)
        case _:
            return Written(word, has_computed_channel=True)
