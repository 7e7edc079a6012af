"""The records of files that are read while they are processed, and not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from querylang.errors import InputError
from runtime.columns.arrivals import Arrivals
from runtime.instants import NO_TIME
from runtime.reading.row_counts import about_rows
from runtime.replay.pieces import FileToRead, NotSortedError, Reading
from runtime.replay.records import Records, are_malformed, are_without_events
from runtime.results.for_users import RowOf, row_is_offset

ROWS = 3 << 17
"""Most rows of a piece: few enough for the processor's caches, and for memory."""

LEAST = ROWS
"""Files with fewer rows are read at once."""


class FileRecords:
    """The records of Parquet files. They are read again where all of them are needed at once.

    sources: the names of the files
    """

    def __init__(self, files: Sequence[FileToRead], read_all: Callable[[], Records]) -> None:
        """Nothing is read yet; `read_all`: reads all records."""
        self.sources = tuple(file.name for file in files)
        self._files = files
        self._states = [_state(file.path) for file in files]
        self._read_all = read_all
        self._all: Records | None = None
        self._reading: Reading | None = None
        self._count = 0
        self._last = NO_TIME
        self._are_malformed = self._are_without_events = True

    def pieces(self) -> Iterator[pa.Table] | None:
        """All records in order of arrival, piece by piece; None = all of them are in memory.

        Raises NotSortedError where a file is not sorted by arrival: `whole` has its records.
        """
        return None if self._all is not None else self._pieces()

    def _pieces(self) -> Iterator[pa.Table]:
        reading, count = Reading(self._files, ROWS), 0
        for piece in reading.sorted_pieces():
            if not count and len(piece) and piece.column("_arrival")[0].as_py() == 0:
                raise NotSortedError  # perhaps a later row tells when the first ones have arrived
            count += len(piece)
            self._are_malformed = self._are_malformed and are_malformed(piece)
            self._are_without_events = self._are_without_events and are_without_events(piece)
            if len(piece):
                self._last = piece.column("_arrival")[-1].as_py()
            yield piece
        self._reading, self._count = reading, count

    def whole(self) -> Records:
        """All records in memory. Raises InputError if a file is not what it was."""
        if self._all is None:
            for file, before in zip(self._files, self._states, strict=True):
                if _state(file.path) != before:
                    raise InputError(f"{file.path}: has changed since the replay began; replay it again")
            self._all = self._read_all()
        return self._all

    @property
    def arrivals(self) -> Arrivals:
        """As of `Records`."""
        return self.whole().arrivals

    @property
    def last_arrival(self) -> int:
        """As of `Records`."""
        return self._last if self._all is None and self._reading is not None else self.whole().last_arrival

    @property
    def rows(self) -> NDArray[Any]:
        """As of `Records`."""
        return self.whole().rows

    @property
    def warnings(self) -> tuple[str, ...]:
        """As of `Records`."""
        if self._all is None and self._reading is not None and not self._reading.warnings:
            return ()
        return self.whole().warnings  # it counts strange rows in the whole file

    @property
    def are_malformed(self) -> bool:
        """As of `Records`."""
        if self._all is not None or self._reading is None:
            return self.whole().are_malformed
        return bool(self._count) and self._are_malformed

    @property
    def unknown_types(self) -> Sequence[str]:
        """As of `Records`."""
        is_known = self._all is None and self._reading is not None and not self._are_without_events
        return () if is_known else self.whole().unknown_types

    def until(self, moment: int | None) -> Records | FileRecords:
        """As of `Records`."""
        return self if moment is None else self.whole().until(moment)

    def row_of(self) -> RowOf:
        """As of `Records`."""
        if self._all is not None or self._reading is None:
            return self.whole().row_of()
        return row_is_offset if self._reading.is_numbered else self._reading.row_of

    def __len__(self) -> int:
        return len(self.whole()) if self._all is not None or self._reading is None else self._count

    def __reduce__(self) -> tuple[type[Records], tuple[Any, ...]]:
        """Other processes get the records themselves."""
        records = self.whole()
        return Records, (records.arrivals, records.rows, records.sources, records.warnings)


def are_worth_it(tables: Sequence[Any]) -> bool:
    """Whether tables are Parquet files with many rows, which need not be in memory together."""
    paths = [Path(table) for table in tables if isinstance(table, str | Path)]
    if not paths or len(paths) < len(tables) or any(path.suffix.lower() != ".parquet" for path in paths):
        return False
    return sum(about_rows(path) or 0 for path in paths if path.is_file()) >= LEAST


def _state(path: Path) -> tuple[int, int]:
    """What changes when a file is written to."""
    try:
        found = path.stat()
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns
