"""Files of sources for readers of tables: on this machine, under names that UTF-8 can hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from job_engine.places.local_path import LocalPath, temporary_folder
from job_engine.places.place import Place, RemotePath, local_copy
from querylang.errors import InputError
from querylang.printable import one_line
from runtime.reading.formats.file_names import kind_of


def shown(path: str | Place) -> str:
    r"""A path as text that UTF-8 can hold: bytes of a name that are not UTF-8 as `\xff`."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@contextmanager
def readable(path: Place) -> Iterator[LocalPath]:
    """A local path of a file for readers of tables, which need names in UTF-8."""
    if isinstance(path, RemotePath):
        with local_copy(path) as copy, _named(copy, path):
            yield copy
        return
    if shown(path) == str(path):
        yield path
        return
    with temporary_folder() as folder:
        link = folder / f"table{''.join(map(shown, kind_of(path)))}"
        link.symlink_to(path)
        with _named(link, path):
            yield link


@contextmanager
def _named(copy: Path, path: Place) -> Iterator[None]:
    """Name the file itself in errors, not its copy."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(one_line(str(copy)), shown(path))) from error
