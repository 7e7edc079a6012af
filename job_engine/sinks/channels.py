"""Channels: what a query sends to a name goes to the sink of that name, and the rest to `output`.

Imports only the standard library at first, so that `ensue check` needs no Arrow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_BEGIN = "channel."

KINDS = ("send", "emit")
"""The kinds of outputs that are events with a channel."""


def channel_sink(channel: str) -> str:
    """The name of a channel's sink among all sinks of a job."""
    return _BEGIN + channel


def channels(sinks: Collection[str]) -> list[str]:
    """The channels that have a sink of their own."""
    return [name.removeprefix(_BEGIN) for name in sinks if name.startswith(_BEGIN)]


def by_channel(outputs: pa.Table, sinks: Collection[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of outputs by the names of their sinks; no table is empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    own = channels(sinks)
    if not own:
        yield "output", outputs
        return
    is_event = pc.is_in(outputs.column("kind"), pa.array(KINDS))
    has_sink = pc.is_in(outputs.column("channel"), pa.array(own, pa.string()))
    left = outputs.filter(pc.invert(pc.and_(is_event, has_sink)))
    if len(left):
        yield "output", left
    for channel in own:
        sent = outputs.filter(pc.and_(is_event, pc.fill_null(pc.equal(outputs.column("channel"), channel), False)))
        if len(sent):
            yield channel_sink(channel), sent
