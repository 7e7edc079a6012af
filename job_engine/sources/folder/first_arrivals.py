"""Look up when the first record of a file arrives, before the file is read.

The reader is that of the job: what it makes of a row is what the row will be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from job_engine.places.local_path import temporary_folder
from job_engine.sources.data_files import ANY_COLUMN, of_each, of_statistics, readable, reading_of_source, shown
from job_engine.sources.folder.pieces import TakenFile
from job_engine.sources.folder.settings import ListedSource
from job_engine.sources.reading import Reading
from job_engine.wire.program import load_program
from querylang.plan.model import Plan
from runtime.file_forms import COMPRESSIONS, UTF_8, CsvForm, kind_of

WHOLE = 1 << 20
"""Bytes of a file up to which all of it is read."""

PART = 1 << 16
"""Bytes of one place of a larger file that are read first."""

PLACES = 8
"""Places of a larger file that are read first, the beginning and the end among them."""

_LINES = frozenset({".csv", ".tsv", ".json", ".jsonl", ".ndjson"})
"""Endings of files that may be a record per line."""


def first_arrivals(options: Mapping[str, str], source: ListedSource, files: Sequence[TakenFile]) -> list[int | None]:
    """The least arrival time, µs, of the records of each file; None = no record can be read.

    options: as of `reading_options`

    A file of lines of more than WHOLE bytes is read at some places. If their records arrive in the
    order of the file, or against it, that is taken for all of it; otherwise all of it is read.
    Raises OSError where a store fails.
    """
    reading, plan = reading_of_source(options, source.name), load_program(options["program"]).plan()

    def first(file: TakenFile) -> int | None:
        place = source.file(file.path)
        try:
            with readable(place) as path:
                # its folders may be keys, which rows need
                return first_arrival(path, replace(reading, source=shown(file.path)), plan)
        except FileNotFoundError:
            return None  # removed since it was listed: the planner reports it

    return of_each(source.place, first, files)


def first_arrival(path: Path, reading: Reading, plan: Plan) -> int | None:
    """That of one local file."""
    try:
        size = path.stat().st_size
    except OSError:
        return None
    kind, compression = kind_of(path)
    known = None
    if kind == ".parquet":
        known = of_statistics(path, reading)
    elif size > WHOLE and kind in _LINES and reading.columns.csv.encoding == UTF_8:
        known = _of_places(path, kind, compression, reading, plan)
    return reading.least_arrival(path, plan, ANY_COLUMN) if known is None else known


def _of_places(path: Path, kind: str, compression: str, reading: Reading, plan: Plan) -> int | None:
    """The least arrival of a file of lines, by some places; None = they do not tell it."""
    parts = _beginning(path, compression) if compression else _places(path)
    if not parts or parts[0].lstrip()[:1] == b"[":
        return None
    lines = _lines_before(reading.columns.csv) if kind in (".csv", ".tsv") else 0
    names = b"".join(parts[0].splitlines(keepends=True)[:lines])
    found: list[int] = []
    with temporary_folder() as folder:
        for number, part in enumerate(parts):
            file = folder / f"{number}{kind}"
            file.write_bytes(names + part if number else part)
            least = reading.least_arrival(file, plan, ANY_COLUMN)
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
