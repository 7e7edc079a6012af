"""Divide the ranges of a micro-batch among tasks: equal numbers of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from job_engine.sources.topics.offsets import OffsetRange

LEAST = 50_000
"""Messages that are worth a connection of their own."""


def range_tasks(
    ranges: Sequence[OffsetRange], tasks: int, least: Mapping[str, int | None]
) -> list[tuple[OffsetRange, ...]]:
    """At most `tasks` lists, none empty, or as many as a source wants at least.

    least: by source: its `minPartitions`; None = it has none

    A partition may be divided: the operator puts its parts in order by their offsets.
    """
    wanted = max((least.get(item.source) or 0 for item in ranges), default=0)
    count = max(tasks, wanted)
    size = -(-sum(map(len, ranges)) // count) if count else 0
    pieces = [piece for item in ranges for piece in _pieces(item, max(size, 1 if least.get(item.source) else LEAST))]
    shares: list[list[OffsetRange]] = [[] for _ in range(min(count, len(pieces)))]
    loads = [0] * len(shares)
    for piece in sorted(pieces, key=lambda piece: -len(piece)):
        smallest = loads.index(min(loads))
        shares[smallest].append(piece)
        loads[smallest] += len(piece) + 1
    return [tuple(share) for share in shares]


def _pieces(item: OffsetRange, size: int) -> Iterator[OffsetRange]:
    count = -(-len(item) // size)
    if item.is_lost or count <= 1:
        yield item
        return
    bounds = [item.start + len(item) * number // count for number in range(count + 1)]
    yield from (replace(item, start=start, until=until) for start, until in pairwise(bounds))
