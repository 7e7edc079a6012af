"""Pieces of a history: what one step reads, so that all sources get on together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_backend.sources.listing.file_tasks import FileTask

MOST_BYTES = 32 << 20
"""Of files that one step reads of a source."""

MOST_FILES = 200

MOST_MESSAGES = 200_000


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of what was read of a source.

    size: in units of the source: bytes or messages
    is_archived: whether its files are in the archive
    """

    source: str
    size: int
    task: FileTask
    is_archived: bool = False


def in_proportion(pieces: Mapping[str, Sequence[Piece]]) -> list[list[Piece]]:
    """Steps in which all sources get on at the same pace, so that few records are held."""
    total = {source: max(1, sum(piece.size for piece in own)) for source, own in pieces.items()}
    left = {source: list(own) for source, own in pieces.items() if own}
    done = dict.fromkeys(left, 0)
    steps: list[list[Piece]] = []
    while left:
        # each step takes a piece of the source that is furthest behind, and of those as far behind
        least = min(done[source] / total[source] for source in left)
        step = []
        for source in [name for name in left if done[name] / total[name] <= least]:
            piece = left[source].pop(0)
            done[source] += max(1, piece.size)
            step.append(piece)
            if not left[source]:
                del left[source]
        steps.append(step)
    return steps
