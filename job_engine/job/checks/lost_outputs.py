"""What queries write without a sink for it, and channels without a query, before a job starts.

Needs only the language and the standard library, because `ensue check` does it too.
"""

from __future__ import annotations

from collections.abc import Iterator

from job_engine.job.checks.writing_statements import WrittenBy
from job_engine.settings.deployment import Deployment
from job_engine.sinks.channels import channels
from querylang.errors import did_you_mean


def lost_outputs(written: WrittenBy, deployment: Deployment) -> Iterator[str]:
    """A warning for each query whose outputs are written nowhere."""
    if "output" in deployment.sinks:
        return
    own = channels(deployment.sinks)
    for name, items in written.items():
        words = dict.fromkeys(item.word for item in items if item.channel not in own)
        if words:
            shown = ", ".join(f"`{word}`" for word in words)
            yield f"query {name}: without a sink `output` nothing keeps what it writes with {shown}"


def silent_channels(written: WrittenBy, deployment: Deployment) -> Iterator[str]:
    """A warning for each channel that has a place, and that no query sends to."""
    statements = [item for items in written.values() for item in items]
    if any(item.has_computed_channel for item in statements):
        return  # what an expression gives is known when it is sent
    used = {item.channel for item in statements if item.channel is not None}
    for channel in channels(deployment.sinks):
        if channel not in used:
            yield f"channel '{channel}': no query sends to it{did_you_mean(channel, sorted(used))}"
