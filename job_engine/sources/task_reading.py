"""Read what a task has to on a worker: exactly what the manifest says, as packed rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

import pyarrow as pa

from job_engine.errors import failed
from job_engine.sources.crash_marks import CRASHES, NO_MARKS, CrashMarks
from job_engine.sources.kinds import TaskRun, reading_of
from job_engine.sources.listing.command_folder import EVENT, Command
from job_engine.sources.listing.manifests import SOURCES, Task, ToldSource, sources_of_text
from job_engine.sources.reading import Reading, shown
from job_engine.sources.source import Unread
from job_engine.wire import packed_rows
from job_engine.wire.program import Program, load_program
from job_engine.wire.reports import Report, UnreadFiles
from querylang.plan.model import Plan
from querylang.system_errors import reason_of
from runtime.columns.arrivals import Arrivals, RecordKind, arrivals_schema, place_of
from runtime.instants import EARLIEST
from runtime.json_reader import json_of_text

# Commands as packed rows: their control events as records, and all of them as plain data.


def packed_commands(commands: Sequence[Command], program: Program, rank: int) -> Iterator[pa.RecordBatch]:
    """The packed rows of commands, for every bucket.

    rank: number of all sources: commands come behind their records
    """
    yield packed_rows.pack_commands(program.buckets, [command.to_plain() for command in commands])
    events = [command for command in commands if command.kind == EVENT]
    if events:
        arrivals = control_records(events, program.plan(), rank)
        yield packed_rows.pack_arrivals(
            arrivals,
            program.groups(),
            program.buckets,
            source=packed_rows.COMMANDS,
            rank=rank,
            is_control=True,
        )


def control_records(commands: Sequence[Command], plan: Plan, rank: int = 0) -> Arrivals:
    """Control events as records.

    They arrive at `at`, or else at EARLIEST: the operator knows how far sources have been read.
    """
    schema = arrivals_schema(plan)
    count = len(commands)
    arrival = [EARLIEST if command.at is None else command.at for command in commands]
    own = {
        "_kind": pa.repeat(pa.scalar(int(RecordKind.CONTROL), pa.int16()), count),
        "_arrival": arrival,
        "_source": pa.array([packed_rows.COMMANDS] * count).dictionary_encode(),
        "_partition": [0] * count,
        "_offset": [command.number for command in commands],
        "_source_time": arrival,
        "_text": [command.text for command in commands],
        "_place": [place_of(rank)] * count,
    }
    columns = {field.name: own.get(field.name, pa.nulls(count, field.type)) for field in schema}
    return Arrivals(pa.table(columns, schema=schema))


def read_task(options: Mapping[str, str], text: str, taken: Sequence[bytes] = ()) -> Iterator[pa.RecordBatch]:
    """The packed rows of a task; raises InputError for what is lost or has changed.

    options: as of `reading_options`
    text: a `Task`
    taken: as in `TaskRun`
    """
    sources, readings = _sources(options[SOURCES]), _readings(options["readings"])
    program = load_program(options["program"])
    task = Task.of_text(text, sources)
    if task.signal is not None:
        yield packed_rows.pack_signal(program.buckets, packed_rows.Signal(task.signal))
    if task.reports:
        yield packed_rows.pack_reports(
            [Report(cause, source, count, shown(example)) for cause, source, count, example in task.reports]
        )
    if task.commands:
        yield from packed_commands(task.commands, program, len(readings))
    marks = CrashMarks.of_text(options[CRASHES]) if CRASHES in options else NO_MARKS
    accepts_loss = options["accept_loss"] == "true"

    def run_of(source: str) -> TaskRun:
        return TaskRun(program, readings[source], marks, taken, accepts_loss=accepts_loss, is_repeated=task.is_repeated)

    for name, news in task.news.items():
        yield from reading_of(sources[name].format).news(sources[name].own, news, run_of(name))
    if task.unread:
        yield packed_rows.pack_unread(program.buckets, unread_of(task.unread, readings))
    for name, work in task.work.items():
        with _stopped_by_stores():
            yield from reading_of(sources[name].format).packed(sources[name].own, work, run_of(name))


@lru_cache(maxsize=8)
def _sources(text: str) -> dict[str, ToldSource]:
    """Parsed once per run, not per task."""
    return sources_of_text(text)


@lru_cache(maxsize=8)
def _readings(text: str) -> dict[str, Reading]:
    """Parsed once per run, not per task."""
    return {name: Reading.of_text(reading) for name, reading in json_of_text(text, dict[str, str]).items()}


def unread_of(left: Mapping[str, Unread | None], readings: Mapping[str, Reading]) -> Mapping[str, UnreadFiles | None]:
    """What is left of listed files, as clocks know it."""

    def known(source: str, item: Unread) -> UnreadFiles:
        return UnreadFiles(source, item.first, place_of(readings[source].rank, item.number), shown(item.path))

    return {source: None if item is None else known(source, item) for source, item in left.items()}


def labelled(packed: Iterator[pa.RecordBatch], program: str) -> Iterator[pa.RecordBatch]:
    """Packed rows with the labels of their buckets."""
    labels = pa.array(load_program(program).labels, pa.int32())
    for batch in packed:
        yield batch.set_column(0, batch.schema.field(0), labels.take(batch.column(0)))


@contextmanager
def _stopped_by_stores() -> Iterator[None]:
    """Stop the job where a store fails or refuses access: that says nothing about the file."""
    try:
        yield
    except OSError as error:
        if "://" not in str(error.filename):
            raise
        raise failed(error, f"{error.filename}: {reason_of(error)}") from error
