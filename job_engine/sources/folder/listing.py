"""List the files of a source, in a folder or in a store.

What has not changed is not listed again.
"""

from __future__ import annotations

import fnmatch
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from job_engine.clock import monotonic
from job_engine.local_path import LocalPath
from job_engine.place import RemotePath, Stat
from job_engine.sources.folder.settings import ListedSource
from querylang.dataclass import dataclass, field
from querylang.errors import is_passing
from querylang.system_errors import reason_of

# Which names in a folder are files of a source, by Spark's rules.


def is_hidden(name: str) -> bool:
    """Whether a name is skipped: `_name` and `.name`, but not a folder `_key=value`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def name_filter(source: ListedSource) -> Callable[[str], bool]:
    """Whether a name that is not hidden is a file of the source."""
    if source.pattern is None:
        return lambda name: name.lower().endswith(source.suffixes)
    patterns = [re.compile(fnmatch.translate(part), re.DOTALL) for part in alternatives(source.pattern)]
    return lambda name: any(pattern.match(name) for pattern in patterns)


def alternatives(pattern: str) -> list[str]:
    """The patterns without braces that `{a,b}` stands for; braces that do not match are text."""
    opened = pattern.find("{")
    closed = _end_of(pattern, opened)
    if opened < 0 or closed < 0:
        return [pattern]
    before, after = pattern[:opened], pattern[closed + 1 :]
    choices = _choices(pattern[opened + 1 : closed])
    return [found for choice in choices for found in alternatives(before + choice + after)]


def _end_of(pattern: str, opened: int) -> int:
    """Where the brace at `opened` is closed; -1 = nowhere."""
    depth = 0
    for place in range(max(opened, 0), len(pattern)):
        depth += {"{": 1, "}": -1}.get(pattern[place], 0)
        if depth == 0 and opened >= 0:
            return place
    return -1


def _choices(text: str) -> list[str]:
    """The parts between the commas that are in no inner braces."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


# Only names are compared, so any legal name works.

GRANULARITY = 2_000_000_000
"""ns: a folder that changed within this time may change again without another modification time."""

RELIST = 60_000_000_000
"""ns after which a folder is listed anyway: some mounted systems do not keep folders' times."""


MOST_AGAIN = 5
"""Times that folders are listed again because some changed while others were listed."""


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What tells whether a file has changed: size, time of modification in ns, inode."""

    size: int
    modified: int
    inode: int

    @staticmethod
    def of(found: Stat) -> FileStamp:
        """The stamp of a file."""
        return FileStamp(found.st_size, found.st_mtime_ns, found.st_ino)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """What a listing found.

    files: new files by their paths below the source's folder
    skipped: paths whose names fit, but which are not files that can be read, and what they are
    """

    files: dict[str, FileStamp] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A folder as it was listed: its time of modification, when that was, and the folders in it."""

    modified: int
    moment: int
    folders: tuple[str, ...]


class FolderWatch:
    """The folder of one source, and what was seen of it."""

    def __init__(self, source: ListedSource) -> None:
        self._source = source
        self._folder = LocalPath(source.folder)
        self._fits = name_filter(source)
        self._listed: dict[str, _Listed] = {}
        self._young: set[str] = set()

    def new_files(self, is_known: Callable[[str], bool], now: int) -> FoundFile:
        """The files in the parts of the folder that may have changed.

        is_known: whether a path is left out
        now: the wall clock, ns since 1970. Raises OSError if the folder cannot be listed.
        """
        found = FoundFile()
        candidates = self._young
        self._young = set()
        for path in sorted(candidates):
            self._look_at(path, is_known, now, found)
        for path in self._names_of_a_moment(is_known, now):
            if path not in candidates:
                self._look_at(path, is_known, now, found)
        return found

    def _names_of_a_moment(self, is_known: Callable[[str], bool], now: int) -> Iterable[str]:
        """The paths of files in folders that may have changed.

        A file may come to one folder after that was listed, and a later file to another one before
        that is. So what has changed meanwhile is listed again.
        """
        names = dict.fromkeys(self._names(now))
        for _ in range(MOST_AGAIN):
            if all(map(is_known, names)) or not any(map(self._has_changed, self._there())):
                break
            names |= dict.fromkeys(self._names(now))
        return names

    def _there(self) -> Iterator[str]:
        """The folders that were there when they were listed last; where there is one, none."""
        waiting = [""] if len(self._listed) > 1 else []
        while waiting:
            folder = waiting.pop()
            if folder in self._listed:
                yield folder
                waiting.extend(self._listed[folder].folders)

    def _has_changed(self, folder: str) -> bool:
        try:
            return (self._folder / folder).stat().st_mtime_ns != self._listed[folder].modified
        except FileNotFoundError:
            return True

    def names(self) -> set[str]:
        """The names of all files that are there; the folder is listed anew."""
        self._listed.clear()
        return set(self._names(0))

    def stamp(self, path: str) -> FileStamp:
        """A file's stamp now; raises OSError."""
        return FileStamp.of((self._folder / path).stat())

    def _look_at(self, path: str, is_known: Callable[[str], bool], now: int, found: FoundFile) -> None:
        if is_known(path):
            return
        try:
            status = (self._folder / path).stat()
        except FileNotFoundError:
            if (self._folder / path).is_symlink():
                found.skipped[path] = "is a link to a file that does not exist"
            return  # or it was removed since it was listed
        except OSError as error:
            if is_passing(error):  # left out, it would be read behind later files
                raise
            found.skipped[path] = reason_of(error)
            return
        if stat.S_ISDIR(status.st_mode):
            found.skipped[path] = "is a folder; `recursiveFileLookup: true` reads what is in it"
        elif not stat.S_ISREG(status.st_mode):
            found.skipped[path] = "is not a file"
        elif status.st_mtime_ns > now - self._source.min_age * 1000 and self._source.min_age:
            self._young.add(path)
        else:
            found.files[path] = FileStamp.of(status)

    def _names(self, now: int) -> Iterator[str]:
        """The paths of files in folders that may have changed."""
        visited: set[tuple[int, int]] = set()
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                yield from self._names_in(folder, now, visited)
            except FileNotFoundError:
                if not folder:
                    raise
                self._listed.pop(folder, None)
                continue
            if folder in self._listed:
                waiting.extend(self._listed[folder].folders)

    def _names_in(self, folder: str, now: int, visited: set[tuple[int, int]]) -> Iterator[str]:
        status = (self._folder / folder).stat()
        if (status.st_dev, status.st_ino) in visited:
            self._listed.pop(folder, None)  # a link to a folder above it, or to one that was listed
            return
        visited.add((status.st_dev, status.st_ino))
        before = self._listed.get(folder)
        if before is not None and _is_unchanged(before, status.st_mtime_ns, now):
            return
        folders: list[str] = []
        with (self._folder / folder).entries() as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if is_hidden(entry.name):
                    continue
                if self._is_entered(entry.name) and entry.is_dir():
                    folders.append(path)
                elif self._fits(entry.name) or entry.is_dir():  # a folder that is not read is reported
                    yield path
        self._listed[folder] = _Listed(status.st_mtime_ns, now, tuple(sorted(folders)))

    def _is_entered(self, name: str) -> bool:
        """Folders below are read with `recursiveFileLookup`, and those of partitions, `day=1`."""
        return self._source.is_recursive or "=" in name


def _is_unchanged(before: _Listed, modified: int, now: int) -> bool:
    is_settled = before.modified < before.moment - GRANULARITY
    return before.modified == modified and is_settled and now < before.moment + RELIST


# List the objects of a source in a store. One request lists a thousand, with size and time.
#
# A store tells nothing of what has changed, so everything is listed each time. That takes no more
# than half of the time: after a listing that took long the next one waits as long.

QUICK = 1.0
"""Seconds. After a listing that took less than this the next one does not wait."""


class StoreWatch:
    """The objects of one source.

    clock: seconds of a clock that never goes back
    """

    def __init__(self, source: ListedSource, clock: Callable[[], float] = monotonic) -> None:
        place = source.place
        assert isinstance(place, RemotePath)
        self._folder = place
        self._source = source
        self._fits = name_filter(source)
        self._clock = clock
        self._stamps: dict[str, FileStamp] = {}
        self._folders: list[str] = []
        self._next = float("-inf")

    def new_files(self, is_known: Callable[[str], bool], now: int) -> FoundFile:
        """See `SourceWatch`."""
        if self._clock() >= self._next:
            self._list()
        found = FoundFile()
        youngest = now - self._source.min_age * 1000
        for path, stamp in self._stamps.items():
            if not is_known(path) and not (self._source.min_age and stamp.modified > youngest):
                found.files[path] = stamp
        for path in self._folders:
            found.skipped[path] = "is a folder; `recursiveFileLookup: true` reads what is in it"
        return found

    def names(self) -> set[str]:
        """See `SourceWatch`."""
        self._list()
        return {*self._stamps, *self._folders}

    def stamp(self, path: str) -> FileStamp:
        """The file's stamp when the source was listed last."""
        if path not in self._stamps:
            raise FileNotFoundError(path)
        return self._stamps[path]

    def _list(self) -> None:
        started = self._clock()
        self._stamps, self._folders = {}, []
        for path, stamp in self._files():
            self._stamps[path] = stamp
        ended = self._clock()
        self._next = ended + (ended - started if ended - started > QUICK else 0)

    def _files(self) -> Iterator[tuple[str, FileStamp]]:
        waiting = [self._folder]
        while waiting:
            folder = waiting.pop()
            for place, found in folder.entries(is_recursive=self._source.is_recursive):
                path = place.path.removeprefix(self._folder.path).lstrip("/")
                if any(map(is_hidden, path.split("/"))):
                    continue
                if stat.S_ISREG(found.st_mode):
                    if self._fits(place.name):
                        yield path, FileStamp.of(found)
                elif "=" in place.name:
                    waiting.append(place)
                else:
                    self._folders.append(path)


# What the lister asks of a source's folder, wherever it is.


class SourceWatch(Protocol):
    """The folder of one source, and what was seen of it."""

    def new_files(self, is_known: Callable[[str], bool], now: int) -> FoundFile:
        """The files that may be new; `now`: the wall clock, ns since 1970. Raises OSError."""

    def names(self) -> set[str]:
        """The names of all files that are there; the folder is listed anew."""

    def stamp(self, path: str) -> FileStamp:
        """A file's stamp, as far as the watch knows; raises OSError."""


def watch_of(source: ListedSource) -> SourceWatch:
    """Nothing is listed yet."""
    return StoreWatch(source) if isinstance(source.place, RemotePath) else FolderWatch(source)
