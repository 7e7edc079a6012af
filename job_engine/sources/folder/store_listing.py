"""List the objects of a source in a store. One request lists a thousand, with size and time.

A store tells nothing of what has changed, so everything is listed each time. That takes no more
than half of the time: after a listing that took long the next one waits as long.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator

from job_engine.clock import monotonic
from job_engine.places.place import RemotePath
from job_engine.sources.folder.folder_listing import FileStamp, Found
from job_engine.sources.folder.listed_source import ListedSource
from job_engine.sources.folder.name_patterns import is_hidden, name_filter

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

    def new_files(self, is_known: Callable[[str], bool], now: int) -> Found:
        """See `SourceWatch`."""
        if self._clock() >= self._next:
            self._list()
        found = Found()
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
