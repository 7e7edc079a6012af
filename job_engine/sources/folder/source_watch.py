"""What the lister asks of a source's folder, wherever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from job_engine.places.place import RemotePath
from job_engine.sources.folder.folder_listing import FileStamp, FolderWatch, Found
from job_engine.sources.folder.listed_source import ListedSource
from job_engine.sources.folder.store_listing import StoreWatch


class SourceWatch(Protocol):
    """The folder of one source, and what was seen of it."""

    def new_files(self, is_known: Callable[[str], bool], now: int) -> Found:
        """The files that may be new; `now`: the wall clock, ns since 1970. Raises OSError."""

    def names(self) -> set[str]:
        """The names of all files that are there; the folder is listed anew."""

    def stamp(self, path: str) -> FileStamp:
        """A file's stamp, as far as the watch knows; raises OSError."""


def watch_of(source: ListedSource) -> SourceWatch:
    """Nothing is listed yet."""
    return StoreWatch(source) if isinstance(source.place, RemotePath) else FolderWatch(source)
