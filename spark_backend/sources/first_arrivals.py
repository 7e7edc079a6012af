"""Look up when the first record of a file arrives, before the file is read.

Files that were listed together are merged by arrival, whatever micro-batches read them.
So their clock has to know what those can bring that are still to be read. The reader is that of the
job: what it makes of a row is what the row will be.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.columns.given_times import given_times
from runtime.instants import NO_TIME
from runtime.json_reader import json_of_text
from runtime.reading.formats.csv_form import UTF_8, CsvForm
from runtime.reading.formats.parquet_files import open_parquet
from runtime.reading.formats.unfolding import COMPRESSIONS, kind_of
from spark_backend.places.remote_path import RemotePath
from spark_backend.sources.absent_columns import ANY_COLUMN
from spark_backend.sources.listing.listed_source import ListedSource
from spark_backend.sources.listing.manifests import TakenFile
from spark_backend.sources.local_names import readable, shown
from spark_backend.sources.reading import Reading
from spark_backend.wire.program import load_program

WHOLE = 1 << 20
"""Bytes of a file up to which all of it is read."""

PART = 1 << 18
"""Bytes at the beginning and the end of a larger file that are read."""

THREADS = 8
"""Files that are looked at at once in a store, which answers slowly."""

_LINES = frozenset({".csv", ".tsv", ".json", ".jsonl", ".ndjson"})
"""Endings of files that may be a record per line."""


def first_arrivals(options: Mapping[str, str], source: ListedSource, files: Sequence[TakenFile]) -> list[int | None]:
    """The least arrival time, µs, of the records of each file; None = no record can be read.

    options: as in `FileStream`

    A file of more than WHOLE bytes of text is read at its beginning and its end: a record between
    them that arrives before all of these is not found. So it is with the end of a compressed file.
    Raises OSError where a store fails.
    """
    reading = Reading.of_text(json_of_text(options["readings"], dict[str, str])[source.name])
    plan = load_program(options["program"]).plan()

    def first(file: TakenFile) -> int | None:
        place = source.file(file.path)
        try:
            with readable(place) as path:
                # its folders may be keys, which rows need
                return first_arrival(Path(path), replace(reading, source=shown(file.path)), plan)
        except FileNotFoundError:
            return None  # removed since it was listed: the planner reports it

    if isinstance(source.place, RemotePath):
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(first, files))
    return list(map(first, files))


def first_arrival(path: Path, reading: Reading, plan: Plan) -> int | None:
    """That of one local file."""
    try:
        size = path.stat().st_size
    except OSError:
        return None
    kind, compression = kind_of(path)
    if size > WHOLE:
        if kind == ".parquet" and (known := _of_statistics(path, reading)) is not None:
            return known
        if kind in _LINES and reading.columns.csv.encoding == UTF_8:
            found = _of_parts(path, kind, compression, reading, plan)
            if found is not None:
                return found
    return _least(reading.arrivals(str(path), plan, ANY_COLUMN))


def _least(parts: Iterable[Arrivals]) -> int | None:
    """The least arrival; what can be read before a mistake counts."""
    least: int | None = None
    try:
        for part in parts:
            if len(part):
                arrival = int(part.system("arrival").min())
                least = arrival if least is None else min(least, arrival)
    except InputError:
        pass
    return least


def _of_parts(path: Path, kind: str, compression: str, reading: Reading, plan: Plan) -> int | None:
    """The least arrival at the beginning and the end of a file of lines; None = not known."""
    with path.open("rb") as file:
        if compression:
            try:
                head = cast("BinaryIO", pa.CompressedInputStream(file, COMPRESSIONS[compression])).read(PART)
            except (pa.ArrowException, OSError):
                return None
            tail = b""
        else:
            head = file.read(PART)
            file.seek(-PART, 2)
            tail = file.read()
    if b"\n" not in head or head.lstrip()[:1] == b"[":
        return None
    lines = _lines_before(reading.columns.csv) if kind in (".csv", ".tsv") else 0
    names = b"".join(head.splitlines(keepends=True)[:lines])
    samples = [head[: head.rindex(b"\n") + 1], names + tail.partition(b"\n")[2]]
    with tempfile.TemporaryDirectory(prefix="ensue-") as folder:
        found = []
        for number, sample in enumerate(samples):
            part = Path(folder, f"{number}{kind}")
            part.write_bytes(sample)
            found.append(_least(reading.arrivals(str(part), plan, ANY_COLUMN)))
    return None if found[0] is None else min(item for item in found if item is not None)


def _lines_before(form: CsvForm) -> int:
    """How many lines of a CSV file come before its first row."""
    return form.skip + int(form.has_header)


def _of_statistics(path: Path, reading: Reading) -> int | None:
    """The least arrival by the statistics of a Parquet file's row groups; None = not known."""
    try:
        with open_parquet(path) as file:
            schema, groups = file.schema_arrow, file.metadata
            if reading.arrival is None or reading.arrival not in schema.names:
                return None
            kind = schema.field(reading.arrival).type
            if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
                return None
            place = [groups.schema.column(at).path for at in range(groups.num_columns)].index(reading.arrival)
            chunks = [groups.row_group(at).column(place) for at in range(groups.num_row_groups)]
            if not all(chunk.is_stats_set and chunk.statistics.has_min_max for chunk in chunks):
                return None
            values = pa.array([chunk.statistics.min for chunk in chunks], kind)
    except (pa.ArrowException, OSError, ValueError, OverflowError):
        return None
    known = [item for item in given_times(values, reading.columns.times).micros.tolist() if item != NO_TIME]
    return min(known, default=None)
