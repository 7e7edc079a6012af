"""What happens to files once their micro-batch is committed: kept, archived or deleted.

It may be interrupted at any point and is then done again. A job that goes back to a backup reads
them again: what was archived is moved back.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from job_engine.durable_files import RESTORE, JobFile, make_folder, publish, rename, sync
from job_engine.local_path import LocalPath
from job_engine.place import OutsidePath, Place, RemotePath, has_same_content, inside, is_taken
from job_engine.sources.folder.listing import FileStamp
from job_engine.sources.folder.pieces import FolderMemory, StampRows, stamps_of_plain, stamps_to_plain
from job_engine.sources.folder.settings import ListedSource
from job_engine.sources.listing.batch_log import DamagedManifest, inputs_folder
from querylang.dataclass import dataclass, field
from querylang.system_errors import reason_of
from runtime.json_shapes import Count


@dataclass(slots=True)
class Settled:
    """Up to where the files of a source were archived or deleted.

    manifest: number of the last manifest whose files were
    left: files of these manifests that are still there, because it was not possible
    """

    manifest: int = 0
    left: dict[str, FileStamp] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettledFile:
    """The file that says it for all sources."""

    path: Place

    @staticmethod
    def of(checkpoint: Place) -> SettledFile:
        """That of a checkpoint."""
        return SettledFile(inputs_folder(checkpoint) / "settled.json")

    def read(self) -> dict[str, Settled]:
        """By source; raises DamagedManifest."""
        data = self._file().read() or {}
        return {source: Settled(number, stamps_of_plain(left)) for source, (number, left) in data.items()}

    def write(self, settled: Mapping[str, Settled]) -> None:
        """Write it durably."""
        plain = {source: [item.manifest, stamps_to_plain(item.left)] for source, item in settled.items()}
        self._file().write(plain)

    def _file(self) -> JobFile[dict[str, tuple[Count, StampRows]]]:
        return JobFile(self.path, dict[str, tuple[Count, StampRows]], RESTORE, error=DamagedManifest)


def forget_settled(memories: Mapping[str, FolderMemory], settled: Mapping[str, Settled]) -> None:
    """Take out of the list what was archived or deleted: a file of such a name is new."""
    for source, memory in memories.items():
        if source not in settled:
            continue
        done, files = settled[source], memory.files
        for path in [path for path, item in files.items() if item.manifest <= done.manifest]:
            if path not in done.left:
                del files[path]


def settle(source: ListedSource, memory: FolderMemory, committed: int, settled: Settled) -> dict[str, str]:
    """Archive or delete a source's files up to the committed manifest; gives problems by path.

    A file that is not what was read stays where it is. Those that were removed are forgotten once
    that is on the disk: a power cut would bring them back, and they would be read again.
    """
    problems: dict[str, str] = {}
    gone: dict[Place, list[str]] = {}
    files = memory.files
    due = [path for path, item in files.items() if item.manifest <= committed and path not in settled.left]
    for path in due:
        try:
            is_done = _settle_file(source, path, files[path].stamp)
        except OSError as error:
            problems[path] = f"cannot be {_DONE[source.after]}: {reason_of(error)}"
            is_done = False
        except OutsidePath as error:
            problems[path] = f"is not {_DONE[source.after]}: {error}"
            is_done = False
        if is_done:
            gone.setdefault(source.file(path).parent, []).append(path)
        else:
            settled.left[path] = files[path].stamp
    for folder, paths in gone.items():
        try:
            _sync_if_there(folder)
        except OSError as error:
            problems |= dict.fromkeys(paths, f"cannot be {_DONE[source.after]}: {error.strerror}")
            settled.left |= {path: files[path].stamp for path in paths}
            continue
        for path in paths:
            del files[path]
    settled.manifest = max(settled.manifest, committed)
    for path in [path for path in settled.left if path not in files]:
        del settled.left[path]
    return problems


def _sync_if_there(folder: Place) -> None:
    with suppress(FileNotFoundError):  # it was removed, too
        sync(folder)


_DONE = {"archive": "archived", "delete": "deleted"}


def _settle_file(source: ListedSource, path: str, stamp: FileStamp) -> bool:
    """Whether the file is not in the source's folder any more."""
    file = source.file(path)
    if isinstance(file, Path):
        # what lies behind a link to another folder is somebody else's: it is read, and stays
        inside(source.place, path.rpartition("/")[0] or ".")
    try:
        found = FileStamp.of(file.stat())
    except FileNotFoundError:
        if source.after == "archive":
            _sync_if_there(source.archived(path).parent)  # it may have been moved by one that could not
        return True
    if found != stamp:
        # another file has the name of one that was archived before a kill, or the file has changed
        return found.inode != stamp.inode
    if source.after == "delete":
        file.unlink()
    else:
        _archive(file, source.archived(path), stamp)
    return True


def _archive(file: Place, target: Place, stamp: FileStamp) -> None:
    """Move a file; another file at its target is never overwritten."""
    make_folder(target.parent)
    place = _free_place(target, file)
    if place is None:
        sync(target.parent)
        _remove(file, stamp)
    else:
        _move(file, place, stamp)
        sync(place.parent)


def _free_place(target: Place, file: Place) -> Place | None:
    """Where the file goes: `a.csv`, else `a-1.csv` and so on; None = it is there already."""
    number, place = 0, target
    while is_taken(place):
        if has_same_content(file, place):
            return None  # a copy from an attempt that was interrupted
        number += 1
        place = target.with_name(f"{target.stem}-{number}{target.suffix}")
    return place


def _move(file: Place, place: Place, stamp: FileStamp) -> None:
    if isinstance(file, RemotePath) or isinstance(place, RemotePath):
        rename([(file, place)])
        return
    try:
        file.rename(place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # another file system: the copy gets its name when it is complete
        draft = place.with_name(f".{place.name}.draft")
        LocalPath.of(file).copy_to(draft)
        publish([(draft, place)])
        _remove(file, stamp)


def move_back(source: ListedSource, paths: Iterable[str]) -> None:
    """Let files that were archived be in the source's folder again; those that are there stay."""
    moved = [(source.archived(path), source.file(path)) for path in paths]
    for file, place in moved:
        if not is_taken(place):
            make_folder(place.parent)
            _move(file, place, FileStamp.of(file.stat()))
    for folder in dict.fromkeys([*(place.parent for _, place in moved), *(file.parent for file, _ in moved)]):
        _sync_if_there(folder)  # one that was interrupted may have moved them


def _remove(file: Place, stamp: FileStamp) -> None:
    """Remove a file of which there is a copy, but not another one that has its name since."""
    if FileStamp.of(file.stat()) == stamp:
        file.unlink()
