"""The lister counts lines: a piece is what lies between two numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from job_engine.sources.kinds import KindPlanner, Planned, PlannedRun, Report, SourcePlanning
from runtime.json_reader import shaped
from runtime.json_shapes import Count
from tests.support.journal_source.settings import Journal


@dataclass(frozen=True, slots=True)
class Lines:
    """Those behind the first `first` of the file, up to number `until`."""

    first: Count
    until: Count

    def __len__(self) -> int:
        return self.until - self.first


@dataclass(slots=True)
class LinesRead:
    """What was read: all before `next`."""

    next: int = 0

    def __len__(self) -> int:
        return 1

    def add(self, number: int, piece: Lines) -> None:
        self.next = piece.until

    def still(self) -> Lines:
        return Lines(self.next, self.next)

    def to_plain(self, until: int, piece: Lines) -> int:
        return piece.until


class PlannedJournals(KindPlanner):
    def __init__(self, sources: Sequence[Journal]) -> None:
        self._sources = sources
        self._ends: Mapping[str, int] | None = None

    def fix_end(self) -> None:
        self._ends = self._present()

    def next(self, memories: Mapping[str, LinesRead], report: Report, *, has_ended: bool) -> Planned:
        ends = self._present() if self._ends is None else self._ends
        pieces = {
            source.name: _after(memories[source.name].next, ends[source.name], source) for source in self._sources
        }
        return Planned(pieces, has_records=any(map(len, pieces.values())))

    def _present(self) -> dict[str, int]:
        return {source.name: len(source.lines()) for source in self._sources}


class JournalPlanning(SourcePlanning):
    own_type = Journal
    work_type = Lines

    def memory(self, source: str) -> LinesRead:
        return LinesRead()

    def memory_of(self, source: str, plain: Any) -> LinesRead:
        return LinesRead(shaped(plain, Count))

    def piece_of(self, source: str, plain: Any) -> Lines:
        return shaped(plain, Lines)

    def planner(self, sources: Sequence[Journal], run: PlannedRun) -> PlannedJournals:
        return PlannedJournals(sources)

    def tasks(
        self,
        pieces: Mapping[str, Lines],
        sources: Mapping[str, Journal],
        count: int,
        unproven: Collection[str],
    ) -> list[dict[str, Lines]]:
        return [{name: lines} for name, lines in pieces.items() if len(lines)]


PLANNING = JournalPlanning()


def _after(first: int, end: int, source: Journal) -> Lines:
    return Lines(first, end if source.most is None else min(end, first + source.most))
