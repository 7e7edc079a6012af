"""Which event tables a user means: files, folders, patterns, stores, standard input."""

from __future__ import annotations

import functools
import glob
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from glob import has_magic
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from job_engine.place import scheme_of
from querylang.errors import InputError, counted, did_you_mean
from querylang.system_errors import refused
from querylang.system_limits import exists, is_folder
from runtime.file_forms import FileBelow, files_below, is_key
from runtime.temporary import OTHER_PLACE, own_folder

if TYPE_CHECKING:
    from job_engine.place import Place, RemotePath
    from job_engine.stores import RemoteStat
    from querylang.plan.model import Table
    from runtime.lookup_tables import LookupTable
    from runtime.reading import RawTable


def table_paths(given: Path | str) -> list[Path]:
    """The files, in natural order of their names. InputError if a folder or pattern has none.

    Of a folder they are the tables in it, and in its folders named `key=value`. Files of 0 bytes
    are left out.

    A path that exists under exactly that name is that; otherwise `*`, `?` and `[` are a pattern.
    `-` is standard input. Tables in stores are copied.
    """
    uri = store_uri(given)
    if uri is not None:
        return in_natural_order(tables_in_store(uri))
    path = Path(given)
    if path == NAME:
        return [table_of_standard_input(None)]
    if is_folder(path):
        return _tables_in(path)
    if exists(path) or not glob.has_magic(str(path)):
        return [path]
    matching = [Path(name) for name in glob.glob(str(path))]  # noqa: PTH207  Path.glob takes no absolute pattern
    if not matching:
        raise InputError(f"{path}: no such file, and no file matches it as a pattern")
    return _with_content([table for item in in_natural_order(matching) for table in table_paths(item)], path)


def _tables_in(folder: Path) -> list[Path]:
    from runtime.reading import SUFFIXES, is_table

    files = [item for item in files_below(folder) if is_table(item.name) and not _is_settings(item)]
    tables = [item for item in files if item.is_file()]
    if not tables:
        raise InputError(f"{folder}: is a folder without tables; expected files that end in {' '.join(SUFFIXES)}")
    return in_natural_order(_with_content(tables, folder))


def _with_content(tables: list[Path], given: Path) -> list[Path]:
    """The tables that are not files of 0 bytes; InputError if all are."""
    found = [table for table in tables if not table.is_file() or table.stat().st_size]
    if not found:
        raise InputError(f"{given}: has no rows: {counted(len(tables), 'file')} of 0 bytes")
    return found


def _is_settings(path: Path) -> bool:
    """Whether it is YAML: in a folder, that is a deployment file or a test rather than a table."""
    return path.suffix.lower() in (".yaml", ".yml")


def in_natural_order(paths: Iterable[Path]) -> list[Path]:
    """Paths with the numbers in them in order: `9.csv` before `10.csv`."""
    return sorted(paths, key=lambda path: ([_words(part) for part in path.parts], path.parts))


def _words(name: str) -> list[tuple[int, int, str]]:
    """Text and numbers in turn, such that they can be compared."""
    parts = re.split(r"([0-9]+)", name)
    return [(1, int(part), "") if place % 2 else (0, 0, part) for place, part in enumerate(parts)]


# Standard input is written to a temporary file, because tables are read twice.

NAME = Path("-")

_LOOKED_AT = 1 << 16
_PACKED = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}
_TYPED = {b"PAR1": ".parquet", b"ARROW1": ".arrow"}


def table_of_standard_input(format_: str | None) -> Path:
    """A file with what is read, whose name says the format. Raises InputError.

    format_: such as `csv` or `json.gz`; None = as its first bytes look
    """
    if sys.stdin is None or sys.stdin.closed:
        raise InputError("-: standard input was read already; give it once only")
    suffix = None if format_ is None else _known(format_)
    source = sys.stdin.buffer
    first = source.read(_LOOKED_AT)
    folder = own_folder()
    table = folder / f"stdin{_looks_like(first) if suffix is None else suffix}"
    try:
        with table.open("wb") as file:
            file.write(first)
            shutil.copyfileobj(source, file, 1 << 20)
    except OSError as error:
        raise refused(error, f"-: cannot be kept in {folder}", OTHER_PLACE) from error
    sys.stdin.close()
    return table


def _known(format_: str) -> str:
    from runtime.reading import SUFFIXES, is_table

    suffix = f".{format_.lower().removeprefix('.')}"
    if not is_table(f"table{suffix}"):
        known = [name.removeprefix(".") for name in SUFFIXES]
        raise InputError(
            f"--input-format: unknown format {format_!r}; known: {' '.join(known)}{did_you_mean(format_, known)}"
        )
    return suffix


def _looks_like(first: bytes) -> str:
    for magic, suffix in _TYPED.items():
        if first.startswith(magic):
            return suffix
    for magic, packing in _PACKED.items():
        if first.startswith(magic):
            raise InputError(f"-: is compressed; say what it holds, such as `--input-format csv{packing}`")
    text = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"{", b"["):
        return ".jsonl"
    names = text.partition(b"\n")[0]
    return ".tsv" if b"\t" in names and b"," not in names else ".csv"


# Stores, such as `s3://bucket/day=1/*.csv`: their tables are copied to this machine, then read.

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
    from job_engine.local_path import LocalPath
    from job_engine.place import below

    base = folder / place.root.partition("://")[2]
    below(LocalPath.of(base), place.path)
    is_below = above is not None and place.path.rpartition("/")[0] != above.path
    return FileBelow.of(base / above.path, base / place.path) if above and is_below else base / place.path


@functools.cache
def _folder() -> Path:
    return own_folder()


Found = list[tuple["RemotePath", "RemotePath | None"]]
"""Files, each with the folder that a user names; None = the file itself is named."""


def _tables(uri: str) -> Found:
    from job_engine.place import RemotePath, UnknownScheme, place_of, refuse_missing_bucket

    try:
        place = place_of(uri)
    except UnknownScheme as error:
        raise InputError(f"{uri}: is not the URI of a file or folder in a store") from error
    assert isinstance(place, RemotePath)
    if place.is_file():
        return [(place, None)]
    if place.is_dir():
        return _tables_below(place)
    refuse_missing_bucket(place)
    if not has_magic(place.path):
        raise InputError(f"{uri}: no such file or folder in the store")
    places = _matching(place)
    if not places:
        raise InputError(f"{uri}: no such file, and no file matches it as a pattern")
    return [table for item in places for table in ([(item, None)] if item.is_file() else _tables_below(item))]


def _tables_below(folder: RemotePath) -> Found:
    from runtime.reading import SUFFIXES, is_table

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


# Tables beside the stream: a file, or a table of Delta, here or in a store.


def read_given_table(table: Table, given: Any) -> LookupTable:
    """The content of a table beside the stream: as of `read_lookup_table`, or a table of Delta.

    One of Delta is read at its newest version. Raises InputError.
    """
    from runtime.lookup_tables import read_lookup_table

    if isinstance(given, str | PathLike):
        uri = store_uri(given)
        if uri is not None:
            given = _table_in_store(table, uri)
        elif is_folder(Path(given)):
            from job_engine.local_path import LocalPath

            given = _at_newest_version(table, LocalPath(given))
    return read_lookup_table(table, given)


def _table_in_store(table: Table, uri: str) -> RawTable | Path:
    from job_engine.errors import in_plain_words
    from job_engine.place import UnknownScheme, place_of

    try:
        place = place_of(uri)
    except UnknownScheme as error:
        raise InputError(f"{uri}: is not the URI of a file or folder in a store") from error
    with in_plain_words({}):
        if place.is_dir():
            return _at_newest_version(table, place)
    found = tables_in_store(uri)
    if len(found) > 1:
        raise InputError(f"{uri}: means {len(found)} files; table '{table.name}' is one file, or a table of Delta")
    return found[0]


def _at_newest_version(table: Table, place: Place) -> RawTable:
    from job_engine.errors import in_plain_words
    from job_engine.sources.table.reading import VersionedTable
    from querylang.plan.text import VALID

    with in_plain_words({}):
        own = VersionedTable(f"table '{table.name}'", place)
        newest = own.newest()
        if newest is None:
            raise InputError(f"{place}: is a folder, and not a Delta table: it has no folder '_delta_log'")
        return own.rows(newest[0], [field.name for field in (*table.keys, *table.fields)], VALID)
