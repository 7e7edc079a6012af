"""What queries write without a sink for it, and channels without a query, before a job starts.

Needs only the language and the standard library, because `ensue check` does it too.
"""

from __future__ import annotations

from collections.abc import Iterator

from querylang.errors import did_you_mean
from querylang.plan.expression import Literal
from querylang.plan.model import Emit, Plan, Send, Statement
from spark_backend.job.checks.writing_statements import WORDS, writing_statements
from spark_backend.settings.deployment import Deployment
from spark_backend.sinks.channels import channels


def lost_outputs(plan: Plan, deployment: Deployment) -> Iterator[str]:
    """A warning for each query whose outputs are written nowhere."""
    if "output" in deployment.sinks:
        return
    own = channels(deployment.sinks)
    for name, statements in writing_statements(plan).items():
        words = dict.fromkeys(WORDS[type(item)] for item in statements if _channel(item) not in own)
        if words:
            shown = ", ".join(f"`{word}`" for word in words)
            yield f"query {name}: without a sink `output` nothing keeps what it writes with {shown}"


def silent_channels(plan: Plan, deployment: Deployment) -> Iterator[str]:
    """A warning for each channel that has a place, and that no query sends to."""
    used = [_channel(item) for statements in writing_statements(plan).values() for item in statements]
    if any(
        isinstance(item, Send | Emit)
        for items in writing_statements(plan).values()
        for item in items
        if _is_computed(item)
    ):
        return  # what an expression gives is known when it is sent
    known = sorted({channel for channel in used if channel is not None})
    for channel in channels(deployment.sinks):
        if channel not in used:
            yield f"channel '{channel}': no query sends to it{did_you_mean(channel, known)}"


def _channel(statement: Statement) -> str | None:
    """The channel that a statement sends to; None = it has none, or an expression gives it."""
    channel = statement.channel if isinstance(statement, Send | Emit) else None
    return channel.value if isinstance(channel, Literal) and isinstance(channel.value, str) else None


def _is_computed(statement: Statement) -> bool:
    has_channel = isinstance(statement, Send | Emit) and statement.channel is not None
    return has_channel and _channel(statement) is None
