"""Read files on a worker: exactly those that the manifest says, as packed rows."""

from __future__ import annotations

import stat
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from job_engine.places.local_path import LocalPath
from job_engine.places.place import Place, RemotePath
from job_engine.sources.any_column import ANY_COLUMN
from job_engine.sources.crash_marks import CrashMarks
from job_engine.sources.folder.absent_columns import ColumnsOfFolder
from job_engine.sources.folder.deadly_files import without_deadly_lines
from job_engine.sources.folder.folder_listing import FileStamp
from job_engine.sources.folder.listed_source import ListedSource
from job_engine.sources.folder.pieces import FolderWork, TakenFile
from job_engine.sources.kinds import SourceReading, TaskRun
from job_engine.sources.local_names import readable, shown
from job_engine.sources.reading import Reading, pack_parts
from job_engine.wire.packed_rows import RefusedFile, pack_lost, pack_refused, pack_reports
from job_engine.wire.program import Program
from job_engine.wire.reports import Report
from querylang.errors import InputError
from querylang.printable import one_line
from runtime.columns.arrivals import place_of
from runtime.reading.formats.csv_form import USUAL_CSV, CsvForm


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
                raise InputError(
                    f"{shown(path)}: {problem}. Restore the file, or continue without what is lost:"
                    " ensue run --accept-loss"
                )
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
        except InputError as error:
            reason = str(error).removeprefix(f"{one_line(shown(path))}: ")
            reason = reason.removeprefix(f"{one_line(self._name(file))}: ")
            if self.source.stops or not self._is_proven(file):
                raise InputError(f"{shown(path)}: {reason}") from error
            yield pack_refused(RefusedFile(self._name(file), reason), self._queries())
            yield pack_reports([Report("malformed_file", self.source.name, 0, f"{shown(file.path)}: {reason}")])

    def _records(self, file: TakenFile, local: LocalPath) -> Iterator[pa.RecordBatch]:
        named = replace(self.reading, source=self._name(file), place=place_of(self.reading.rank, file.number))
        parts = named.records(local, self.program.plan(), self._elsewhere)
        yield from pack_parts(parts, self.program, named, by_partition=True)

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
        if isinstance(path, RemotePath) and not isinstance(error, FileNotFoundError):
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
        raise InputError(f"{shown(path)}: cannot be opened: {error.strerror}") from error
