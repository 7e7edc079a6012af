"""The statements of queries that write something, and events that are routed to nobody.

Needs only the language, because `ensue check` asks it of every file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from querylang.plan.expression import type_of
from querylang.plan.model import Emit, For, If, IfPresent, Log, Plan, Print, Route, Send, Statement, While

WORDS = {Print: "print", Log: "log", Send: "send", Emit: "emit", Route: "route"}


def lost_routes(plan: Plan) -> Iterator[str]:
    """A warning for each event type that a query routes and no query takes."""
    taken = {item.event for query in plan.queries for item in query.inputs}
    routed = {
        (name, type_of(statement.event).name): None
        for name, statements in writing_statements(plan).items()
        for statement in statements
        if isinstance(statement, Route)
    }
    for name, event in routed:
        if event not in taken:
            yield f"query {name}: routes {event!r}, which no query here takes"


def writing_statements(plan: Plan) -> dict[str, list[Statement]]:
    """The statements that write, by the name of their query."""
    return {
        query.name: [
            statement
            for block in (query.block, *(action.body for action in query.actions))
            for statement in _writing(block)
        ]
        for query in plan.queries
    }


def _writing(block: Sequence[Statement]) -> Iterator[Statement]:
    """The statements of a block that write, those within others too."""
    for statement in block:
        match statement:
            case If(then=then, otherwise=otherwise) | IfPresent(then=then, otherwise=otherwise):
                yield from _writing((*then, *otherwise))
            case While(body=body) | For(body=body):
                yield from _writing(body)
            case _ if type(statement) in WORDS:
                yield statement
