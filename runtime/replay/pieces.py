"""Records of files in order of arrival, piece by piece, in bounded memory.

A file that is sorted by arrival is read once, in its parts. Others are sorted on disk: their parts
are stored as sorted runs, which are then merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan
from runtime.columns.arrivals import in_arrival_order, is_in_order
from runtime.reading.column_names import ColumnNames
from runtime.reading.tables import TableRecords, iter_table
from runtime.replay.merging import concatenated, merged
from runtime.replay.records import TablePlaces

RUN = 2_000_000
"""The least number of records of a sorted run on disk."""

ROWS = 32_768
"""How many records of a run are in memory at a time."""


class NotSortedError(Exception):
    """A part of a file begins before the part before it ends, or its rows have no arrival."""


@dataclass(frozen=True, slots=True)
class FileToRead:
    """One file, and how it is read.

    place: its place among all files
    plan: says which columns it needs
    """

    path: Path
    name: str
    place: int
    plan: Plan
    columns: ColumnNames


class Reading:
    """The records of files.

    warnings: implausible times in what has been read so far, one line per file
    """

    def __init__(self, files: Sequence[FileToRead], rows: int | None = None) -> None:
        """Nothing is read yet; `rows`: most rows of a part, None = as the reader likes."""
        self._files = files
        self._most = rows
        self._rows: dict[tuple[str, int, int], int] = {}
        self.warnings: list[str] = []

    @property
    def is_numbered(self) -> bool:
        """Whether the offset of each record so far is its row."""
        return not self._rows

    def row_of(self, source: str, partition: int, offset: int) -> int:
        """The number of a record's row in its file."""
        return self._rows.get((source, partition, offset), offset)

    def sorted_pieces(self) -> Iterator[pa.Table]:
        """All records, if every file is sorted. Raises NotSortedError where one is not."""
        return merged([self._sorted(file) for file in self._files])

    def pieces_by_runs(self, folder: Path) -> Iterator[pa.Table]:
        """All records, whatever their order; `folder`: an empty one, for the runs."""
        runs = [run for file in self._files for run in self._stored(file, folder)]
        return merged([_parts_of(run) for run in runs]) if runs else iter(())

    def _sorted(self, file: FileToRead) -> Iterator[pa.Table]:
        last: pa.Table | None = None
        for table in self._parts(file):
            if len(table):
                if last is not None and not is_in_order(concatenated([last, table.slice(0, 1)])):
                    raise NotSortedError
                last = table.slice(len(table) - 1)
                yield table

    def _stored(self, file: FileToRead, folder: Path) -> list[Path]:
        """The file's records as sorted runs."""
        runs: list[Path] = []
        waiting: list[pa.Table] = []
        for table in self._parts(file):
            waiting.append(table)
            if sum(map(len, waiting)) >= RUN:
                runs.append(_store(waiting, folder))
                waiting = []
        if waiting:
            runs.append(_store(waiting, folder))
        return runs

    def _parts(self, file: FileToRead) -> Iterator[pa.Table]:
        """The parts of a file as they are read; each one is in order of arrival."""
        is_told, places = False, TablePlaces(file.place)
        for part in iter_table(file.path, file.plan, file.columns, file.name, rows=self._most):
            if part.warnings and not is_told:
                is_told = True
                self.warnings += [line for line in part.warnings if line not in self.warnings]
            if (part.arrivals.system("offset") != part.numbers).any():
                self._rows |= _rows_by_place(part)
            table = places.of(part).table
            yield in_arrival_order(table) if part.has_offsets else table


def _rows_by_place(part: TableRecords) -> dict[tuple[str, int, int], int]:
    columns = (part.arrivals.table.column(name).to_pylist() for name in ("_source", "_partition", "_offset"))
    return dict(zip(zip(*columns, strict=True), part.numbers.tolist(), strict=True))


def _store(tables: Sequence[pa.Table], folder: Path) -> Path:
    """A sorted run of these records, which are sorted table by table."""
    run = folder / f"{len(list(folder.iterdir()))}.arrow"
    rows = pa.concat_tables([concatenated([table]) for table in merged([iter([table]) for table in tables])])
    table = rows.unify_dictionaries().combine_chunks()
    with pa.OSFile(str(run), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=ROWS)
    return run


def _parts_of(run: Path) -> Iterator[pa.Table]:
    # Not mapped into memory: pages that were read would count as this process's memory.
    with pa.OSFile(str(run), "rb") as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(number)])


def arrived_by(pieces: Iterator[pa.Table], moment: int | None) -> Iterator[pa.Table]:
    """The records that have arrived by a time, µs; None = all."""
    for piece in pieces:
        if moment is None:
            yield piece
            continue
        count = int(np.searchsorted(piece.column("_arrival").to_numpy(), moment, side="right"))
        yield piece.slice(0, count)
        if count < len(piece):
            return
