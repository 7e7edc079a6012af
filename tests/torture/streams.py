"""Random event streams of several sources, cut into files: ties, bursts, late and unreadable records, odd names."""

from __future__ import annotations

import csv
import io
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

SECOND = 1_000_000
START = 1_700_000_000 * SECOND

KEYS = ("s1", "s2", "s3", "zwölf", "a b", "=x", "[7]", "%41", "", "∞")
FOLDERS = ("", "", "", "sub [1]", "day=1", "a b")
NAMES = ("{n}", "{n}", "part {n}", "x[{n}]", "{n}#a", "%41-{n}", "{{{n}}}", "{n}:00", "back\\{n}")


@dataclass(frozen=True, slots=True)
class Row:
    """One record: its arrival in µs, and its cells as text or numbers.

    number: the same in no other record of the stream
    """

    number: int
    at: int
    cells: dict[str, Any]


@dataclass(slots=True)
class Source:
    """One source of a job.

    format: of its files: `csv`, `json`, `parquet` or `arrow`, the first two with `.gz` or `.zst` behind it
    event: all its records have this type; None = they say it
    rows: in order of arrival
    files: what was written, in the order in which it is read: name and rows
    """

    name: str
    format: str
    event: str | None
    rows: list[Row]
    files: list[tuple[str, list[Row]]] = field(default_factory=list)

    @property
    def is_waiting(self) -> bool:
        """Whether there are rows that no file has yet."""
        return sum(len(rows) for _, rows in self.files) < len(self.rows)


def random_sources(chooser: random.Random, rows: int, *, ahead: int = SECOND) -> list[Source]:
    """Two sources of A and B, and one of C alone, which is slower.

    ahead: µs that some records have happened later than they arrived
    """
    moments = list(_moments(chooser, rows))
    sources = [
        Source("east", "csv", None, []),
        Source("west", "json", "B", []),
        Source("tide", "csv", "C", []),
    ]
    for number, at in enumerate(moments):
        source = chooser.choices(sources, (5, 4, 1))[0]
        source.rows.append(Row(number, at, cells_of_record(chooser, source, number, at, ahead)))
    for source in sources:
        if source.event is None and source.rows and source.rows[0].cells["event"] == "Unknown":
            source.rows[0].cells["event"] = "A"  # a job whose first file has no known type takes the column for a field
    return sources


def _moments(chooser: random.Random, rows: int) -> Iterator[int]:
    """Arrival times that never decrease: many ties, bursts, silence."""
    at = START
    for _ in range(rows):
        yield at
        at += chooser.choice((0, 0, 0, 1, 1_000, 100_000, 250_000, SECOND, SECOND, chooser.choice((0, 0, 8 * SECOND))))


def cells_of_record(chooser: random.Random, source: Source, number: int, at: int, ahead: int = 0) -> dict[str, Any]:
    """A random record of a source."""
    late = chooser.choice((0, 0, 0, 1, SECOND, 2 * SECOND, 3 * SECOND, 4 * SECOND, 12 * SECOND, -ahead))
    ts = (at - late) / SECOND
    event = source.event or chooser.choice("AAB")
    cells = {
        "at": at / SECOND,
        "event": event,
        "k": chooser.choice(KEYS),
        "v": chooser.randrange(100),
        "n": number,
        "ts": ts,
    }
    match chooser.randrange(60):
        case 0:
            cells["v"] = "oops"
        case 1 if source.event is None:
            cells["event"] = "Unknown"
        case 2:
            cells["k"] = None
    return cells


def write_next(
    chooser: random.Random, folder: Path, source: Source, longest: int, times: tuple[int, int] | None = None
) -> Path | None:
    """Write the next rows of a source as one file, visible at once; None = all rows are written.

    times: when it was read and written, as of `os.utime`
    """
    written = sum(len(rows) for _, rows in source.files)
    rows = source.rows[written : written + chooser.randint(1, longest)]
    if not rows:
        return None
    stem = chooser.choice(NAMES).format(n=len(source.files))
    name = str(Path(chooser.choice(FOLDERS)) / f"{stem}.{source.format}")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_bytes(_content(source, rows))
    if times is not None:
        os.utime(draft, times)
    draft.replace(path)
    source.files.append((name, rows))
    return path


def _content(source: Source, rows: list[Row]) -> bytes:
    kind, _, packing = source.format.partition(".")
    data = _WRITERS[kind](source, rows)
    if not packing:
        return data
    found = pa.BufferOutputStream()
    with pa.CompressedOutputStream(found, "gzip" if packing == "gz" else "zstd") as packed:
        packed.write(data)
    return found.getvalue().to_pybytes()


def _as_arrow(source: Source, rows: list[Row]) -> bytes:
    found = pa.BufferOutputStream()
    table = _as_table(source, rows)
    with pa.ipc.new_file(found, table.schema) as writer:
        writer.write_table(table)
    return found.getvalue().to_pybytes()


def _as_parquet(source: Source, rows: list[Row]) -> bytes:
    found = pa.BufferOutputStream()
    pa.parquet.write_table(_as_table(source, rows), found)
    return found.getvalue().to_pybytes()


def _as_table(source: Source, rows: list[Row]) -> pa.Table:
    schema = pa.schema([(name, _TYPES[name]) for name in _columns(source)])
    return pa.Table.from_pylist([row.cells for row in rows], schema=schema)


def _columns(source: Source) -> list[str]:
    return ["at", *(["event"] if source.event is None else []), "k", "v", "n", "ts"]


def _as_csv(source: Source, rows: list[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
    writer.writerow(_columns(source))
    for row in rows:
        cells = [row.cells[name] for name in _columns(source)]
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(["" if cell is None else cell for cell in cells])
        # an empty cell is null, a quoted one is empty text
        text.write(line.getvalue() if row.cells["k"] != "" else _with_quotes(source, cells))
    return text.getvalue().encode()


def _with_quotes(source: Source, cells: list[Any]) -> str:
    quoted = ['""' if name == "k" else str(cell) for name, cell in zip(_columns(source), cells, strict=True)]
    return ",".join(quoted) + "\n"


def _as_json(source: Source, rows: list[Row]) -> bytes:
    hidden = set() if source.event is None else {"event"}
    return "".join(
        json.dumps({name: row.cells[name] for name in row.cells if name not in hidden}) + "\n" for row in rows
    ).encode()


_WRITERS = {"csv": _as_csv, "json": _as_json, "parquet": _as_parquet, "arrow": _as_arrow}
_TYPES = {name: pa.float64() for name in ("at", "ts")} | {name: pa.int64() for name in "vn"}
_TYPES |= {name: pa.string() for name in ("event", "k")}
