"""Names of files and folders: in natural order, and folders named `key=value`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

# The natural order of names: digits in them are compared as numbers, `9.csv` before `10.csv`.

_DIGITS = re.compile("([0-9]+)")

NaturalKey = tuple[tuple[object, ...], str]


def natural_key(path: str) -> NaturalKey:
    """What paths are sorted by, folder by folder; equal ones (`01`, `1`) by their characters."""
    return tuple(tuple(map(_part, enumerate(_DIGITS.split(name)))) for name in path.split("/")), path


def _part(numbered: tuple[int, str]) -> object:
    """A text, or the value of digits, as (length, digits): digits may be too many for a number."""
    place, text = numbered
    value = text.lstrip("0")
    return (len(value), value) if place % 2 else text


# Folders named `key=value`, as Hive and Spark write them: the files below, and their keys.

_NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""The value that stands for null."""


class FileBelow(type(Path())):  # type: ignore[misc]  # the class of paths of this system
    """A file in folders named `key=value`, below the folder that a user names.

    It is the path that it is; its source is called by the path from that folder on.
    """

    from_folder: str

    @staticmethod
    def of(folder: Path, path: Path) -> FileBelow:
        """A file in a folder below this one."""
        file = FileBelow(path)
        file.from_folder = path.relative_to(folder).as_posix()
        return file


def path_of(table: str | Path) -> Path:
    """The path of a table; one that is a path stays one of its class."""
    return table if isinstance(table, Path) else Path(table)


def name_of_table(path: str | Path) -> str:
    """What the source of a file is called: the file's name, with its folders if these are keys."""
    return path.from_folder if isinstance(path, FileBelow) else Path(path).name


def shown_name(path: str | Path) -> str:
    """The same as text: bytes of a name that are not UTF-8 are written as hexadecimal numbers."""
    return name_of_table(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_key(name: str) -> bool:
    """Whether a folder of this name is a key and its value."""
    key, equals, value = name.partition("=")
    return bool(key and equals and value) and key[0] != "."


def keys_of(name: str) -> dict[str, str | None]:
    """The keys in the folders directly above a file, by the name of its source; None = null.

    `clicks/year=2024/month=1/a.csv` has year 2024 and month 1.
    """
    found: dict[str, str | None] = {}
    for folder in reversed(name.split("/")[:-1]):
        if not is_key(folder):
            break
        key, _, value = folder.partition("=")
        found.setdefault(unquote(key), None if value == _NOTHING else unquote(value))
    return dict(reversed(found.items()))


def files_below(folder: Path, root: Path | None = None) -> Iterator[Path]:
    """The files in a folder, and in all folders of keys below it.

    Names that begin with `.` or `_` are skipped.
    """
    for item in folder.iterdir():
        if is_key(item.name) and item.is_dir():
            yield from files_below(item, root or folder)
        elif item.name[0] not in "._":
            yield item if root is None else FileBelow.of(root, item)
