"""The package that reads and writes the logs of Delta tables: imported on first use.

It reaches stores by itself: `table_uri` and `store_settings` say where, and how.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from job_engine.delta.store_access import store_errors, store_settings, table_uri
from job_engine.places.local_path import temporary_folder
from job_engine.places.place import Place, retry_of
from job_engine.places.remote_path import RemotePath
from job_engine.retrying import Outage
from querylang.errors import InputError
from querylang.logger import warn

if TYPE_CHECKING:
    from deltalake import DeltaTable


def refuse_missing_package() -> None:
    """Raise InputError if the package is not installed."""
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise InputError("Delta tables need the package deltalake: pip install 'ensue[delta]'") from error


@contextmanager
def delta_errors(path: Place) -> Iterator[None]:
    """What the package raises of a table, as an InputError of one line; of a store OSErrors."""
    from deltalake.exceptions import DeltaError

    try:
        with store_errors(path):
            yield
    except InputError:
        raise
    except (DeltaError, ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{path}: the Delta table cannot be used: {first_line(error)}") from error
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise InputError(f"{path}: the Delta table cannot be used: {first_line(error)}") from error


_PANIC = "PanicException"
"""What a package in Rust raises where it did not expect something; it is not an Exception."""


def first_line(error: BaseException) -> str:
    """What an error of the package says, without the places in it that come behind."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def refuse_escapes(path: Place) -> None:
    """Raise InputError for a local folder that the package takes for another one.

    Its releases decode what looks like an escape in a name: they look for `%5FQ` in `_Q`.
    """
    found = None if isinstance(path, RemotePath) else _ESCAPE.search(str(path))
    if found is not None and not _keeps_escapes():
        raise InputError(
            f"{path}: the package deltalake cannot open a table in a local folder with '{found[0]}' in its path; choose"
            " another path, or another name of the query, instance or channel"
        )


_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")


@cache
def _keeps_escapes() -> bool:
    """Whether this release of the package opens a table in such a folder."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    with temporary_folder() as folder:
        table = folder / "%5F"
        table.mkdir()
        try:
            DeltaTable.create(str(table), pa.schema([("a", pa.int64())]))
            DeltaTable(str(table))
        except DeltaError:
            return False
    return True


def open_table(path: Place, version: int | None = None) -> DeltaTable | None:
    """The table in a folder; None = there is none. Raises InputError, and OSError of a store.

    version: of the table; None = the newest
    """
    if not isinstance(path, RemotePath):
        if not path.is_dir():
            return None
        refuse_escapes(path)
        return _opened(path, version)
    outage = Outage(retry_of(path) or 0.0, warn)
    while True:
        try:
            found = _opened(path, version)
        except ConnectionError as problem:
            outage.wait_for_store(problem)
        else:
            outage.over(path.root)
            return found


def _opened(path: Place, version: int | None) -> DeltaTable | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    with delta_errors(path):
        try:
            return DeltaTable(table_uri(path), version=version, storage_options=store_settings(path))
        except TableNotFoundError:
            return None
