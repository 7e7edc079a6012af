"""The records of tables in order of arrival: in memory, or of files that are read piece by
piece.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals, RecordKind, in_arrival_order, is_in_order, place_of
from runtime.file_forms import shown_name
from runtime.instants import NEVER, NO_TIME
from runtime.reading import ColumnNames, TableRecords, about_rows, iter_table
from runtime.results.for_users import RowOf, row_is_offset


@dataclass(frozen=True, slots=True)
class Records:
    """All records of all tables, in order of arrival.

    arrivals: the records
    rows: by record: its number in its table, from 1
    sources: the names of the tables
    warnings: implausible times of the tables, a line each
    """

    arrivals: Arrivals
    rows: NDArray[np.int64]
    sources: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def are_malformed(self) -> bool:
        """Whether there are rows, and none that can be read."""
        return bool(len(self.rows)) and are_malformed(self.arrivals.table)

    @property
    def unknown_types(self) -> Sequence[str]:
        """The event types of the records; none if the plan knows one, or has a control event."""
        table = self.arrivals.table
        if not are_without_events(table):
            return ()
        is_unknown = table.column("_kind").to_numpy() == RecordKind.UNKNOWN_TYPE
        names: Sequence[str] = pc.unique(table.column("_text").filter(pa.array(is_unknown))).to_pylist()
        return names

    @property
    def last_arrival(self) -> int:
        """The arrival of the last record, µs; NO_TIME = there is none."""
        return int(self.arrivals.system("arrival")[-1]) if len(self.rows) else NO_TIME

    def until(self, moment: int | None) -> Records:
        """The records that have arrived by a time (µs); None = all."""
        if moment is None:
            return self
        count = int(np.searchsorted(self.arrivals.system("arrival"), moment, side="right"))
        return replace(self, arrivals=Arrivals(self.arrivals.table.slice(0, count)), rows=self.rows[:count])

    def row_of(self) -> RowOf:
        """A function from a record's source, partition and offset to its row."""
        if (self.arrivals.system("offset") == self.rows).all():
            return row_is_offset
        table = self.arrivals.table
        places = zip(*(table.column(name).to_pylist() for name in ("_source", "_partition", "_offset")), strict=True)
        rows = dict(zip(places, self.rows.tolist(), strict=True))
        return lambda source, partition, offset: rows[source, partition, offset]

    def about(self) -> int:
        """How many there are, as of `FileRecords`."""
        return len(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def are_without_events(records: pa.Table) -> bool:
    """Whether none of the records is an event of the plan or a control event."""
    kinds = records.column("_kind").to_numpy()
    return not ((kinds >= 0) | (kinds == RecordKind.CONTROL)).any()


def are_malformed(records: pa.Table) -> bool:
    """Whether none of the records can be read."""
    return bool((records.column("_kind").to_numpy() == RecordKind.MALFORMED).all())


class TablePlaces:
    """Gives the records of one table their `_place`: what arrives together is in the table's order.

    Where a column says the offsets, they are the order, as in a DataFrame, and all records have the
    table's place. So they have where partition and offset number the rows.
    """

    def __init__(self, place: int) -> None:
        self._place = place_of(place)
        self._first: tuple[int, int] | None = None
        self._are_numbered = True

    def of(self, part: TableRecords) -> Arrivals:
        """The records of the next part, whatever coordinates its columns say."""
        table = part.arrivals.table
        if not len(table):
            return part.arrivals
        self._are_numbered = self._are_numbered and (part.has_offsets or self._is_numbered(part))
        places = np.full(len(table), self._place) if self._are_numbered else self._place + part.numbers
        position = table.schema.get_field_index("_place")
        return Arrivals(table.set_column(position, table.schema.field(position), pa.array(places)))

    def _is_numbered(self, part: TableRecords) -> bool:
        """Whether offsets ascend with the rows, in one partition, as in the parts before."""
        partition, offset = part.arrivals.system("partition"), part.arrivals.system("offset")
        shift = int(offset[0] - part.numbers[0])
        self._first = self._first or (int(partition[0]), shift)
        of_rows = np.array_equal(offset if not shift else offset - shift, part.numbers)
        return of_rows and self._first == (int(partition[0]), shift) and bool((partition == partition[0]).all())


def source_names(tables: Sequence[Any]) -> tuple[str, ...]:
    """The names of tables: the file's name, or `table`; repeated names get a number: `table#2`."""
    names: list[str] = []
    repeated = Counter[str]()  # by what is before a number: a file may be called `table#2`
    for table in tables:
        name = shown_name(table) if isinstance(table, str | Path) else "table"
        count = repeated[name]
        names.append(f"{name}#{count + 1}" if count else name)
        repeated[names[-1].partition("#")[0]] += 1
    return tuple(names)


class _Stream:
    """A sorted stream of tables; `head`: what was read of it and not yet merged."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self.head: pa.Table | None = None
        self.is_over = False
        self.read_on()

    def read_on(self) -> None:
        """Read the next table behind the head, if there is one."""
        for table in self._tables:
            if len(table):
                self.head = table if self.head is None else concatenated_tables([self.head, table])
                return
        self.is_over = True

    @property
    def reached(self) -> int:
        """Everything before this arrival, µs, is in the head."""
        if self.is_over:
            return NEVER
        return int(_arrival(self.head)[-1])

    def before(self, moment: int) -> pa.Table | None:
        """Takes the rows that arrive before a moment from the head; None = there are none."""
        if self.head is None:
            return None
        count = len(self.head) if moment >= NEVER else int(np.searchsorted(_arrival(self.head), moment))
        taken = self.head.slice(0, count)
        self.head = self.head.slice(count) if count < len(self.head) else None
        return taken if count else None


def merged(streams: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """The rows of all streams in order of arrival.

    Each stream is in order of arrival. Memory is that of one table per stream.
    """
    if len(streams) == 1:
        yield from streams[0]
        return
    active = [_Stream(tables) for tables in streams]
    while any(stream.head is not None for stream in active):
        reached = min(stream.reached for stream in active)
        ready = [table for stream in active if (table := stream.before(reached)) is not None]
        if ready:
            yield in_arrival_order(concatenated_tables(ready))
        for stream in active:  # what arrives at this very moment may continue in the next table
            if not stream.is_over and (stream.head is None or stream.reached == reached):
                stream.read_on()


def concatenated_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows of all tables; a column that one lacks is null there."""
    return Arrivals.concat([Arrivals(table) for table in tables]).table


def _arrival(table: pa.Table | None) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    assert table is not None, "a stream that is not over has a head"
    arrival: np.ndarray[tuple[int], np.dtype[np.int64]] = table.column("_arrival").to_numpy()
    return arrival


# Records of files in order of arrival, piece by piece, in bounded memory. A file that is sorted by
# arrival is read once, in its parts. Others are sorted on disk: their parts are stored as sorted
# runs, which are then merged.

MOST_MERGED = 1_000
"""Files that are merged as they are read: each piece costs a look at all of them."""

RUN = 2_000_000
"""The least number of records of a sorted run on disk."""

ROWS_OF_A_GROUP = 32_768
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
        """All records, if every file is sorted, and there are few.

        Raises NotSortedError where one is not, or where they are more than may be open.
        """
        may_be_open = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        if len(self._files) > min(max(may_be_open, 1), MOST_MERGED):
            raise NotSortedError
        return merged([self._sorted(file) for file in self._files])

    def pieces_by_runs(self, folder: Path) -> Iterator[pa.Table]:
        """All records, whatever their order; `folder`: an empty one, for the runs."""
        runs = list(self._stored(folder))
        return merged([_parts_of(run) for run in runs]) if runs else iter(())

    def _sorted(self, file: FileToRead) -> Iterator[pa.Table]:
        last: pa.Table | None = None
        for table in self._parts(file):
            if len(table):
                if last is not None and not is_in_order(concatenated_tables([last, table.slice(0, 1)])):
                    raise NotSortedError
                last = table.slice(len(table) - 1)
                yield table

    def _stored(self, folder: Path) -> Iterator[Path]:
        """The records of all files as sorted runs; small files have one together."""
        waiting: list[pa.Table] = []
        rows = 0
        for table in (table for file in self._files for table in self._parts(file)):
            waiting.append(table)
            rows += len(table)
            if rows >= RUN:
                yield _store(waiting, folder)
                waiting, rows = [], 0
        if waiting:
            yield _store(waiting, folder)

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
    """A sorted run of these records."""
    run = folder / f"{len(list(folder.iterdir()))}.arrow"
    rows = in_arrival_order(concatenated_tables(tables))
    table = rows.unify_dictionaries().combine_chunks()
    with pa.OSFile(str(run), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=ROWS_OF_A_GROUP)
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


# The records of files that are read while they are processed, and not kept.

ROWS_AT_ONCE = 3 << 17
"""Most rows of a piece: few enough for the processor's caches, and for memory."""

LEAST = ROWS_AT_ONCE
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

    def about(self) -> int:
        """How many there are, about, before any is read."""
        return about_rows_of(file.path for file in self._files)

    def pieces(self) -> Iterator[pa.Table] | None:
        """All records in order of arrival, piece by piece; None = all of them are in memory.

        Raises NotSortedError where a file is not sorted by arrival: `whole` has its records.
        """
        return None if self._all is not None else self._pieces()

    def _pieces(self) -> Iterator[pa.Table]:
        reading, count = Reading(self._files, ROWS_AT_ONCE), 0
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


def about_rows_of(paths: Iterable[Path]) -> int:
    """How many rows files have together, about; one that can be read only once counts none."""
    return sum(about_rows(path) or 0 for path in paths if path.is_file())


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
