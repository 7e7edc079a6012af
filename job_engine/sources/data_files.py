"""Files of records of any kind of source: their names, their columns, their first arrivals."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from job_engine.places.local_path import LocalPath, temporary_folder
from job_engine.places.place import Place, RemotePath, local_copy
from job_engine.sources.reading import Reading
from querylang.errors import InputError, PassingError
from querylang.printable import one_line
from runtime.file_forms import kind_of
from runtime.instants import NO_TIME
from runtime.json_reader import json_of_text
from runtime.reading import ARRIVAL
from runtime.reading.formats.parquet_files import open_parquet
from runtime.threads import in_threads
from runtime.timestamps import given_times

# The columns that a file of a job may lack, once its source has brought records: any.


class AnyColumn(Container[str]):
    """All columns: the source has brought records, so the queries name its columns rightly."""

    def __contains__(self, _name: object) -> bool:
        """A file may lack each."""
        return True


ANY_COLUMN = AnyColumn()


# Files of sources for readers of tables: on this machine, under names that UTF-8 can hold.


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
        kind = PassingError if isinstance(error, PassingError) else InputError
        raise kind(str(error).replace(one_line(str(copy)), shown(path))) from error


# The least arrival of files that are still to be read: what each kind of files looks up alike.
#
# Files that were listed together are merged by arrival, whatever micro-batches read them. So their
# clock has to know what those can bring that are still to be read.

THREADS = 8
"""Files that are looked at at once in a store, which answers slowly."""

LOCAL_THREADS = 4
"""The same in a folder, which may be one of a network."""

Looked = TypeVar("Looked")


def reading_of_source(options: Mapping[str, str], source: str) -> Reading:
    """How the records of a source are read; `options`: as of `reading_options`."""
    return Reading.of_text(json_of_text(options["readings"], dict[str, str])[source])


def of_each(place: Place, first: Callable[[Looked], int | None], files: Sequence[Looked]) -> list[int | None]:
    """That of each file, several at once; `place`: their folder."""
    return in_threads(first, files, THREADS if isinstance(place, RemotePath) else LOCAL_THREADS)


def of_statistics(path: Path, reading: Reading) -> int | None:
    """The least arrival by the statistics of a Parquet file's row groups; None = not known."""
    column = reading.columns.of(ARRIVAL)
    try:
        with open_parquet(path) as file:
            schema, groups = file.schema_arrow, file.metadata
            if column is None or column not in schema.names:
                return None
            kind = schema.field(column).type
            if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
                return None
            place = [groups.schema.column(at).path for at in range(groups.num_columns)].index(column)
            chunks = [groups.row_group(at).column(place) for at in range(groups.num_row_groups)]
            if not all(chunk.is_stats_set and chunk.statistics.has_min_max for chunk in chunks):
                return None
            values = pa.array([chunk.statistics.min for chunk in chunks], kind)
    except (pa.ArrowException, OSError, ValueError, OverflowError):
        return None
    return earliest(values, reading)


def earliest(values: pa.Array, reading: Reading) -> int | None:
    """The least of arrival times as a column has them, µs; None = not known."""
    known = [item for item in given_times(values, reading.columns.times).micros.tolist() if item != NO_TIME]
    least = min(known, default=None)
    return least if least is None or reading.since is None else max(least, reading.since)
