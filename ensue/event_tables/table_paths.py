"""Which files a path of event tables means: a file, the tables of a folder, or a pattern's."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from pathlib import Path

from ensue.event_tables.standard_input import NAME, table_of_standard_input
from ensue.event_tables.store_tables import store_uri, tables_in_store
from querylang.errors import InputError, counted
from querylang.paths import exists, is_folder
from runtime.partition_paths import files_below


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
        return _tables_of(path)
    if exists(path) or not glob.has_magic(str(path)):
        return [path]
    found = [Path(name) for name in glob.glob(str(path))]  # noqa: PTH207  Path.glob takes no absolute pattern
    if not found:
        raise InputError(f"{path}: no such file, and no file matches it as a pattern")
    return _with_content([table for item in in_natural_order(found) for table in table_paths(item)], path)


def _tables_of(folder: Path) -> list[Path]:
    from runtime.reading.tables import SUFFIXES, is_table

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
