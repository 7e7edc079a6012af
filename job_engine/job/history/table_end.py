"""Where a history table ends, and whether the sources of a job reach back to there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from job_engine.sources.source import PieceAgain
from job_engine.wire.packed_rows import unpack_row
from job_engine.wire.program import Program
from runtime.timestamps import format_time

Pieces = Mapping[str, Sequence[PieceAgain]]


@dataclass(frozen=True, slots=True)
class TableEnd:
    """What a history table has, which the sources need not bring again.

    last: the arrival, µs, up to which it counts
    sources: those whose records the queries can need
    of: the only source whose records it has; None = it may have those of all
    topics: those of `sources` whose offsets tell themselves what is missing
    program: reads first records; its progress tells the least arrival
    packed: reads a piece, whenever its records arrived
    """

    last: int
    sources: tuple[str, ...]
    of: str | None
    topics: frozenset[str]
    program: Program
    packed: Callable[[PieceAgain], Iterable[pa.RecordBatch]]

    def gaps(self, pieces: Pieces) -> Iterator[str]:
        """What neither the table nor the sources have; `pieces`: of each source."""
        last = format_time(self.last)
        for source in self.sources:
            if self.of not in (None, source):
                yield f"source '{source}': the history has no records of it, so there are none up to {last}"
            elif source not in self.topics:
                first = self._first_arrival(pieces.get(source, ()))
                if first is None or first > self.last:
                    until = "" if first is None else f" to {format_time(first)}, where what can be read again begins"
                    yield f"source '{source}': from {last}, where the history ends,{until or ' on'}"

    def _first_arrival(self, pieces: Iterable[PieceAgain]) -> int | None:
        """The earliest arrival in the first piece that has records, µs; None = none has."""
        plan = self.program.plan()
        for piece in pieces:
            rows = [unpack_row(batch.column(1)[0].as_py(), plan) for batch in self.packed(piece)]
            moments = [min((item.arrival, *item.lower)) for row in rows for item in row.progress]
            if moments:
                return min(moments)
        return None
