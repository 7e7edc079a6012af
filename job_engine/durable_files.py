"""Files that survive a power cut: written whole, renamed, and synced with their folder.

A store's objects appear when they are complete, and what it has accepted survives: there is nothing
to sync. Imports only the standard library, because the process that lists files has to start fast.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from job_engine.chance import new_name
from job_engine.local_path import LocalPath
from job_engine.place import Place, RemotePath, names_in
from querylang.dataclass import dataclass
from querylang.errors import InputError
from runtime.json_reader import DamagedJson, packed_object, part_of, read_json
from runtime.threads import in_threads

PRIVATE = 0o700
"""Permissions of a checkpoint: it has records of users, and values of keys."""

RESULT = 0o666
"""Permissions of results, less what the process's umask takes from them: others read them."""

_OF_FOLDERS, _OF_FILES = 0o777, 0o666

AT_ONCE = 16
"""Requests to a store at a time: each takes long, and costs little."""


def write_durably(path: Place, text: str) -> None:
    """Replace a file: afterwards it has either all of the text or its old content."""
    if isinstance(path, RemotePath):
        path.write_text(text)
        return
    draft = path.with_name(f".{path.name}.draft")
    with new_file(draft) as file:
        file.write(text.encode("utf-8"))
    publish([(draft, path)])


def create_durably(path: Place, text: str, draft_name: str | None = None) -> bool:
    """Write a new file, whole; False = there is one of this name.

    draft_name: of the file beside it that is written first; None = a name that nothing has
    """
    if isinstance(path, RemotePath):
        if path.exists():
            return False
        path.write_text(text)
        return True
    draft = path.with_name(draft_name or f".{new_name()}.draft")
    try:
        with new_file(draft) as file:
            file.write(text.encode("utf-8"))
        sync(draft)
        path.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    sync(path.parent)
    return True


@contextmanager
def new_file(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """A file that nobody else has made or linked; one that a crash has left behind is replaced.

    mode: its permissions; None = those of its folder: 0600 in a folder of 0700
    """
    with named(path):
        path.unlink(missing_ok=True)
        mode = path.parent.stat().st_mode & _OF_FILES if mode is None else mode
        with LocalPath.of(path).new_file(mode) as file:
            yield file


def publish(files: Iterable[tuple[Path, Path]]) -> None:
    """Rename each first file to the second; they are on the disk when this returns."""
    pairs = [(LocalPath.of(draft), LocalPath.of(path)) for draft, path in files]
    for draft, _ in pairs:
        sync(draft)
    rename(pairs)


def rename(pairs: Sequence[tuple[Place, Place]]) -> None:
    """Rename files that are on the disk; their new names are there, too, when this returns."""
    remote = [(draft, path) for draft, path in pairs if isinstance(draft, RemotePath) and isinstance(path, RemotePath)]
    local = [(draft, path) for draft, path in pairs if isinstance(draft, Path) and isinstance(path, Path)]
    for draft, path in local:
        draft.replace(path)
    for folder in sorted({path.parent for _, path in local}):
        sync(folder)
    if remote:
        in_threads(lambda pair: pair[0].replace(pair[1]), remote, AT_ONCE)


def remove(files: Collection[Place]) -> None:
    """Remove files, of which some may be missing; a power cut does not bring them back."""
    local = [file for file in files if isinstance(file, Path)]
    remote = [file for file in files if isinstance(file, RemotePath)]
    for file in local:
        file.unlink(missing_ok=True)
    for folder in sorted({file.parent for file in local}):
        sync(folder)
    if remote:
        in_threads(lambda file: file.unlink(missing_ok=True), remote, AT_ONCE)


_ON_DISK: set[Path] = set()
"""Folders whose names this process has synced."""

_CANNOT_SYNC = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP}


def make_folder(folder: Place) -> None:
    """Create a folder and those above it; they are on the disk when this returns."""
    for path in _missing(folder):
        path.mkdir(exist_ok=True)
        _sync_name(path)


class NewFolders:
    """Folders that are made one by one, whose names are synced together: most of thousands have the
    same folder above them."""

    def __init__(self) -> None:
        self._new: dict[LocalPath, None] = {}
        self._others: dict[LocalPath, None] = {}

    def make(self, folder: Place) -> None:
        """As `make_folder`; its own name is on the disk once `sync` returns."""
        if isinstance(folder, RemotePath):
            return
        if not folder.exists():
            if folder.parent in self._new:
                self.sync()  # a folder is on the disk before there is one below it
            make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            self._new[folder] = None
        elif folder not in _ON_DISK and folder not in self._new:
            self._others[folder] = None

    def sync(self) -> None:
        """Wait until all names are on the disk."""
        above = dict.fromkeys(folder.parent for folder in self._new)
        for parent in above:
            sync(parent)
        for parent in dict.fromkeys(folder.parent for folder in self._others if folder.parent not in above):
            _sync_if_allowed(parent)
        _ON_DISK.update(self._new, self._others)
        self._new.clear()
        self._others.clear()


def make_kept_folder(folder: Place) -> None:
    """As `make_folder`, below a checkpoint: new folders have the permissions of that above them."""
    for path in _missing(folder):
        path.mkdir(mode=PRIVATE, exist_ok=True)
        path.chmod(path.parent.stat().st_mode & _OF_FOLDERS)
        _sync_name(path)


def make_checkpoint(folder: Place, mode: int | None) -> None:
    """Create the folder of a checkpoint, which nobody else can read, and those above it.

    mode: permissions that users choose, also for a folder that is there; None = 0700 for a new one
    """
    if isinstance(folder, RemotePath):
        return
    make_folder(folder.parent)
    for path in _missing(folder):
        path.mkdir(mode=PRIVATE, exist_ok=True)
        path.chmod(PRIVATE if mode is None else mode)
        _sync_name(path)
    if mode is not None and folder.stat().st_mode & _OF_FOLDERS != mode:
        for path in (folder, *folder.rglob("*")):
            if not path.is_symlink():
                path.chmod(mode if path.is_dir() else mode & _OF_FILES)


def _missing(folder: Place) -> list[LocalPath]:
    """The folders to be made, the outer ones first; a store has none, only names.

    A process may have been killed between making a folder and syncing its name, so the name of the
    last one that is there is synced, once a process. Those above it are: each is, before the next.
    """
    if isinstance(folder, RemotePath):
        return []
    missing = list(takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
    there = missing[-1].parent if missing else folder
    if there not in _ON_DISK:
        _sync_if_allowed(there.parent)
        _ON_DISK.add(there)
    return missing[::-1]


def _sync_if_allowed(folder: LocalPath) -> None:
    """Sync a folder above one that is there already."""
    try:
        sync(folder)
    except OSError as error:  # of a file system, or a user, that would not have let us make it
        if error.errno not in _CANNOT_SYNC:
            raise


def _sync_name(folder: LocalPath) -> None:
    sync(folder.parent)
    _ON_DISK.add(folder)


def sync_names(folder: LocalPath, besides: str | None = None) -> None:
    """Wait until all names in a folder and below are on the disk.

    A process that was killed may have given names without syncing them. Others see these, and a
    power cut takes them away.

    besides: the name of folders that are left out; None = all
    """
    for inner, folders, _ in folder.walk_below():
        folders[:] = [name for name in folders if name != besides]
        sync(inner)


def sync_seen(folder: Place) -> None:
    """Wait until names that others have just given in a folder are on the disk, if it is there."""
    with suppress(FileNotFoundError):
        sync(folder)


def complete(files: Sequence[tuple[Path, Place]]) -> None:
    """Let what was written to `writable` files survive a power cut, at their places."""
    remote = [(file, place) for file, place in files if isinstance(place, RemotePath)]
    for _, place in files:
        sync(place)
    if remote:
        in_threads(lambda pair: pair[1].upload(pair[0]), remote, AT_ONCE)
        for file, _ in remote:
            file.unlink()


def sync(path: Place) -> None:
    """Wait until the content of a file or folder is on the disk."""
    if isinstance(path, RemotePath):
        return
    with named(path):
        LocalPath.of(path).sync()


@contextmanager
def named(path: Path | RemotePath) -> Iterator[None]:
    """Errors of a write carry no path by themselves: a full disk is found once the file is open."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


# A file of JSON that a job keeps: where it is, its shape and versions, what to do about damage.
#
# Every such file is read and written here, so each is checked, is refused in the same words, and is
# on the disk once it is written. Imports are few, because the process that lists files has to start
# fast.

RESTORE = "Restore it from a copy"
"""The way out for a file that nothing can replace."""

LARGE = 64_000
"""Characters: from here on a text is packed."""

Shape = TypeVar("Shape")


@dataclass(frozen=True, slots=True)
class JobFile(Generic[Shape]):
    """One file, which may be there.

    shape: of what it holds, without its field `version`
    way_out: a sentence that says what to do about a damaged file; "" = nobody needs to hear of it
    versions: those of its field `version` that this release reads; () = it has none
    error: what is raised for a damaged file, and by `needed` for a missing one
    missing: what `needed` says of a missing one
    text: how it is written
    packs: the version of a large one, which is packed; None = it never is. Earlier releases do not
        read it
    """

    place: Place
    shape: type[Shape]
    way_out: str = ""
    versions: Collection[int] = ()
    error: type[InputError] = DamagedJson
    missing: str = "is missing"
    text: Callable[[Any], str] = json.dumps
    packs: int | None = None

    def read(self) -> Shape | None:
        """What it holds; None = it is not there.

        Raises `error`; what `is_passing` passes: a store that is away says nothing about the file.
        """
        try:
            return read_json(
                self.place,
                self.shape,
                versions=self.versions,
                way_out=self.way_out,
                may_be_packed=self.packs is not None,
            )
        except FileNotFoundError:
            return None
        except DamagedJson as error:
            if self.error is DamagedJson:
                raise
            raise self.error(str(error)) from error

    def needed(self) -> Shape:
        """What it holds; the rest as of `read`. Raises `error` if it is not there, too."""
        found = self.read()
        if found is None:
            raise self.error(f"{self.place}: {self.missing}. {self.way_out}")
        return found

    def readable(self) -> Shape | None:
        """What it holds; None = it is not there, or is damaged."""
        try:
            return self.read()
        except self.error:
            return None

    def checking(self) -> AbstractContextManager[None]:
        """Say of the file what is found to be wrong with a part of it; raises DamagedJson."""
        return part_of(self.place, self.way_out)

    def write(self, plain: Any) -> None:
        """Replace it, with folders that are missing; it survives a power cut.

        plain: what it is to hold, with the version of that
        """
        make_kept_folder(self.place.parent)
        write_durably(self.place, self._text_of(plain))

    def create(self, plain: Any) -> bool:
        """As `write`, if there is none; False = there is one, which stays."""
        make_kept_folder(self.place.parent)
        return create_durably(self.place, self._text_of(plain))

    def remove(self) -> None:
        """Remove it, if it is there."""
        self.place.unlink(missing_ok=True)

    def _text_of(self, plain: Any) -> str:
        assert not self.versions or plain["version"] in self.versions, "a release reads what it writes"
        if self.packs is None:
            return self.text(plain)
        whole = json.dumps(plain)
        return packed_object(whole, self.packs) if len(whole) >= LARGE else self.text(plain)


def indented(plain: Any) -> str:
    """JSON that people may read, too."""
    return json.dumps(plain, indent=1) + "\n"


_NUMBER = re.compile("[0-9]+")


def numbers_in(folder: Place, form: re.Pattern[str] = _NUMBER) -> list[int]:
    """The numbers that names of JSON files of a folder are, ascending; `form`: of these names."""
    stems = [name.removesuffix(".json") for name in names_in(folder) if name.endswith(".json")]
    return sorted(int(stem) for stem in stems if form.fullmatch(stem))
