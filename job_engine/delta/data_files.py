"""Where the data files of a Delta table are, as its log names them.

A log may be somebody else's. It names files in the table's folder; others only where the user has
allowed it, and credentials go only to the store of the table itself.
"""

from __future__ import annotations

import re
from dataclasses import replace

from job_engine.places.local_path import LocalPath
from job_engine.places.place import OutsidePath, Place, UnknownScheme, inside, is_within, place_of
from job_engine.places.remote_path import RemotePath
from querylang.errors import InputError

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/.*", re.DOTALL)
_FILE = re.compile(r"file:(?://(?:localhost)?(?=/))?(/.*)", re.DOTALL | re.IGNORECASE)


def data_file(table: Place, path: str, *, outside: bool = False) -> Place:
    """The place of a data file.

    path: as the log has it, once its `%XX` are decoded
    outside: whether it may be outside of the table's folder

    Raises OutsidePath, which names the setting that allows it.
    """
    try:
        if not _URI.fullmatch(path) and not path.startswith("/") and not outside:
            return inside(table, path)
        place = _place(table, path)
    except (UnknownScheme, OutsidePath) as error:
        raise _refusal(table, path) from error
    if outside or is_within(place, table):
        return place
    raise _refusal(table, path)


def is_below(path: str) -> bool:
    """Whether a path as of `data_file` is one of those in the table, links not looked at."""
    return not _URI.fullmatch(path) and not path.startswith("/") and ".." not in path.split("/")


def _refusal(table: Place, path: str) -> InputError:
    return OutsidePath(
        f"{table}: its log names a data file outside of the table: {path!r}. With `outside_files: true` such"
        " files are read"
    )


def _place(table: Place, path: str) -> Place:
    local = _FILE.fullmatch(path)
    if local is not None:
        return LocalPath(local[1])
    if _URI.fullmatch(path):
        found = place_of(path)
        if isinstance(found, RemotePath):
            _refuse_steps_up(found, path)
            is_same = isinstance(table, RemotePath) and found.root == table.root
            return replace(found, options=table.options) if is_same and isinstance(table, RemotePath) else found
        return found
    if isinstance(table, RemotePath):
        place = replace(table, path=path.strip("/")) if path.startswith("/") else table / path
        _refuse_steps_up(place, path)
        return place
    return table / path


def _refuse_steps_up(place: RemotePath, path: str) -> None:
    """A store has no folders: what `..` means there depends on who sends the name."""
    if ".." in place.path.split("/"):
        raise OutsidePath(f"{place}: {path!r} has '..'")
