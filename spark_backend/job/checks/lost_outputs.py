"""Queries that write what a job has no sink for: reported before it starts.

Needs only the language and the standard library, because `ensue check` does it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from querylang.plan.model import Emit, For, If, IfPresent, Log, Plan, Print, Route, Send, Statement, While
from spark_backend.job.settings import Deployment

_WORDS = {Print: "print", Log: "log", Send: "send", Emit: "emit", Route: "route"}


def lost_outputs(plan: Plan, deployment: Deployment) -> Iterator[str]:
    """A warning for each query whose outputs are written nowhere."""
    if "output" in deployment.sinks:
        return
    for name in dict.fromkeys(query.name for query in plan.queries):
        query = next(query for query in plan.queries if query.name == name)
        blocks = [query.block, *(action.body for action in query.actions)]
        words = dict.fromkeys(word for block in blocks for word in _words(block))
        if words:
            shown = ", ".join(f"`{word}`" for word in words)
            yield f"query {name}: without a sink `output` nothing keeps what it writes with {shown}"


def _words(block: Sequence[Statement]) -> Iterator[str]:
    """The statements of a block that write, those within others too."""
    for statement in block:
        match statement:
            case If(then=then, otherwise=otherwise) | IfPresent(then=then, otherwise=otherwise):
                yield from _words((*then, *otherwise))
            case While(body=body) | For(body=body):
                yield from _words(body)
            case _ if type(statement) in _WORDS:
                yield _WORDS[type(statement)]
