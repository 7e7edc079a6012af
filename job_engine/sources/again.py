"""What a job has read, cut into pieces that are read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from job_engine.sources.listing.unread import Unread


@dataclass(frozen=True, slots=True)
class Again:
    """What is asked for.

    before: what has been read again already, as `SourceRunning.done` has it; None = nothing
    since: records that arrived before, µs, are left out; None = none are
    has_table: whether a history table has what came first, and what is missing there is no gap
    firsts: as in `PlannedRun`
    """

    before: Any = None
    since: int | None = None
    has_table: bool = False
    firsts: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PieceAgain:
    """Part of what was read of a source.

    size: in units of the source: bytes or messages
    work: of one task
    unread: what is left behind it, by source, as in `Manifest`
    """

    source: str
    size: int
    work: Any
    unread: Mapping[str, Unread | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PiecesAgain:
    """What there is in order, and what is missing, a line each."""

    pieces: Sequence[PieceAgain] = ()
    gaps: Sequence[str] = ()
