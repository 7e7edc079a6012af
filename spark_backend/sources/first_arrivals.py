"""Look up when the first record of a file arrives, before the file is read.

Files that were listed together are merged by arrival, whatever micro-batches read them.
So their clock has to know what those can bring that are still to be read. The reader is that of the
job: what it makes of a row is what the row will be.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import pyarrow as pa

from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.columns.given_times import given_times
from runtime.instants import NO_TIME
from runtime.json_reader import json_of_text
from runtime.reading.column_names import ARRIVAL, needed_names
from runtime.reading.formats.csv_form import UTF_8, CsvForm
from runtime.reading.formats.file_names import COMPRESSIONS, kind_of
from runtime.reading.formats.parquet_files import open_parquet
from spark_backend.delta.data_files import data_file
from spark_backend.places.place import Place, local_copy
from spark_backend.places.remote_path import RemotePath
from spark_backend.sources.absent_columns import ANY_COLUMN
from spark_backend.sources.delta.delta_source import DeltaSource
from spark_backend.sources.delta.table_units import ListedFile
from spark_backend.sources.delta.unit_reading import table_of_file, value_of_log
from spark_backend.sources.listing.listed_source import ListedSource
from spark_backend.sources.listing.manifests import TakenFile
from spark_backend.sources.local_names import readable, shown
from spark_backend.sources.reading import Reading
from spark_backend.wire.program import load_program

WHOLE = 1 << 20
"""Bytes of a file up to which all of it is read."""

PART = 1 << 16
"""Bytes of one place of a larger file that are read first."""

PLACES = 8
"""Places of a larger file that are read first, the beginning and the end among them."""

THREADS = 8
"""Files that are looked at at once in a store, which answers slowly."""

LOCAL_THREADS = 4
"""The same in a folder, which may be one of a network."""

_LINES = frozenset({".csv", ".tsv", ".json", ".jsonl", ".ndjson"})
"""Endings of files that may be a record per line."""

_IN_ORDER = frozenset({"byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz"})
"""Types of columns of Delta tables whose least value arrives first, unlike that of text."""


def first_arrivals(options: Mapping[str, str], source: ListedSource, files: Sequence[TakenFile]) -> list[int | None]:
    """The least arrival time, µs, of the records of each file; None = no record can be read.

    options: as in `FileStream`

    A file of lines of more than WHOLE bytes is read at some places. If their records arrive in the
    order of the file, or against it, that is taken for all of it; otherwise all of it is read.
    Raises OSError where a store fails.
    """
    reading, plan = _reading(options, source.name), load_program(options["program"]).plan()

    def first(file: TakenFile) -> int | None:
        place = source.file(file.path)
        try:
            with readable(place) as path:
                # its folders may be keys, which rows need
                return first_arrival(Path(path), replace(reading, source=shown(file.path)), plan)
        except FileNotFoundError:
            return None  # removed since it was listed: the planner reports it

    return _of_each(source.place, first, files)


def first_arrivals_in_table(
    options: Mapping[str, str], source: DeltaSource, files: Sequence[ListedFile], columns: Mapping[str, str]
) -> list[int | None]:
    """As `first_arrivals`, of data files of a Delta table: by the log, or else by the files.

    columns: as in `TableUnit`
    """
    reading, plan = _reading(options, source.name), load_program(options["program"]).plan()

    def first(item: ListedFile) -> int | None:
        known = _of_log(item, source, columns, reading)
        if known is not None:
            return known
        place = data_file(source.place, item.file.path, outside=source.outside_files)
        own = replace(reading, source=reading.prefix + item.file.path)
        try:
            with local_copy(place) as copy:
                known = _of_statistics(copy, own)
                if known is not None:
                    return known
                table = table_of_file(copy, item.file, columns, needed_names(plan, own.columns))
                return own.least_arrival(table, plan, ANY_COLUMN)
        except (FileNotFoundError, InputError, pa.ArrowException):
            return None  # whoever reads it reports it

    return _of_each(source.place, first, files)


def _reading(options: Mapping[str, str], source: str) -> Reading:
    return Reading.of_text(json_of_text(options["readings"], dict[str, str])[source])


Looked = TypeVar("Looked")


def _of_each(place: Place, first: Callable[[Looked], int | None], files: Sequence[Looked]) -> list[int | None]:
    with ThreadPoolExecutor(THREADS if isinstance(place, RemotePath) else LOCAL_THREADS) as pool:
        return list(pool.map(first, files))


def first_arrival(path: Path, reading: Reading, plan: Plan) -> int | None:
    """That of one local file."""
    try:
        size = path.stat().st_size
    except OSError:
        return None
    kind, compression = kind_of(path)
    known = None
    if kind == ".parquet":
        known = _of_statistics(path, reading)
    elif size > WHOLE and kind in _LINES and reading.columns.csv.encoding == UTF_8:
        known = _of_places(path, kind, compression, reading, plan)
    return reading.least_arrival(str(path), plan, ANY_COLUMN) if known is None else known


def _of_places(path: Path, kind: str, compression: str, reading: Reading, plan: Plan) -> int | None:
    """The least arrival of a file of lines, by some places; None = they do not tell it."""
    parts = _beginning(path, compression) if compression else _places(path)
    if not parts or parts[0].lstrip()[:1] == b"[":
        return None
    lines = _lines_before(reading.columns.csv) if kind in (".csv", ".tsv") else 0
    names = b"".join(parts[0].splitlines(keepends=True)[:lines])
    found: list[int] = []
    with tempfile.TemporaryDirectory(prefix="ensue-") as folder:
        for number, part in enumerate(parts):
            file = Path(folder, f"{number}{kind}")
            file.write_bytes(names + part if number else part)
            least = reading.least_arrival(str(file), plan, ANY_COLUMN)
            if least is None:
                return None
            found.append(least)
    is_rising = all(before <= after for before, after in pairwise(found))
    is_falling = all(before >= after for before, after in pairwise(found))
    return min(found) if is_rising or (is_falling and not compression) else None


def _places(path: Path) -> list[bytes]:
    """Whole lines at places of a file with equal distances."""
    size, found = path.stat().st_size, []
    with path.open("rb") as file:
        for number in range(PLACES):
            start = (size - PART) * number // (PLACES - 1)
            file.seek(start)
            text = file.read(PART)
            found.append(_whole_lines(text if not start else text.partition(b"\n")[2]))
    return found if all(found) else []


def _beginning(path: Path, compression: str) -> list[bytes]:
    """Whole lines of the beginning of a compressed file, where one cannot go to other places."""
    try:
        with path.open("rb") as file:
            stream = cast("BinaryIO", pa.CompressedInputStream(file, COMPRESSIONS[compression]))
            lines = _whole_lines(stream.read(PART * PLACES // 2)).splitlines(keepends=True)
    except (pa.ArrowException, OSError):
        return []
    count = -(-len(lines) // PLACES)
    return [b"".join(lines[at : at + count]) for at in range(0, len(lines), count)] if lines else []


def _whole_lines(text: bytes) -> bytes:
    return text[: text.rfind(b"\n") + 1]


def _lines_before(form: CsvForm) -> int:
    """How many lines of a CSV file come before its first row."""
    return form.skip + int(form.has_header)


def _of_statistics(path: Path, reading: Reading) -> int | None:
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
    return _earliest(values, reading)


def _of_log(item: ListedFile, source: DeltaSource, columns: Mapping[str, str], reading: Reading) -> int | None:
    """The least arrival by the log's statistics of a data file; None = not known."""
    value, kind = item.least.get(source.arrival), json_of_text(columns.get(source.arrival, "null"), object)
    if value is None or not isinstance(kind, str) or kind not in _IN_ORDER:
        return None
    try:
        return _earliest(value_of_log(value, kind) if isinstance(value, str) else pa.array([value]), reading)
    except (pa.ArrowException, ValueError, OverflowError):
        return None  # damaged


def _earliest(values: pa.Array, reading: Reading) -> int | None:
    """The least of arrival times as a column has them, µs; None = not known."""
    known = [item for item in given_times(values, reading.columns.times).micros.tolist() if item != NO_TIME]
    least = min(known, default=None)
    return least if least is None or reading.since is None else max(least, reading.since)
