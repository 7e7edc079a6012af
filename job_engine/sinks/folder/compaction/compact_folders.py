"""Compact the folders of a sink: choose files, merge them, replace them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from job_engine.durable_files import AT_ONCE, complete
from job_engine.errors import FULL
from job_engine.places.local_path import temporary_folder
from job_engine.places.place import Place, files_below, files_with_sizes, writable
from job_engine.sinks.file_names import FIRST_COMPACTED, RESULT_FILE
from job_engine.sinks.folder.compaction.groups import ResultFile, groups_of
from job_engine.sinks.folder.compaction.merging import MERGERS, Merger
from job_engine.sinks.folder.compaction.replacement import Replacement, interrupted, remove_drafts
from job_engine.sinks.kinds import Compacted, Compaction, Sink
from querylang.errors import InputError
from runtime.threads import in_threads


def compact_sink(sink: Sink, compaction: Compaction) -> Compacted:
    """Compact all folders of a sink, once what was interrupted is finished. Raises InputError."""
    replaced, written = _finish_interrupted(sink.folder, compaction.identity)
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


def _finish_interrupted(folder: Place, identity: str) -> tuple[int, int]:
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
            reason = "the disk is full" if FULL.search(str(error)) else error.strerror or str(error)
            raise InputError(f"{folder}: cannot be compacted: {reason}. No result was changed") from error
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
