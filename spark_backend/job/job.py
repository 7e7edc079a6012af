"""A deployment at work: from the file to a running Spark query, and back to accounts and errors in plain words.

Takes the path of a deployment file; gives a handle (`deploy`) or runs until what is there has been taken (`run`).
Exactly once and restartable: Spark's checkpoint holds offsets and state, the sinks' files, the ledger and the progress are
written by micro-batch number, and the record beside the checkpoint refuses to go on with something else.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from querylang.errors import InputError
from querylang.plan.model import Plan, QueryPlan
from runtime.policies.per_input import is_clocked
from spark_backend.errors import plain_error
from spark_backend.frames.streaming import tagged_stream
from spark_backend.job.atomic_files import Accounts, AtWork, BatchFiles, Ledger, write_atomically
from spark_backend.job.checkpoint_record import (
    Record,
    Schemas,
    all_sources,
    read_record,
    refuse_difference,
    write_record,
)
from spark_backend.job.compilation import compile_deployment
from spark_backend.job.progress import JobProgress
from spark_backend.job.settings import Deployment, Source, load_deployment
from spark_backend.job.status import OWN, Status, accounts, progress_files, read_status
from spark_backend.job.yaml_document import listed, near
from spark_backend.session import own_session
from spark_backend.sinks.files import FileFormat, FileSink, Written, remove_leftovers, write_batch
from spark_backend.sources.files import file_stream, packed_files, packed_signals
from spark_backend.sources.reading import Reading
from spark_backend.stopping import StopRequest
from spark_backend.wire.packed_rows import Call
from spark_backend.wire.partition_groups import shared_order
from spark_backend.wire.program import Program
from spark_backend.wire.tagged_rows import Tag, read_table

PATTERNS = {"parquet": "*.parquet", "csv": "*.csv", "json": "*.{json,jsonl,ndjson}"}
"""The names of the files that a source of each format reads, unless its options say otherwise."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one micro-batch did. `records`: taken from sources; `matches` by query's title."""

    batch: int
    records: int
    matches: Mapping[str, int]
    outputs: int
    errors: int
    discarded: int
    state_bytes: int
    seconds: float


Progress = Callable[[BatchReport], None]


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did; `ledger`: the checkpoint's accounts since its beginning.

    `stopped_by`: the number of the signal that ended it. `idle`: the queries without an instance, for parameters that
    have no value.
    """

    batches: int
    records: int
    matches: Mapping[str, int]
    discarded: int
    seconds: float
    ledger: Ledger
    stopped_by: int | None = None
    idle: tuple[QueryPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class _Job:
    """All that is needed to start the query, as often as one likes."""

    deployment: Deployment
    program: Program
    record: Record
    session: SparkSession
    idle: tuple[QueryPlan, ...]

    @property
    def own_folder(self) -> Path:
        """Where Ensue keeps things inside the checkpoint."""
        return self.deployment.checkpoint / OWN

    @property
    def signals(self) -> Path:
        """The folder of signal files: an internal source, read like any other."""
        return self.own_folder / "signals"

    @property
    def accounts(self) -> Accounts:
        return accounts(self.own_folder)

    @property
    def progress(self) -> BatchFiles:
        return progress_files(self.own_folder)

    @property
    def held(self) -> int:
        """Records that were read, and wait for slower sources."""
        found = self.progress.latest()
        return 0 if found is None else JobProgress.from_plain(found[1]["progress"]).held

    @property
    def sinks(self) -> dict[str, FileSink]:
        return {
            name: FileSink(FileFormat(sink.format), str(sink.path.resolve()))
            for name, sink in self.deployment.sinks.items()
        }

    def signal(self, call: Call) -> None:
        """Call every bucket, once."""
        number = sum(1 for _ in self.signals.iterdir())
        write_atomically(self.signals / f"{number:08d}-{call}", call)  # Spark passes over empty files


class Handle:
    """A running deployment."""

    def __init__(self, job: _Job, query: StreamingQuery, at_work: AtWork) -> None:
        self._job = job
        self._query = query
        self._at_work = at_work

    def await_termination(self, seconds: float | None = None) -> bool:
        """Wait for the end; whether it has come. Raises what ended it, in plain words where they are known."""
        try:
            ended = self._query.awaitTermination(None if seconds is None else max(1, round(seconds)))
        except StreamingQueryException as error:
            self._at_work.end()
            raise plain_error(error) from error
        if ended is not False:
            self._at_work.end()
        return ended is not False

    def stop(self) -> None:
        """Stop after what is being written; the next run goes on from there."""
        self._query.stop()
        self._at_work.end()

    def status(self) -> Status:
        """What runs, how far it has come, and what it has taken so far."""
        message = str(self._query.status["message"])
        return read_status(self._job.deployment, message, is_active=self._query.isActive)


def deploy(path: Path | str, progress: Progress | None = None) -> Handle:
    """Start a deployment; it runs until it is stopped. Raises InputError or QueryErrors before anything starts."""
    job = _prepare(path)
    return _start(job, progress or _ignore, is_bounded=False)


def run(path: Path | str, *, once: bool = False, flush: bool = False, progress: Progress | None = None) -> RunReport:
    """Run a deployment here and now: for ever, or with `once` until what is there has been taken.

    `flush` then lets time go on until nothing is due. Ctrl-C or SIGTERM ends it. A run that was interrupted goes on
    where it stopped.
    """
    if flush and not once:
        raise InputError("time can only run out where input ends: --flush needs --once")
    job = _prepare(path)
    reports: list[BatchReport] = []

    def report(batch: BatchReport) -> None:
        reports.append(batch)
        (progress or _ignore)(batch)

    started = time.monotonic()
    with StopRequest() as stop:
        _await(_start(job, report, is_bounded=once), stop)
        if once and (flush or job.held) and not stop.has_come:
            job.signal(Call.FLUSH if flush else Call.CATCH_UP)
            _await(_start(job, report, is_bounded=True), stop)
    matches: dict[str, int] = {query.title: 0 for query in job.program.plan().queries}
    for batch in reports:
        for query, count in batch.matches.items():
            matches[query] += count
    return RunReport(
        batches=len(reports),
        records=sum(batch.records for batch in reports),
        matches=matches,
        discarded=sum(batch.discarded for batch in reports),
        seconds=time.monotonic() - started,
        ledger=job.accounts.total(),
        stopped_by=stop.signal,
        idle=job.idle,
    )


def _ignore(_: BatchReport) -> None:
    pass


def _await(handle: Handle, stop: StopRequest) -> None:
    try:
        while not stop.has_come and not handle.await_termination(1):
            pass
        if stop.has_come:
            handle.stop()
    except Exception:
        if not stop.has_come:  # who stops a whole group of processes has stopped the JVM too
            raise


def _prepare(path: Path | str) -> _Job:
    """Everything that can be refused is refused here, before Spark starts."""
    deployment = load_deployment(path)
    for source in deployment.sources:
        _refuse_folder_without_files(source)
    for folder in (deployment.checkpoint, *(sink.path for sink in deployment.sinks.values())):
        _refuse_unwritable(folder)
    kept = read_record(deployment.checkpoint)
    compiled = compile_deployment(deployment, None if kept is None else kept.types())
    _refuse_unknown_events(deployment, compiled.plan)
    program = Program.of(compiled.plan, buckets=deployment.buckets, clock=deployment.clock, idle=deployment.idle)
    record = _settled(deployment, program, compiled.schemas, kept)
    job = _Job(deployment, program, record, own_session(f"ensue {deployment.name}"), compiled.idle)
    job.signals.mkdir(parents=True, exist_ok=True)
    _tell_parallelism(compiled.plan)
    if deployment.control is not None:
        deployment.control.path.mkdir(parents=True, exist_ok=True)
    return job


def _tell_parallelism(plan: Plan) -> None:
    """Once at the start: which queries more buckets and cores do not help."""
    for query in plan.queries:
        order = shared_order(query)
        if order is not None:
            logging.getLogger("ensue").warning("query %s: %s, runs as one task", query.title, order)


def _settled(deployment: Deployment, program: Program, schemas: Schemas, kept: Record | None) -> Record:
    wanted = Record.of(deployment, program, schemas)
    if kept is not None:
        refuse_difference(deployment.checkpoint, kept, wanted)
        return kept
    write_record(deployment.checkpoint, wanted)
    return wanted


def _refuse_unwritable(folder: Path) -> None:
    """Whatever is there, or else the nearest folder above it, must be a folder that can be written to."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        raise InputError(f"{folder}: cannot be written: '{there.name}' is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: cannot be written: no permission to write to '{there}'")


def _refuse_unknown_events(deployment: Deployment, plan: Plan) -> None:
    known = [event.name for event in plan.events]
    for source in deployment.sources:
        if source.event is not None and source.event not in known:
            raise InputError(
                f"{deployment.file}: the source '{source.name}' brings '{source.event}', which is no event of the"
                f" queries{near(source.event, known) or f'; they know {listed(known)}'}"
            )


def _refuse_folder_without_files(source: Source) -> None:
    """A folder full of files of another format would give nothing, without a word."""
    names = [path.name for path in source.path.iterdir() if path.is_file() and path.name[0] not in "._"]
    suffixes = PATTERNS[source.format].removeprefix("*.").strip("{}").split(",")
    if names and "pathGlobFilter" not in source.options and not any(n.endswith(tuple(suffixes)) for n in names):
        raise InputError(
            f"{source.path}: no file of the source '{source.name}' ends in .{' or .'.join(suffixes)};"
            f" '{min(names)}' is there"
        )


def _start(job: _Job, report: Progress, *, is_bounded: bool) -> Handle:
    session, program = job.session, job.program
    if is_bounded:
        program = replace(program, idle=None)  # what is there is taken: the wall clock says nothing about it
    # Without this a bounded run never ends: with a timeout Spark always sees one more empty batch to run.
    goes_on = program.needs_timeouts and not is_bounded
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(goes_on).lower())
    if goes_on:
        job.signal(Call.START)  # no timeout fires before a bucket has been called once
    tagged = tagged_stream(_packed(job, program), program)
    writer = tagged.writeStream.queryName(job.deployment.name).outputMode("append")
    writer = writer.option("checkpointLocation", str(job.deployment.checkpoint.resolve()))
    if is_bounded:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{job.deployment.trigger // 1000} milliseconds")
    at_work = AtWork(job.own_folder)
    at_work.begin()
    return Handle(job, writer.foreachBatch(_BatchWriter(job, report, program.idle).write).start(), at_work)


def _packed(job: _Job, program: Program) -> DataFrame:
    """All sources in their order for good: by name, control, signals."""
    frames = []
    prefixes = prefixes_of(job.deployment.sources, program.plan())
    for place, source in enumerate(all_sources(job.deployment)):
        options = {"pathGlobFilter": PATTERNS[source.format]} | dict(source.options)
        paths = file_stream(job.session, source.path.resolve(), options)
        root = str(source.path.resolve())
        is_control = source is job.deployment.control
        reading = Reading(
            source.event,
            source.type_field,
            source.source_time,
            source.arrival,
            root=root,
            prefix=prefixes.get(source.name, ""),
            name=source.name,
            place=place,
            is_control=is_control,
        )
        frames.append(packed_files(paths, program, reading))
    frames.append(packed_signals(file_stream(job.session, job.signals.resolve(), {}), program))
    union = frames[0]
    for frame in frames[1:]:
        union = union.union(frame)
    return union


def prefixes_of(sources: Sequence[Source], plan: Plan) -> dict[str, str]:
    """What stands before the names of a source's files: its own name, where several sources may bring the same type.

    Otherwise two records of that type, in files of one name, would be the same record to whoever looks at a match. It
    stands there too where records are put in order source by source: files of one source have one clock.
    """
    events = {source.event for source in sources}
    are_apart = len(sources) == 1 or (None not in events and len(events) == len(sources))
    are_apart &= not any(is_clocked(item) for query in plan.queries for item in query.inputs)
    return {source.name: "" if are_apart else f"{source.name}/" for source in sources}


@dataclass(slots=True)
class _BatchWriter:
    """Writes micro-batches: sinks, then accounts and progress, then the report. `idle`: as the run has it."""

    job: _Job
    report: Progress
    idle: int | None
    is_first: bool = field(default=True)

    def write(self, tagged: DataFrame, batch: int) -> None:
        """For `foreachBatch`; may be called again with the same micro-batch after a crash."""
        started = time.monotonic()
        sinks, identity = self.job.sinks, self.job.record.identity
        written = write_batch(tagged, self.job.program.to_text(), sinks, identity, batch)
        if self.is_first:
            remove_leftovers(sinks, identity, batch, written)
            self.is_first = False
        changes = ledger_changes(written)
        self.job.accounts.add(batch, changes)
        told = batch_report(self.job.program, batch, written, changes, time.monotonic() - started)
        self._note_progress(batch, written, told)
        self.report(told)

    def _note_progress(self, batch: int, written: list[Written], told: BatchReport) -> None:
        before = self.job.progress.latest(before=batch)
        come = JobProgress.from_plain(None if before is None else before[1]["progress"])
        come = come.after(tables(written), idle=self.idle, records=told.records, matches=sum(told.matches.values()))
        queries = {query.title: shared_order(query) for query in self.job.program.plan().queries}
        self.job.progress.write(batch, {"queries": queries, "progress": come.to_plain()})


def tables(written: list[Written]) -> list[tuple[Tag, pa.Table]]:
    """What the driver was given itself, with what it is."""
    return [(row.tag, read_table(row.data)) for row in written if row.data is not None]


def ledger_changes(written: list[Written]) -> Ledger:
    """The accounts of one micro-batch."""
    changes: Ledger = {}
    for table in (table for tag, table in tables(written) if tag is Tag.LEDGER):
        for row in table.to_pylist():
            key = (row["query"], row["source"], row["what"])
            changes[key] = changes.get(key, 0) + row["count"]
    return changes


def batch_report(program: Program, batch: int, written: list[Written], changes: Ledger, seconds: float) -> BatchReport:
    """Counts of one micro-batch."""
    matches: dict[str, int] = {}
    for row in written:
        if row.tag is Tag.MATCH:
            matches[row.query] = matches.get(row.query, 0) + row.rows
    first = program.plan().queries[0].title  # every query receives every record
    metrics = [table for tag, table in tables(written) if tag is Tag.METRIC]
    return BatchReport(
        batch=batch,
        records=sum(count for (query, _, what), count in changes.items() if query == first and what == "received"),
        matches=matches,
        outputs=_rows(written, Tag.OUTPUT),
        errors=_rows(written, Tag.ERROR),
        discarded=_rows(written, Tag.DISCARDED),
        state_bytes=sum(sum(table.column("state_bytes").to_pylist()) for table in metrics),
        seconds=seconds,
    )


def _rows(written: list[Written], tag: Tag) -> int:
    return sum(row.rows for row in written if row.tag is tag)
