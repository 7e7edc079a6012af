"""What a Delta source has listed and not read: what of it can come before what was read.

Commits are read in their order, but their records may arrive in another one. So that a limit per
micro-batch changes nothing, time waits for all that is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from job_engine.sources.listing.unread import Unread
from job_engine.sources.table.delta_source import DeltaSource
from job_engine.sources.table.snapshot import UnreadableTable
from job_engine.sources.table.table_units import ListedFile, TableFirsts, TablePosition

Units = Sequence[Sequence[ListedFile]]

Following = Callable[[TablePosition], tuple[Sequence[ListedFile], TablePosition] | None]
"""Gives the files of the commit behind a position, the position behind it; None = not listed."""

_WHOLE = 1 << 62
"""Behind all units of a version."""


@dataclass(frozen=True, slots=True)
class _Left:
    """The file of a unit that arrives first; `first`: as in `Unread`."""

    first: int
    path: str


class UnreadCommits:
    """What one run knows of a source: each commit is looked at once."""

    def __init__(self, source: DeltaSource, firsts: TableFirsts, following: Following) -> None:
        self._source = source
        self._firsts = firsts
        self._following = following
        self._left: dict[tuple[int, int], _Left] = {}
        self._listed: TablePosition | None = None

    def behind(self, position: TablePosition, units: Units, number: int) -> Unread | None:
        """What is listed behind a position; None = nothing that has records.

        units: those of the table at its version, if some of them are left
        number: of the file that is read next
        """
        if self._listed is None or self._listed.version < position.version:
            self._listed = self._with_units(position, units)
        self._list_commits()
        done = (position.version, _WHOLE if position.units_read is None else position.units_read)
        self._left = {place: left for place, left in self._left.items() if place >= done}
        first = min(self._left.values(), key=lambda left: left.first, default=None)
        return None if first is None else Unread(first.first, number, first.path)

    def _with_units(self, position: TablePosition, units: Units) -> TablePosition:
        """The position behind the table at its version, whose units are looked at."""
        for number, files in enumerate(units):
            self._look_at((position.version, number), files, position.columns)
        return replace(position, units_read=None)

    def _list_commits(self) -> None:
        assert self._listed is not None
        while True:
            try:
                found = self._following(self._listed)
            except UnreadableTable:
                return  # it stops the job once it is the next one
            if found is None:
                return
            files, self._listed = found
            self._look_at((self._listed.version, 0), files, self._listed.columns)

    def _look_at(self, place: tuple[int, int], files: Sequence[ListedFile], columns: Mapping[str, str]) -> None:
        firsts = zip(self._firsts(self._source, files, columns), files, strict=True) if files else ()
        known = [_Left(first, item.file.path) for first, item in firsts if first is not None]
        if known:
            self._left[place] = min(known, key=lambda left: left.first)
