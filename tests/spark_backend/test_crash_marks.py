"""Records that end the process which reads them: found in child processes, malformed, and never read again."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import querylang
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.reading.formats import json_lines, json_messages
from spark_backend.sources.crash_marks import CrashMarks, Deadly, Part, death_of, living_parts, without_skipped
from spark_backend.sources.deadly_files import without_deadly_lines
from spark_backend.sources.kafka import range_reading
from spark_backend.sources.kafka.consuming import Chunk
from spark_backend.sources.kafka.kafka_source import KafkaSource, TopicChoice
from spark_backend.sources.kafka.offsets import OffsetRange
from spark_backend.sources.kafka.range_reading import RangeReader
from spark_backend.sources.reading import Reading
from spark_backend.wire.clock_sources import ClockSource
from spark_backend.wire.packed_rows import unpack_row
from spark_backend.wire.program import Program

PLAN = querylang.compile_text("event A { integer n; } query Q { inputs { A() retain 1; } find A as a }").plan
PROGRAM = Program.of(PLAN, buckets=1, sources=[ClockSource("s", by_topic=True)])
DEADLY = b"deadly"


@pytest.fixture(autouse=True)
def deadly_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader in C that some text ends."""
    read = json_lines.parse_lines

    def parse(data: bytes) -> object:
        if DEADLY in data:
            os.kill(os.getpid(), signal.SIGSEGV)
        return read(data)

    monkeypatch.setattr(json_messages, "parse_lines", parse)
    row = json_messages.row_of
    monkeypatch.setattr(json_messages, "row_of", lambda line, asked: (parse(line), row(line, asked))[1])


def read(monkeypatch: pytest.MonkeyPatch, marks: CrashMarks, values: Sequence[bytes]) -> dict[int, tuple[int, str]]:
    """By offset: kind and text of the records."""
    offsets = np.arange(10, 10 + len(values))
    monkeypatch.setattr(range_reading, "consumed", lambda *_: [Chunk(offsets, offsets * 1_000_000, list(values))])
    reader = RangeReader(PROGRAM, KafkaSource("s", TopicChoice(("t",)), {}), Reading("A", name="s"), False, marks)
    packed = reader.packed(OffsetRange("s", "t", 0, 3, 10, 10 + len(values)))
    rows = [row for batch in packed for row in batch.column(1).to_pylist()]
    table = Arrivals.concat([part.arrivals for row in rows for part in unpack_row(row, PLAN).records]).table
    return {row["_offset"]: (row["_kind"], row["_text"]) for row in table.to_pylist()}


def test_after_two_deaths_the_record_is_found_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b'{"n": %d}' % number for number in range(50)]
    values[7] = values[31] = b'{"n": 1, "x": "deadly"}'
    marks = CrashMarks(tmp_path / "crashes")
    deaths = [death_of(lambda: read(monkeypatch, marks, values)) for _ in range(2)]
    assert deaths == ["signal 11 (Segmentation fault)"] * 2
    assert [(mark.range, mark.deaths) for mark in marks.marked()] == [("source 's': t/3, offsets 10 to 59", 1)]
    found = read(monkeypatch, marks, values)
    wrong = {offset: text for offset, (kind, text) in found.items() if kind == RecordKind.MALFORMED}
    assert list(found) == list(range(10, 60))
    why = "reading it ends the process with signal 11 (Segmentation fault)"
    assert wrong == {offset: f'offset {offset}: {why}: {{"n": 1, "x": "deadly"}}' for offset in (17, 41)}
    assert marks.marked() == []
    assert read(monkeypatch, marks, values) == found  # what was found is on record


def test_a_reader_that_fails_leaves_no_mark(tmp_path: Path) -> None:
    marks = CrashMarks(tmp_path)
    with pytest.raises(ValueError, match="x"), marks.reading("a"):
        raise ValueError("x")
    assert not list(tmp_path.iterdir())


def test_a_line_of_a_file_is_replaced_and_keeps_its_number(tmp_path: Path) -> None:
    path, marks = tmp_path / "a.jsonl", CrashMarks(tmp_path / "crashes")
    path.write_text('{"n": 1}\n\n{"n": "deadly"}\n{"n": 3}\n')

    def parse(table: str) -> None:
        if DEADLY in Path(table).read_bytes():
            os.kill(os.getpid(), signal.SIGSEGV)

    why = "reading it ends the process with signal 11 (Segmentation fault)"
    for is_suspect in (True, False):
        with without_deadly_lines(str(path), "a.jsonl", marks, parse, is_suspect=is_suspect) as harmless:
            assert Path(harmless).read_text() == f'{{"n": 1}}\n\n"{why}"\n{{"n": 3}}\n'
    assert marks.skipped("a.jsonl") == {2: why}


def test_rows_are_divided_until_what_ends_the_process_is_alone() -> None:
    def attempt(first: int, last: int) -> None:
        if first <= 5 < last:
            os.abort()

    parts = living_parts(8, attempt)
    assert [(part.first, part.last) for part in parts] == [(0, 4), (4, 5), (5, 6), (6, 8)]
    assert [part.problem for part in parts if part.problem] == ["reading it ends the process with signal 6 (Aborted)"]
    assert without_skipped([Part(0, 4)], {1: "x", 9: "y"}) == [Part(0, 1), Part(1, 2, "x"), Part(2, 4)]


def test_skipped_records_are_those_of_a_partition(tmp_path: Path) -> None:
    marks = CrashMarks(tmp_path)
    for source, partition, offset in (("t", 0, 5), ("t", 0, 5), ("t", 1, 6), ("u", 0, 7)):
        marks.skip(Deadly(source, partition, offset, "why"))
    assert marks.skipped("t", 0) == {5: "why"}
    assert CrashMarks().skipped("t", 0) == {}
