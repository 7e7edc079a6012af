"""Read files on a worker: exactly those that the manifest says, as packed rows."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from job_engine.errors import LostInput, as_settings, failed
from job_engine.local_path import LocalPath, temporary_folder
from job_engine.place import Place, RemotePath
from job_engine.sources.crash_marks import WHOLE, CrashMarks, Deadly, death_of, living_parts
from job_engine.sources.folder.listing import FileStamp, watch_of
from job_engine.sources.folder.pieces import FolderWork, TakenFile
from job_engine.sources.folder.settings import ListedSource
from job_engine.sources.kinds import SourceReading, TaskRun
from job_engine.sources.reading import (
    ANY_COLUMN,
    Reading,
    of_each,
    of_statistics,
    pack_parts,
    readable,
    reading_of_source,
    shown,
)
from job_engine.wire.packed_rows import RefusedFile, pack_lost, pack_refused, pack_reports
from job_engine.wire.program import Program, load_program
from job_engine.wire.reports import Report
from querylang.dataclass import dataclass, field, replace
from querylang.errors import InputError, PassingError, is_passing
from querylang.plan.model import Plan
from querylang.printable import one_line
from querylang.system_errors import reason_of
from runtime.columns.arrivals import place_of
from runtime.file_forms import COMPRESSIONS, USUAL_CSV, UTF_8, CsvForm, keys_of, kind_of
from runtime.reading import COMMA, columns_in, whole_records

# Which columns a file of a job may lack: as in a replay those that other files have.


@dataclass(slots=True)
class ColumnsOfFolder(Container[str]):
    """The columns of any file that is in a source's folder now; it looks once somebody asks.

    A source that has not brought a record may have a mistake in its settings, or in the queries.
    """

    source: ListedSource
    reading: Reading
    _has: dict[str, bool] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        """Whether some file has a column of this name."""
        text = str(name)
        if text not in self._has:
            found = watch_of(replace(self.source, min_age=0)).new_files(lambda _: False, 0).files
            self._has[text] = any(self._is_in(path, text) for path in sorted(found))
        return self._has[text]

    def _is_in(self, path: str, name: str) -> bool:
        wanted = name.casefold()
        if wanted in map(str.casefold, keys_of(shown(path))):
            return True
        try:
            with readable(self.source.file(path)) as local:
                return wanted in columns_in(local, [wanted], self.reading.columns)
        except PassingError:
            raise
        except InputError:
            return False


# Files in which something ends the process that reads them: without it, or refused as a whole.

_LINES = (".json", ".jsonl", ".ndjson")
"""Whose lines are records."""

_TABLES = (".csv", ".tsv")
"""Whose records are below the names of their columns, and may have line ends in quotes."""

_WIDE = ("utf-16", "utf-32", "utf16", "utf32", "u16", "u32")
"""Encodings, as they begin, in which a line end is not one byte."""


@contextmanager
def without_deadly_lines(
    path: LocalPath,
    name: str,
    marks: CrashMarks,
    read: Callable[[LocalPath], object],
    *,
    is_suspect: bool,
    csv: CsvForm = USUAL_CSV,
) -> Iterator[LocalPath]:
    """A path of the same table, with a line that is malformed in place of one that ends a process.

    name: of the file in its records
    read: reads a table of this path
    is_suspect: whether readers have died on it
    csv: how CSV files are written

    Raises InputError for a file that ends the process, and no line of it alone.
    """
    skipped = marks.skipped(name)
    if WHOLE in skipped:
        raise InputError(f"{name}: {skipped[WHOLE]}")
    if not skipped and not (is_suspect and (death := death_of(lambda: read(path)))):
        yield path
        return
    with temporary_folder() as folder:
        copy, records = folder / path.name, _records(path, csv)
        if not skipped:
            skipped = {} if records is None else _deadly_lines(records, copy, read)
            if records is not None and skipped:
                copy.write_bytes(records.without(skipped))
            if not skipped or death_of(lambda: read(copy)):
                skipped = {WHOLE: f"reading it ends the process with {death}"}
            for offset, reason in skipped.items():
                marks.skip(Deadly(name, 0, offset, reason))
        if WHOLE in skipped or records is None:
            raise InputError(f"{name}: {skipped.get(WHOLE) or next(iter(skipped.values()))}")
        copy.write_bytes(records.without(skipped))
        yield copy


@dataclass(frozen=True, slots=True)
class _Records:
    """The records of a file that has one after the other.

    head: bytes before the first of them, such as names of columns
    starts, ends: of each, with its line end
    lines: the number of its first line, from 0
    cells: how many cells a record has at most; 0 = it is a line of JSON
    delimiter: between cells
    """

    data: bytes
    head: int
    starts: Sequence[int]
    ends: Sequence[int]
    lines: Sequence[int]
    cells: int = 0
    delimiter: str = COMMA

    def part(self, first: int, last: int) -> bytes:
        """A file that has only records from a first up to a last one."""
        return self.data[: self.head] + self.data[self.starts[first] : self.ends[last - 1]]

    def without(self, skipped: Mapping[int, str]) -> bytes:
        """The content with what is not a record in place of some, by line: all keep their lines."""
        found, at = [], 0
        for start, end, line in zip(self.starts, self.ends, self.lines, strict=True):
            if line in skipped:
                ends = self.data.count(b"\n", start, end)
                found += [self.data[at:start], self._malformed(skipped[line], ends)]
                at = end
        return b"".join([*found, self.data[at:]])

    def _malformed(self, reason: str, ends: int) -> bytes:
        text = f'"{reason}"{self.delimiter * self.cells}' if self.cells else json.dumps(reason)
        return text.encode() + b"\n" * ends  # lines behind the first one are blank


def _records(path: Path, form: CsvForm) -> _Records | None:
    """The records of a file; None = they cannot be told apart without reading it."""
    data = path.read_bytes()
    if path.suffix in _LINES:
        ends = [found.end() for found in re.finditer(rb"\n", data)]
        ends += [len(data)] if not ends or ends[-1] < len(data) else []
        return _Records(data, 0, [0, *ends[:-1]], ends, range(len(ends)))
    if path.suffix not in _TABLES or form.escape is not None or form.encoding.lower().startswith(_WIDE):
        return None
    begin = 0
    for _ in range(form.skip):
        begin = data.find(b"\n", begin) + 1 or len(data)
    found = whole_records(data[begin:], is_end=True)
    if len(found) < 2:
        return None
    delimiter = form.delimiter or ("\t" if path.suffix == ".tsv" else COMMA)
    # the first record tells how many columns there are, whether it has their names or not
    cells = found.raw(0).count(delimiter.encode()) + 1
    starts, ends = ((places[1:] + begin).tolist() for places in (found.starts, found.ends))
    lines = [form.skip + found.line(index) for index in range(1, len(found))]
    return _Records(data, starts[0], starts, ends, lines, cells, delimiter)


def _deadly_lines(records: _Records, copy: LocalPath, read: Callable[[LocalPath], object]) -> dict[int, str]:
    """By number of a line, from 0: why its record cannot be read."""

    def attempt(first: int, last: int) -> None:
        copy.write_bytes(records.part(first, last))
        read(copy)

    parts = living_parts(len(records.starts), attempt) if len(records.starts) else []
    return {records.lines[part.first]: part.problem for part in parts if part.problem is not None}


class FolderReading(SourceReading):
    """Folders of files; see `SourceReading`."""

    def packed(self, own: ListedSource, work: FolderWork, run: TaskRun) -> Iterator[pa.RecordBatch]:
        """As `SourceReading.packed`; raises InputError for a file that has changed."""
        source = replace(own, folder=own.archive) if work.is_archived and own.archive is not None else own
        files = _FileReader(run.program, source, run.reading, run.accepts_loss, run.marks, work.earlier)
        for file in work.files:
            yield from files.packed(file, is_repeated=run.is_repeated)


READING = FolderReading()


@dataclass(frozen=True, slots=True)
class _FileReader:
    """Reads files of one source.

    earlier: its files of this micro-batch, if it has not brought a record before; None = it has
    """

    program: Program
    source: ListedSource
    reading: Reading
    accepts_loss: bool
    marks: CrashMarks
    earlier: Sequence[TakenFile] | None

    def packed(self, file: TakenFile, *, is_repeated: bool) -> Iterator[pa.RecordBatch]:
        path = self.source.file(file.path)
        problem = _difference(path, file.stamp)
        is_gone = problem is not None and not path.is_file()
        if problem is not None and (is_repeated or is_gone):
            if not self.accepts_loss:
                way_out = "Restore the file, or continue without what is lost: ensue run --accept-loss"
                raise LostInput(f"{shown(path)}: {problem}", way_out)
            yield pack_lost(self._name(file), self._queries())
            yield pack_reports([Report("lost", self.source.name, 0, f"{shown(file.path)}: {problem}")])
        if is_gone:
            return
        if not file.stamp.size:
            return  # a file without a byte has no records, whatever its format
        _refuse_unopened(path)
        try:
            with (
                self.marks.reading(f"source '{self.source.name}': {shown(file.path)}") as is_suspect,
                readable(path) as local,
                without_deadly_lines(
                    local,
                    self._name(file),
                    self.marks,
                    lambda table: self._count(file, table),
                    is_suspect=is_suspect,
                    csv=USUAL_CSV if self.reading.csv is None else CsvForm.of_plain(self.reading.csv),
                ) as harmless,
            ):
                yield from self._records(file, harmless)
        except PassingError:
            raise  # the system failed, which says nothing about the file
        except InputError as error:
            reason = str(error).removeprefix(f"{one_line(shown(path))}: ")
            reason = as_settings(reason.removeprefix(f"{one_line(self._name(file))}: "))
            if self.source.stops or not self._is_proven(file):
                raise InputError(f"{shown(path)}: {reason}") from error
            yield pack_refused(RefusedFile(self._name(file), reason), self._queries())
            yield pack_reports([Report("malformed_file", self.source.name, 0, f"{shown(file.path)}: {reason}")])

    def _records(self, file: TakenFile, local: LocalPath) -> Iterator[pa.RecordBatch]:
        named = replace(self.reading, source=self._name(file), place=place_of(self.reading.rank, file.number))
        parts = named.records(local, self.program.plan(), self._elsewhere)
        yield from pack_parts(parts, self.program, named)

    def _count(self, file: TakenFile, local: LocalPath) -> int:
        return sum(1 for _ in self._records(file, local))

    @property
    def _elsewhere(self) -> Container[str]:
        """The columns that a file may lack."""
        return ANY_COLUMN if self.earlier is None else ColumnsOfFolder(self.source, self.reading)

    def _is_proven(self, file: TakenFile) -> bool:
        """Whether the source has brought a record before this file."""
        return self.earlier is None or any(
            self._has_records(other) for other in self.earlier if other.number < file.number
        )

    def _has_records(self, file: TakenFile) -> bool:
        try:
            with readable(self.source.file(file.path)) as local:
                return any(True for _ in self._records(file, local))
        except PassingError:
            raise
        except InputError:
            return False

    def _name(self, file: TakenFile) -> str:
        """The file's name in the coordinates of its records."""
        return self.reading.prefix + shown(file.path)

    def _queries(self) -> list[str]:
        return [query.title for query in self.program.plan().queries]


def _difference(path: Place, stamp: FileStamp) -> str | None:
    """What is not as the manifest says; None = all is."""
    try:
        found = path.stat()
    except OSError as error:
        if is_passing(error) or (isinstance(path, RemotePath) and not isinstance(error, FileNotFoundError)):
            raise
        return f"a micro-batch reads this file, and now there is none: {error.strerror}"
    if not stat.S_ISREG(found.st_mode):
        return "a micro-batch reads this file, and now it is not a file"
    if (found.st_size, found.st_mtime_ns) != (stamp.size, stamp.modified):
        return (
            f"a micro-batch reads this file, which has changed since: it had {stamp.size} bytes and has {found.st_size}"
            if found.st_size != stamp.size
            else "a micro-batch reads this file, which was written again since"
        )
    return None


def _refuse_unopened(path: Place) -> None:
    """Raise InputError if the machine cannot open the file: nothing says that it is not a table.

    A file that may not be read is one that is not a table, because it would be one for ever.
    """
    if isinstance(path, RemotePath):
        return  # it is copied here before it is read, and what fails then is the store
    try:
        with path.open("rb"):
            pass
    except PermissionError:
        pass
    except OSError as error:
        raise failed(error, f"{shown(path)}: cannot be opened: {reason_of(error)}") from error


# Look up when the first record of a file arrives, before the file is read.
#
# The reader is that of the job: what it makes of a row is what the row will be.

READ_WHOLE = 1 << 20
"""Bytes of a file up to which all of it is read."""

PART = 1 << 16
"""Bytes of one place of a larger file that are read first."""

PLACES = 8
"""Places of a larger file that are read first, the beginning and the end among them."""

_RECORD_A_LINE = frozenset({".csv", ".tsv", ".json", ".jsonl", ".ndjson"})
"""Endings of files that may be a record per line."""


def first_arrivals(options: Mapping[str, str], source: ListedSource, files: Sequence[TakenFile]) -> list[int | None]:
    """The least arrival time, µs, of the records of each file; None = no record can be read.

    options: as of `reading_options`

    A file of lines of more than READ_WHOLE bytes is read at some places. If their records arrive in
    the order of the file, or against it, that is taken for all of it; otherwise all of it is
    read.
    Raises OSError where a store fails.
    """
    reading, plan = reading_of_source(options, source.name), load_program(options["program"]).plan()

    def first(file: TakenFile) -> int | None:
        place = source.file(file.path)
        try:
            with readable(place) as path:
                # its folders may be keys, which rows need
                return first_arrival(path, replace(reading, source=shown(file.path)), plan)
        except FileNotFoundError:
            return None  # removed since it was listed: the planner reports it

    return of_each(source.place, first, files)


def first_arrival(path: Path, reading: Reading, plan: Plan) -> int | None:
    """That of one local file."""
    try:
        size = path.stat().st_size
    except OSError as error:
        if is_passing(error):
            raise
        return None
    kind, compression = kind_of(path)
    known = None
    if kind == ".parquet":
        known = of_statistics(path, reading)
    elif size > READ_WHOLE and kind in _RECORD_A_LINE and reading.columns.csv.encoding == UTF_8:
        known = _of_places(path, kind, compression, reading, plan)
    return reading.least_arrival(path, plan, ANY_COLUMN) if known is None else known


def _of_places(path: Path, kind: str, compression: str, reading: Reading, plan: Plan) -> int | None:
    """The least arrival of a file of lines, by some places; None = they do not tell it."""
    parts = _beginning(path, compression) if compression else _places(path)
    if not parts or parts[0].lstrip()[:1] == b"[":
        return None
    lines = _lines_before(reading.columns.csv) if kind in (".csv", ".tsv") else 0
    names = b"".join(parts[0].splitlines(keepends=True)[:lines])
    found: list[int] = []
    with temporary_folder() as folder:
        for number, part in enumerate(parts):
            file = folder / f"{number}{kind}"
            file.write_bytes(names + part if number else part)
            least = reading.least_arrival(file, plan, ANY_COLUMN)
            if least is None:
                return None
            found.append(least)
    is_rising = all(before <= after for before, after in pairwise(found))
    is_falling = all(before >= after for before, after in pairwise(found))
    return min(found) if is_rising or (is_falling and not compression) else None


def _places(path: Path) -> list[bytes]:
    """Whole lines at places of a file with equal distances."""
    size, found = path.stat().st_size, []
    with path.open("rb") as file:
        for number in range(PLACES):
            start = (size - PART) * number // (PLACES - 1)
            file.seek(start)
            text = file.read(PART)
            found.append(_whole_lines(text if not start else text.partition(b"\n")[2]))
    return found if all(found) else []


def _beginning(path: Path, compression: str) -> list[bytes]:
    """Whole lines of the beginning of a compressed file, where one cannot go to other places."""
    try:
        with path.open("rb") as file:
            stream = cast("BinaryIO", pa.CompressedInputStream(file, COMPRESSIONS[compression]))
            lines = _whole_lines(stream.read(PART * PLACES // 2)).splitlines(keepends=True)
    except (pa.ArrowException, OSError):
        return []
    count = -(-len(lines) // PLACES)
    return [b"".join(lines[at : at + count]) for at in range(0, len(lines), count)] if lines else []


def _whole_lines(text: bytes) -> bytes:
    return text[: text.rfind(b"\n") + 1]


def _lines_before(form: CsvForm) -> int:
    """How many lines of a CSV file come before its first row."""
    return form.skip + int(form.has_header)
