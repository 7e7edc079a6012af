"""Files in which something ends the process that reads them: without it, or refused as a whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from job_engine.places.local_path import LocalPath, temporary_folder
from job_engine.sources.crash_marks import WHOLE, CrashMarks, Deadly, death_of, living_parts
from querylang.errors import InputError
from runtime.reading.formats.csv_form import USUAL_CSV, CsvForm
from runtime.reading.formats.csv_records import COMMA, whole_records

_LINES = (".json", ".jsonl", ".ndjson")
"""Whose lines are records."""

_TABLES = (".csv", ".tsv")
"""Whose records are below the names of their columns, and may have line ends in quotes."""

_WIDE = ("utf-16", "utf-32", "utf16", "utf32", "u16", "u32")
"""Encodings, as they begin, in which a line end is not one byte."""


@contextmanager
def without_deadly_lines(
    path: LocalPath,
    name: str,
    marks: CrashMarks,
    read: Callable[[LocalPath], object],
    *,
    is_suspect: bool,
    csv: CsvForm = USUAL_CSV,
) -> Iterator[LocalPath]:
    """A path of the same table, with a line that is malformed in place of one that ends a process.

    name: of the file in its records
    read: reads a table of this path
    is_suspect: whether readers have died on it
    csv: how CSV files are written

    Raises InputError for a file that ends the process, and no line of it alone.
    """
    skipped = marks.skipped(name)
    if WHOLE in skipped:
        raise InputError(f"{name}: {skipped[WHOLE]}")
    if not skipped and not (is_suspect and (death := death_of(lambda: read(path)))):
        yield path
        return
    with temporary_folder() as folder:
        copy, records = folder / path.name, _records(path, csv)
        if not skipped:
            skipped = {} if records is None else _deadly_lines(records, copy, read)
            if records is not None and skipped:
                copy.write_bytes(records.without(skipped))
            if not skipped or death_of(lambda: read(copy)):
                skipped = {WHOLE: f"reading it ends the process with {death}"}
            for offset, reason in skipped.items():
                marks.skip(Deadly(name, 0, offset, reason))
        if WHOLE in skipped or records is None:
            raise InputError(f"{name}: {skipped.get(WHOLE) or next(iter(skipped.values()))}")
        copy.write_bytes(records.without(skipped))
        yield copy


@dataclass(frozen=True, slots=True)
class _Records:
    """The records of a file that has one after the other.

    head: bytes before the first of them, such as names of columns
    starts, ends: of each, with its line end
    lines: the number of its first line, from 0
    cells: how many cells a record has at most; 0 = it is a line of JSON
    delimiter: between cells
    """

    data: bytes
    head: int
    starts: Sequence[int]
    ends: Sequence[int]
    lines: Sequence[int]
    cells: int = 0
    delimiter: str = COMMA

    def part(self, first: int, last: int) -> bytes:
        """A file that has only records from a first up to a last one."""
        return self.data[: self.head] + self.data[self.starts[first] : self.ends[last - 1]]

    def without(self, skipped: Mapping[int, str]) -> bytes:
        """The content with what is not a record in place of some, by line: all keep their lines."""
        found, at = [], 0
        for start, end, line in zip(self.starts, self.ends, self.lines, strict=True):
            if line in skipped:
                ends = self.data.count(b"\n", start, end)
                found += [self.data[at:start], self._malformed(skipped[line], ends)]
                at = end
        return b"".join([*found, self.data[at:]])

    def _malformed(self, reason: str, ends: int) -> bytes:
        text = f'"{reason}"{self.delimiter * self.cells}' if self.cells else json.dumps(reason)
        return text.encode() + b"\n" * ends  # lines behind the first one are blank


def _records(path: Path, form: CsvForm) -> _Records | None:
    """The records of a file; None = they cannot be told apart without reading it."""
    data = path.read_bytes()
    if path.suffix in _LINES:
        ends = [found.end() for found in re.finditer(rb"\n", data)]
        ends += [len(data)] if not ends or ends[-1] < len(data) else []
        return _Records(data, 0, [0, *ends[:-1]], ends, range(len(ends)))
    if path.suffix not in _TABLES or form.escape is not None or form.encoding.lower().startswith(_WIDE):
        return None
    begin = 0
    for _ in range(form.skip):
        begin = data.find(b"\n", begin) + 1 or len(data)
    found = whole_records(data[begin:], is_end=True)
    if len(found) < 2:
        return None
    delimiter = form.delimiter or ("\t" if path.suffix == ".tsv" else COMMA)
    # the first record tells how many columns there are, whether it has their names or not
    cells = found.raw(0).count(delimiter.encode()) + 1
    starts, ends = ((places[1:] + begin).tolist() for places in (found.starts, found.ends))
    lines = [form.skip + found.line(index) for index in range(1, len(found))]
    return _Records(data, starts[0], starts, ends, lines, cells, delimiter)


def _deadly_lines(records: _Records, copy: LocalPath, read: Callable[[LocalPath], object]) -> dict[int, str]:
    """By number of a line, from 0: why its record cannot be read."""

    def attempt(first: int, last: int) -> None:
        copy.write_bytes(records.part(first, last))
        read(copy)

    parts = living_parts(len(records.starts), attempt) if len(records.starts) else []
    return {records.lines[part.first]: part.problem for part in parts if part.problem is not None}
