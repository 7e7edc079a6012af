"""Records that end the process which reads them: found in child processes, malformed, and never read again."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import querylang
from job_engine.errors import WorkerDied
from job_engine.job.checkpoint.job_folder import failed_tries, skip_records, told_deaths
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.job.prometheus import Metrics
from job_engine.job.reports import Figures
from job_engine.kafka_broker import TopicChoice
from job_engine.local_path import LocalPath
from job_engine.place import RemotePath
from job_engine.sources.crash_marks import (
    CrashMarks,
    Deadly,
    LivingPart,
    death_of,
    living_parts,
    marks_of_run,
    without_skipped,
)
from job_engine.sources.folder.reading import without_deadly_lines
from job_engine.sources.reading import Reading
from job_engine.sources.topics import reading
from job_engine.sources.topics.consuming import Chunk
from job_engine.sources.topics.pieces import OffsetRange
from job_engine.sources.topics.reading import RangeReader
from job_engine.sources.topics.settings import KafkaSource
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.packed_rows import unpack_row
from job_engine.wire.program import Program
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.file_forms import Asked, CsvForm
from runtime.reading.formats import json_files
from runtime.reading.formats.raw_table import RawTable
from runtime.reading.tables import iter_raw
from tests.support.stores import StoreServer

PLAN = querylang.compile_text("event A { integer n; } query Q { inputs { A() retain 1; } find A as a }").plan
PROGRAM = Program.of(PLAN, buckets=1, sources=[ClockSource("s", by_topic=True)])
DEADLY = b"deadly"


@pytest.fixture(autouse=True)
def deadly_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader in C that some text ends."""
    read = json_files.parse_lines

    def parse(data: bytes) -> object:
        if DEADLY in data:
            os.kill(os.getpid(), signal.SIGSEGV)
        return read(data)

    monkeypatch.setattr(json_files, "parse_lines", parse)
    row = json_files.row_of
    monkeypatch.setattr(json_files, "row_of", lambda line, asked: (parse(line), row(line, asked))[1])


def read(monkeypatch: pytest.MonkeyPatch, marks: CrashMarks, values: Sequence[bytes]) -> dict[int, tuple[int, str]]:
    """By offset: kind and text of the records."""
    offsets = np.arange(10, 10 + len(values))
    monkeypatch.setattr(reading, "consumed", lambda *_: [Chunk(offsets, offsets * 1_000_000, list(values))])
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

    def parse(table: Path) -> None:
        if DEADLY in table.read_bytes():
            os.kill(os.getpid(), signal.SIGSEGV)

    why = "reading it ends the process with signal 11 (Segmentation fault)"
    for is_suspect in (True, False):
        with without_deadly_lines(LocalPath.of(path), "a.jsonl", marks, parse, is_suspect=is_suspect) as harmless:
            assert harmless.read_text() == f'{{"n": 1}}\n\n"{why}"\n{{"n": 3}}\n'
    assert marks.skipped("a.jsonl") == {2: why}


@pytest.mark.parametrize(
    ("name", "text", "csv", "line", "rows"),
    [
        ("a.csv", 'n,x\n1,a\n\n2,"de\nadly"\n3,deadly\n4,d\n', CsvForm(), 5, 3),
        ("a.csv", 'n,x\n1,"a\n"\n2,"x\ndeadly\n"\n4,"d"', CsvForm(), 3, 2),
        ("a.tsv", "head\nn\tx\n1\ta\n2\tdeadly\n", CsvForm(skip=1), 3, 1),
        ("a.csv", "1;a\n2;deadly\n3;b\n", CsvForm(delimiter=";", has_header=False), 1, 2),
    ],
)
def test_a_record_of_a_csv_file_is_replaced_and_the_others_keep_their_lines(
    tmp_path: Path, name: str, text: str, csv: CsvForm, line: int, rows: int
) -> None:
    path, marks = tmp_path / name, CrashMarks(tmp_path / "crashes")
    path.write_text(text)
    asked = Asked(max_record=1 << 20, csv=csv)

    def parse(table: Path) -> list[RawTable]:
        if DEADLY in table.read_bytes():
            os.kill(os.getpid(), signal.SIGSEGV)
        return list(iter_raw(table, asked=asked))

    with without_deadly_lines(LocalPath.of(path), name, marks, parse, is_suspect=True, csv=csv) as harmless:
        tables, lines = parse(harmless), harmless.read_text().count("\n")
    why = "reading it ends the process with signal 11 (Segmentation fault)"
    assert (marks.skipped(name), lines) == ({line: why}, text.count("\n"))
    (malformed,) = [item for table in tables for item in table.unreadable]
    assert why in str(malformed)
    assert sum(table.columns.num_rows for table in tables) == rows


def test_rows_are_divided_until_what_ends_the_process_is_alone() -> None:
    def attempt(first: int, last: int) -> None:
        if first <= 5 < last:
            os.abort()

    parts = living_parts(8, attempt)
    assert [(part.first, part.last) for part in parts] == [(0, 4), (4, 5), (5, 6), (6, 8)]
    assert [part.problem for part in parts if part.problem] == ["reading it ends the process with signal 6 (Aborted)"]
    assert without_skipped([LivingPart(0, 4)], {1: "x", 9: "y"}) == [
        LivingPart(0, 1),
        LivingPart(1, 2, "x"),
        LivingPart(2, 4),
    ]


def test_skipped_records_are_those_of_a_partition(tmp_path: Path) -> None:
    marks = CrashMarks(tmp_path)
    for source, partition, offset in (("t", 0, 5), ("t", 0, 5), ("t", 1, 6), ("u", 0, 7)):
        marks.skip(Deadly(source, partition, offset, "why"))
    assert marks.skipped("t", 0) == {5: "why"}
    assert CrashMarks().skipped("t", 0) == {}


def test_in_a_store_nothing_is_marked_until_a_worker_has_died(store: StoreServer) -> None:
    checkpoint = RemotePath("s3://bucket", "state")
    skip_records(checkpoint, ["t/0/5"], has_log=True)
    first = marks_of_run(checkpoint)
    assert (first.folder, first.skipped("t")) == (None, {5: "left out by --skip"})
    marks = marks_of_run(checkpoint, had_deaths=True)
    assert CrashMarks.of_text(marks.to_text()) == marks
    with marks.reading("t/0") as is_suspect:
        (mark,) = (key for key in store.keys("state/") if "/reading-" in key)
        assert not is_suspect
    store.put(mark, '{"range": "t/0", "deaths": 0}')  # a reader that dies removes nothing
    assert [mark.range for mark in marks.marked()] == ["t/0"]
    with marks.reading("t/0") as is_suspect:
        assert is_suspect
    marks.skip(Deadly("t", 0, 9, "why"))
    assert marks.marked() == []
    assert marks_of_run(checkpoint).skipped("t") == {5: "left out by --skip", 9: "why"}
    assert len(store.keys("state/ensue/crashes/")) == 2


def test_tries_of_the_micro_batch_that_is_open_are_counted(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    (tmp_path / "offsets" / "5").write_text("")
    lines = []
    for _ in range(6):
        with pytest.raises(WorkerDied) as died, told_deaths(tmp_path):
            raise WorkerDied("a Python process of Spark ended with signal 11")
        lines.append(str(died.value).partition(" (")[2])
    assert [line.partition(")")[0] for line in lines] == [
        f"micro-batch 5, {word} try" for word in ("first", "second", "third", "fourth", "fifth", "6th")
    ]
    figures = Figures((), (), {}, JobProgress(), {})
    metrics = Metrics("numbers", figures, tuple, lambda: failed_tries(tmp_path))
    assert b"\nensue_micro_batch_failed_tries 6.0\n" in metrics.text()
    (tmp_path / "commits" / "5").write_text("")
    assert failed_tries(tmp_path) == 0
    (tmp_path / "offsets" / "6").write_text("")
    assert failed_tries(tmp_path) == 0


def test_a_death_is_said_where_its_number_cannot_be_written(tmp_path: Path) -> None:
    for name in ("offsets", "commits", "ensue"):
        (tmp_path / name).mkdir()
    (tmp_path / "offsets" / "5").write_text("")
    (tmp_path / "ensue" / "crashes").write_text("this is no folder")
    said = r"^died\. What it read is not known \(.*crashes.*\)\. Run the job again"
    with pytest.raises(WorkerDied, match=said), told_deaths(tmp_path):
        raise WorkerDied("died")
