"""Event tables in stores, such as `s3://bucket/day=1/*.csv`: copied to this machine, then read."""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from glob import has_magic
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from job_engine.places.place import scheme_of
from querylang.errors import InputError
from querylang.paths import exists
from runtime.partition_paths import FileBelow, is_key

if TYPE_CHECKING:
    from job_engine.places.place import RemotePath
    from job_engine.places.stores import RemoteStat

AT_ONCE = 16
"""Copies at a time: each waits for the store most of its time."""

_ONE_SLASH = re.compile(r"(\w+):/(?=[^/])")


def store_uri(path: str | PathLike[str]) -> str | None:
    """The URI of a store that a path is; None = it is local.

    `Path` leaves one `/` of two; a local file of that name comes first.
    """
    text = fspath(path)
    if scheme_of(text) is None or exists(text):
        return None
    return _ONE_SLASH.sub(r"\1://", text, count=1)


def refuse_store(option: str, path: Path) -> None:
    """Raise InputError for a URI where a local path is needed."""
    uri = store_uri(path)
    if uri is not None:
        raise InputError(f"{option}: '{uri}' is in a store; write to a local path, then copy it there")


@functools.cache
def tables_in_store(uri: str) -> tuple[Path, ...]:
    """Local copies of the tables that a URI means: a file, those of a folder, or a pattern's.

    They are removed when this process ends. Raises InputError.
    """
    from job_engine.errors import in_plain_words

    with in_plain_words({}):
        found = _tables(uri)
        folder = _folder()
        copies = {_copy_of(folder, place, above): place for place, above in found}
        for copy in copies:
            copy.parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(lambda copy: copies[copy].download(copy), copies))
    return tuple(copies)


def _copy_of(folder: Path, place: RemotePath, above: RemotePath | None) -> Path:
    """Where the copy of a file is, whose key may be anything.

    above: the folder that a user names; None = the file
    """
    from job_engine.places.local_path import LocalPath
    from job_engine.places.place import below

    base = folder / place.root.partition("://")[2]
    below(LocalPath.of(base), place.path)
    is_below = above is not None and place.path.rpartition("/")[0] != above.path
    return FileBelow.of(base / above.path, base / place.path) if above and is_below else base / place.path


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ensue-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


Found = list[tuple["RemotePath", "RemotePath | None"]]
"""Files, each with the folder that a user names; None = the file itself is named."""


def _tables(uri: str) -> Found:
    from job_engine.places.place import RemotePath, UnknownScheme, place_of, refuse_missing_bucket

    try:
        place = place_of(uri)
    except UnknownScheme as error:
        raise InputError(f"{uri}: is not the URI of a file or folder in a store") from error
    assert isinstance(place, RemotePath)
    if place.is_file():
        return [(place, None)]
    if place.is_dir():
        return _tables_of(place)
    refuse_missing_bucket(place)
    if not has_magic(place.path):
        raise InputError(f"{uri}: no such file or folder in the store")
    found = _matching(place)
    if not found:
        raise InputError(f"{uri}: no such file, and no file matches it as a pattern")
    return [table for item in found for table in ([(item, None)] if item.is_file() else _tables_of(item))]


def _tables_of(folder: RemotePath) -> Found:
    from runtime.reading.tables import SUFFIXES, is_table

    tables: Found = [
        (item, folder)
        for item, found in _entries(folder)
        if is_table(item.name) and item.name[0] not in "._" and stat.S_ISREG(found.st_mode) and found.st_size
    ]
    if not tables:
        raise InputError(f"{folder}: is a folder without tables; expected files that end in {' '.join(SUFFIXES)}")
    return tables


def _entries(folder: RemotePath) -> Iterator[tuple[RemotePath, RemoteStat]]:
    """What is in a folder, and in its folders of keys."""
    for item, found in folder.entries():
        if stat.S_ISDIR(found.st_mode) and is_key(item.name):
            yield from _entries(item)
        else:
            yield item, found


def _matching(pattern: RemotePath) -> list[RemotePath]:
    """What a pattern means, part by part: `*` does not pass a `/`."""
    found: Sequence[RemotePath] = [replace(pattern, path="")]
    for part in pattern.path.split("/"):
        if has_magic(part):
            found = [inner for item in found for inner in item.iterdir() if _matches(inner.name, part)]
        else:
            found = [item / part for item in found]
    return [item for item in found if item.exists()]


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and (pattern[0] == "." or name[0] != ".")
