"""Many small files of results become few, beside readers and a job that writes more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from shutil import copyfileobj
from typing import Annotated, BinaryIO, TypedDict

import pyarrow as pa

from job_engine.arrow_files import parquet_rows, parquet_writer
from job_engine.durable_files import AT_ONCE, RESTORE, JobFile, complete, remove, rename
from job_engine.local_path import temporary_folder
from job_engine.place import Place, files_below, files_with_sizes, writable
from job_engine.sinks.kinds import Compacted, Compaction, Sink
from job_engine.sinks.names import COMPACTING, FIRST_COMPACTED, RESULT_FILE
from querylang.dataclass import dataclass
from querylang.errors import InputError
from querylang.system_errors import refused
from runtime.reading import open_parquet
from runtime.results.for_users import parquet_settings
from runtime.threads import in_threads

# Write the rows of several result files to one, in their order, with equal columns and types.

ROWS = 1 << 17
"""Rows of a row group of Parquet, unless they are large."""

BYTES = 64 << 20
"""Bytes, as Parquet stores them before compression, after which a row group is written."""


@dataclass(frozen=True, slots=True)
class Merger:
    """How files of a format become one.

    head: what files have to have in common; raises InputError for a damaged file
    merge: writes the rows of files to a new one
    """

    head: Callable[[Path], bytes]
    merge: Callable[[Sequence[Path], Path], None]


def _parquet_head(path: Path) -> bytes:
    try:
        with open_parquet(path) as file:
            return bytes(file.schema_arrow.serialize().to_pybytes())
    except pa.ArrowException as error:
        raise InputError(f"{path.name}: is not a Parquet file: {error}") from error


def _merge_parquet(paths: Sequence[Path], out: Path) -> None:
    with open_parquet(paths[0]) as first:
        schema = first.schema_arrow
    rows = 0
    with parquet_writer(out, schema, **parquet_settings(schema)) as writer:
        for table in _row_groups(paths):
            writer.write_table(table)
            rows += len(table)
    expected = sum(map(parquet_rows, paths))
    assert rows == expected, f"{rows} of {expected} rows were copied"


def _row_groups(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """The rows of all files, in tables that are neither small nor large."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for path in paths:
        with open_parquet(path) as file:
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                waiting.append(file.read_row_group(number))
                rows, size = rows + group.num_rows, size + group.total_byte_size
                if rows >= ROWS or size >= BYTES:
                    yield pa.concat_tables(waiting)
                    waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


def _csv_head(path: Path) -> bytes:
    """The first line with its end; names in quotes may have line ends in them."""
    head = b""
    with path.open("rb") as file:
        for line in file:
            head += line
            if head.count(b'"') % 2 == 0:
                break
    return head


def _merge_csv(paths: Sequence[Path], out: Path) -> None:
    head = _csv_head(paths[0])
    with out.open("wb") as target:
        target.write(head)
        for path in paths:
            _append(target, path, after=len(head))


def _no_head(_path: Path) -> bytes:
    return b""


def _merge_json(paths: Sequence[Path], out: Path) -> None:
    with out.open("wb") as target:
        for path in paths:
            _append(target, path)


def _append(target: BinaryIO, path: Path, after: int = 0) -> None:
    with path.open("rb") as file:
        file.seek(after)
        copyfileobj(file, target, 1 << 20)


MERGERS: Mapping[str, Merger] = {
    "parquet": Merger(_parquet_head, _merge_parquet),
    "csv": Merger(_csv_head, _merge_csv),
    "json": Merger(_no_head, _merge_json),
}
"""By the format of a sink; others have files that only their own tools may touch."""


# Which files of a folder become one: files of neighbouring micro-batches, up to a size.

MOST_FILES = 1_000
"""Files that become one at a time. Meanwhile readers may see rows twice: it has to be short."""


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A file of results.

    batch: the micro-batch that it is of; of one that was compacted, the last one
    size: bytes
    """

    place: Place
    batch: int
    size: int


def groups_of(files: Iterable[ResultFile], target: int) -> Iterator[list[ResultFile]]:
    """The groups of files that become one each, in the order of micro-batches.

    A group has all files of its micro-batches, so names keep their order. Files of at least half
    the target stay as they are: otherwise each compaction would write them again.

    files: of one folder
    target: bytes that a compacted file should have
    """
    group: list[ResultFile] = []
    ordered = sorted(files, key=lambda file: (file.batch, file.place.name))
    for _, found in groupby(ordered, key=lambda file: file.batch):
        own = list(found)
        if len(own) == 1 and own[0].size >= target // 2:
            yield from _worthwhile(group)
            group = []
            continue
        group += own
        if sum(file.size for file in group) >= target or len(group) >= MOST_FILES:
            yield from _worthwhile(group)
            group = []
    yield from _worthwhile(group)


def _worthwhile(group: Sequence[ResultFile]) -> Iterator[list[ResultFile]]:
    if len(group) > 1:
        yield list(group)


# Replace files by one that has their rows; a crash at any moment loses and doubles nothing.
#
# The new file is written under a hidden name. Then a plan, hidden too, says which files it
# replaces. Then it gets its name, the replaced files are removed, and at last the plan. Whoever
# finds a plan finishes what it says. Readers that find one know that rows may be there twice.

_BEGIN = f".{COMPACTING}"
"""Of hidden names: readers skip them, and so does a job that removes drafts of its own."""

_PLAN = ".plan"
_DRAFT = ".draft"


@dataclass(frozen=True, slots=True)
class Replacement:
    """Files of a folder, and the one that replaces them.

    new, old: names
    """

    folder: Place
    new: str
    old: tuple[str, ...]

    @property
    def draft(self) -> Place:
        """Where the new file is until it gets its name."""
        return self.folder / f"{_BEGIN}{self.new}{_DRAFT}"

    def begin(self) -> None:
        """Write the plan; the draft has to be on the disk."""
        _plan_file(self._plan).write({"new": self.new, "old": self.old})

    def finish(self) -> None:
        """Do what the plan says, as far as it is not done; then remove the plan."""
        if self.draft.exists():
            rename([(self.draft, self.folder / self.new)])
        if (self.folder / self.new).exists():
            remove([self.folder / name for name in self.old])
        elif not all((self.folder / name).exists() for name in self.old):
            raise InputError(
                f"{self._plan}: the file that it names is missing, and so are some that it replaces."
                " Restore the folder from a copy"
            )
        self._plan.unlink(missing_ok=True)

    @property
    def _plan(self) -> Place:
        return self.folder / f"{_BEGIN}{self.new}{_PLAN}"


def interrupted(files: Collection[Place], identity: str) -> Iterator[Replacement]:
    """The replacements of a checkpoint that were begun and not finished."""
    for file in files:
        if file.name.startswith(f"{_BEGIN}{identity}-") and file.name.endswith(_PLAN):
            yield _read(file, identity)


def remove_drafts(files: Collection[Place], identity: str) -> None:
    """Remove what interrupted compactions of a checkpoint have written without a plan."""
    begin = f"{_BEGIN}{identity}-".lstrip(".")
    remove([file for file in files if file.name.lstrip(".").startswith(begin) and file.name.endswith(_DRAFT)])


_ResultName = Annotated[str, RESULT_FILE]


class _Plan(TypedDict):
    new: _ResultName
    old: tuple[_ResultName, ...]


def _read(file: Place, identity: str) -> Replacement:
    """What a plan says: it names results of its checkpoint, in its own folder."""
    plan = _plan_file(file).needed()
    found = Replacement(file.parent, plan["new"], plan["old"])
    is_own = all(name.startswith(f"{identity}-") for name in (found.new, *found.old))
    if not is_own or found.new in found.old or file.name != f"{_BEGIN}{found.new}{_PLAN}":
        raise InputError(f"{file}: is damaged: it does not name results of its checkpoint. {RESTORE}")
    if isinstance(found.draft, Path) and found.draft.is_symlink():
        raise InputError(f"{found.draft}: is a link, and not a file of results; remove it")
    return found


def _plan_file(file: Place) -> JobFile[_Plan]:
    return JobFile(file, _Plan, RESTORE)


# Compact the folders of a sink: choose files, merge them, replace them.


def compact_sink(sink: Sink, compaction: Compaction) -> Compacted:
    """Compact all folders of a sink, once what was interrupted is finished. Raises InputError."""
    replaced, written = finish_interrupted(sink.folder, compaction.identity)
    while True:  # what was merged may be so small that it can be merged again
        done = list(_one_pass(sink, compaction))
        if not done:
            break
        replaced += sum(done)
        written += len(done)
    names = [file.name for file in files_below(sink.folder)]
    return Compacted(replaced, written, sum(_is_of(name, compaction.identity) for name in names))


def _is_of(name: str, identity: str) -> bool:
    found = RESULT_FILE.fullmatch(name)
    return found is not None and found["identity"] == identity


def finish_interrupted(folder: Place, identity: str) -> tuple[int, int]:
    """Finish or undo what was killed; gives how many files were replaced, and by how many."""
    files = list(files_below(folder))
    begun = list(interrupted(files, identity))
    for replacement in begun:
        replacement.finish()
    remove_drafts(files, identity)
    return sum(len(item.old) for item in begun), len(begun)


def _one_pass(sink: Sink, compaction: Compaction) -> Iterator[int]:
    """Replace groups of files; gives for each new file how many it replaced."""
    merger = MERGERS[sink.format]
    for folder, files in _by_folder(sink.folder, compaction):
        names = {file.place.name for file in files}
        for group in groups_of((file for file in files if file.batch <= compaction.last), compaction.target):
            with _local_copies(group) as copies:
                for alike in _alike(group, copies, merger):
                    compaction.confirm()
                    yield _replace(folder, alike, copies, merger, names)


def _by_folder(base: Place, compaction: Compaction) -> Iterator[tuple[Place, list[ResultFile]]]:
    found = [
        (file.parent, ResultFile(file, int(name["batch"]), size))
        for file, size in files_with_sizes(base)
        if (name := RESULT_FILE.fullmatch(file.name)) is not None and name["identity"] == compaction.identity
    ]
    for _, items in groupby(sorted(found, key=lambda item: str(item[0])), key=lambda item: str(item[0])):
        own = list(items)
        yield own[0][0], [file for _, file in own]


@contextmanager
def _local_copies(files: Sequence[ResultFile]) -> Iterator[dict[str, Path]]:
    """The files by their names as local ones: themselves, or copies that are removed afterwards."""
    with temporary_folder() as folder:

        def copied(place: Place) -> Path:
            if isinstance(place, Path):
                return place
            place.download(folder / place.name)
            return folder / place.name

        copies = in_threads(copied, (file.place for file in files), AT_ONCE)
        yield {file.place.name: copy for file, copy in zip(files, copies, strict=True)}


def _alike(files: Iterable[ResultFile], copies: dict[str, Path], merger: Merger) -> Iterator[list[ResultFile]]:
    """Neighbouring files that can become one: a query that was replaced may have other columns."""
    for _, found in groupby(files, key=lambda file: merger.head(copies[file.place.name])):
        alike = list(found)
        if len(alike) > 1:
            yield alike


def _replace(
    folder: Place, files: Sequence[ResultFile], copies: dict[str, Path], merger: Merger, names: set[str]
) -> int:
    """Replace files by one; `names`: those of the folder, to which the new one is added."""
    old = tuple(file.place.name for file in files)
    replacement = Replacement(folder, _new_name(old[-1], names), old)
    local = writable(replacement.draft)
    try:
        merger.merge([copies[name] for name in old], local)
        complete([(local, replacement.draft)])
        replacement.begin()
    except BaseException as error:
        local.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise refused(error, f"{folder}: cannot be compacted", "No result was changed") from error
        raise
    replacement.finish()
    names.add(replacement.new)
    return len(old)


def _new_name(last: str, names: Collection[str]) -> str:
    """A name that sorts like the last file that is replaced, and that nothing has had."""
    found = RESULT_FILE.fullmatch(last)
    assert found is not None, last
    number = FIRST_COMPACTED
    while (name := f"{found['identity']}-{found['batch']}-{number}{found['suffix']}") in names:
        number += 1
    return name
