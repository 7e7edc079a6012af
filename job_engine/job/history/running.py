"""Run queries over what a job has read, without its driver, until they are where the job is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from job_engine.clock import monotonic, wall_ns
from job_engine.deployment import Deployment
from job_engine.durable_files import sync_seen
from job_engine.errors import LostInput, in_plain_words
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.job_folder import JobFolder, Reached
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.job.commands import Sent, moment_of, send_command
from job_engine.job.compilation import compiled_as_kept, source_readings, told_sources
from job_engine.job.history.read_again import (
    WITH_A_GAP,
    GapMeanwhile,
    HistoryMark,
    TableEnd,
    histories,
    mark_of,
    new_folder,
    pieces_between,
    read_mark,
    write_mark,
)
from job_engine.job.history.table_run import limits_of, met_sources, run_over_table
from job_engine.job.journal import HistoryCommand, Journal, moment_of_change
from job_engine.job.lookup_files import refuse_unknown_tables, with_kept_tables
from job_engine.job.written_journal import history_text, how_taken, reached_journal
from job_engine.operator.clocks import JobClock, SourceWatermark
from job_engine.operator.history_run import OTHER_QUERIES, HistoryRun, SeenRun
from job_engine.place import Place
from job_engine.sources.crash_marks import CRASHES, marks_of_run
from job_engine.sources.kinds import kind_of
from job_engine.sources.listing.batch_log import batches_of
from job_engine.sources.listing.command_folder import CHANGE
from job_engine.sources.listing.manifests import ReadList, Task, reading_options, what_was_read
from job_engine.sources.source import PieceAgain
from job_engine.sources.task_reading import read_task
from job_engine.wire.clock_sources import Clock
from job_engine.wire.packed_rows import Signal, pack_progress
from job_engine.wire.program import Program
from job_engine.wire.reports import SourceProgress
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError
from querylang.plan.model import Plan
from querylang.plan.routing import feeders
from runtime.instants import EXPECTED, NEVER, NO_TIME, parse_moment
from runtime.timestamps import format_time


@dataclass(frozen=True, slots=True)
class HistoryProgram:
    """What runs over the history.

    program: the queries that are deployed, and those that feed them
    titles: of those that are deployed
    """

    program: Program
    titles: tuple[str, ...]

    @staticmethod
    def of(journal: Journal, program: Program) -> HistoryProgram:
        """What runs for the last change of a journal; program: what the files say."""
        history = journal.epochs[-1].history
        assert history is not None, "its last change has one"
        every = journal.plan.queries
        names = {query.name for query in every if query.title in history.titles}
        feeding = feeders(every, names)
        queries = tuple(query for query in every if query.title in history.titles or query.name in feeding)
        own = Program.of(
            Plan(journal.plan.events, queries),
            buckets=program.buckets,
            clock=program.clock,
            sources=program.sources,
        )
        own = replace(own, gathered=journal.gathered or (), tables=program.tables, crosses=program.crosses)
        return HistoryProgram(own.without_idle(), history.titles)


_Run = HistoryRun | SeenRun

Begun = tuple[HistoryRun, HistoryMark]
"""A history, and how far it is."""


@dataclass(frozen=True, slots=True)
class HistoryReading:
    """How a history reads the sources of a job.

    deployment: of the job
    program: of `HistoryProgram`
    titles: of the queries that are deployed
    command: says what is left out, and whether something may be missing
    """

    deployment: Deployment
    program: Program
    titles: tuple[str, ...]
    command: HistoryCommand

    @property
    def events(self) -> tuple[str, ...]:
        """The names of the event types."""
        return tuple(event.name for event in self.program.plan().events)

    def begin(self, run: HistoryRun | None = None, table_ends: int | None = None) -> Begun:
        """Read all that the job has read until now.

        run: where it begins, behind a history table; None = at the beginning
        table_ends: the arrival, µs, up to which that table counts; None = there is none

        Raises InputError if something cannot be read.
        """
        run, read = run or HistoryRun(self.program, self.titles), what_was_read(self.deployment.checkpoint)
        self._announce(run)
        self._take(run, None, read, None if table_ends is None else self._table_end(table_ends))
        return run, mark_of(self.deployment, read, self.titles, self.events)

    def _table_end(self, last: int) -> TableEnd:
        table, sources = self.deployment.history, tuple(met_sources(self.program))
        topics = frozenset(item.name for item in self.deployment.sources if kind_of(item.format).is_log)
        telling = tuple(replace(item, ahead=NEVER) for item in self.program.sources)
        command = replace(self.command, since=None, accepts_gap=True)
        reading = replace(self, program=replace(self.program, sources=telling), command=command)
        of = None if table is None else table.source
        return TableEnd(last, sources, of, topics, reading.program, lambda piece: reading.packed([piece]))

    def go_on(self, run: HistoryRun, mark: HistoryMark) -> tuple[HistoryMark, int]:
        """Read what the job has read since then; how many steps that took."""
        read = what_was_read(self.deployment.checkpoint)
        self._announce(run)
        return mark_of(self.deployment, read, self.titles, self.events), self._take(run, mark, read)

    def finish(self, clock: JobClock, target: Place) -> None:
        """From what the command has left, write to a folder what it is where the job is now.

        clock: of the job, which does nothing meanwhile

        Raises InputError if that cannot be.
        """
        folder = histories(self.deployment.checkpoint) / self.command.folder
        mark, read = read_mark(folder), what_was_read(self.deployment.checkpoint)
        if mark.titles != self.titles or mark.events != self.events:
            raise InputError(OTHER_QUERIES)
        run = HistoryRun.read(self.program, self.titles, str(folder))
        self._announce(run)
        self._take(run, mark, read)
        self._reach(run, clock, read)
        run.write(target)

    def show(self, run: SeenRun, clock: JobClock) -> bool:
        """Read all that the job has read until now; whether time has advanced to its end then.

        Raises InputError if something cannot be read any more.
        """
        read = what_was_read(self.deployment.checkpoint)
        self._announce(run)
        self._take(run, None, read, way_out="Ask files that are there: `ensue why QUERY FILES`")
        return self._reach(run, clock, read) is Signal.FLUSH

    def _reach(self, run: _Run, clock: JobClock, read: ReadList) -> Signal | None:
        """Bring time to where it is in the job."""
        reached = [_progress(item.source, item.partition, item.arrival) for item in _known(clock)]
        signal = next((item for item in (Signal.CATCH_UP, Signal.FLUSH) if item == read.last_signal), None)
        run.step([pack_progress(self.program.buckets, reached)], _now(), signal)
        return signal

    def _announce(self, run: _Run) -> None:
        """Tell which partitions there are: time waits for those, too, that have brought nothing.

        What was read is asked before: the job knows all partitions then that had a part in its
        time, and the history does not get ahead of it.
        """
        clock = JobFolder(self.deployment.checkpoint).last_progress().clock
        known = [_progress(item.source, item.partition, NO_TIME) for item in _known(clock)]
        run.step([pack_progress(self.program.buckets, known)], _now())

    def _take(
        self,
        run: _Run,
        before: HistoryMark | None,
        read: ReadList,
        table: TableEnd | None = None,
        way_out: str = WITH_A_GAP,
    ) -> int:
        accepts_gap = self.command.accepts_gap
        has_clock = self.program.clock is not Clock.PROCESSING
        options = self._options()
        steps = pieces_between(
            self.deployment,
            before,
            read,
            self.command.since,
            accepts_gap=accepts_gap,
            table=table,
            firsts=options if has_clock else None,
            way_out=way_out,
        )
        for step in steps:
            run.step(_packed(step, options, way_out), _now())
        return len(steps)

    def packed(self, step: Sequence[PieceAgain]) -> Iterator[pa.RecordBatch]:
        """The packed rows of pieces."""
        return _packed(step, self._options())

    def _options(self) -> Mapping[str, str]:
        deployment = self.deployment
        record = read_record(deployment.checkpoint)
        readings = {
            name: replace(reading, since=self.command.since)
            for name, reading in source_readings(deployment, () if record is None else record.schemas).items()
        }
        told, accepts_gap = told_sources(deployment), self.command.accepts_gap
        options = reading_options(told, readings, self.program, accepts_loss=accepts_gap)
        return options | {CRASHES: marks_of_run(deployment.checkpoint).to_text()}


def _packed(
    step: Sequence[PieceAgain], options: Mapping[str, str], way_out: str = WITH_A_GAP
) -> Iterator[pa.RecordBatch]:
    for piece in step:
        task = Task({piece.source: piece.work}, is_repeated=True, unread=piece.unread)
        try:
            yield from read_task(options, task.to_text())
        except LostInput as lost:
            raise GapMeanwhile([lost.what], way_out) from lost


def write_history(folder: Place, run: HistoryRun, mark: HistoryMark) -> None:
    """Write down what a history has left so far."""
    run.write(folder)
    write_mark(folder, mark)


def _known(clock: JobClock) -> list[SourceWatermark]:
    return [item for item in clock.sources if item.partition is not None]


def _progress(source: str, partition: int | None, arrival: int) -> SourceProgress:
    return SourceProgress(source, partition, arrival)


def _now() -> int:
    return wall_ns() // 1_000_000


# Deploy queries with history: run them over what the job has read, beside it, then send them.

START = "start"
"""In place of a time: all that the job has read."""

SOON = 2.0
"""Seconds of reading that the job may wait for."""

MOST_ROUNDS = 10

MOST_TRIES = 3


def send_with_history(
    deployment: Deployment,
    text: str,
    since: str = START,
    *,
    at: str | None = None,
    uses_table: bool = False,
    accepts_gap: bool = False,
    wait: bool = True,
) -> Sent:
    """Deploy the queries of a text that have run over what the job has read; as `send_change`.

    since: records that arrived before this time are left out; START = none are
    uses_table: whether they first run over the history table of the deployment

    Raises InputError if the text is wrong, or if the records are not there any more.
    """
    with in_plain_words(deployment.environment):
        _refuse_no_table(deployment, uses_table=uses_table)
        moment, place = _since(since), moment_of(at)
        _refuse_other_clocks(deployment)
        progress = JobFolder(deployment.checkpoint).last_progress()
        _refuse_later(moment, progress)
        sync_seen(deployment.checkpoint)  # whose record somebody may be about to bring to the disk
        folder = new_folder(deployment.checkpoint)
        command = HistoryCommand(text, folder.name, moment, accepts_gap)
        own = _program(deployment, command)
        reading, run, mark = _read_beside(deployment, command, own, progress, uses_table=uses_table)
        write_history(folder, run, mark)
        return send_command(deployment, history_text(reading.command), kind=CHANGE, at=place, wait=wait)


_Read = tuple[HistoryReading, HistoryRun, HistoryMark]


def _read_beside(
    deployment: Deployment, command: HistoryCommand, own: HistoryProgram, progress: JobProgress, *, uses_table: bool
) -> _Read:
    """As `_read`, beside a job that may archive a file meanwhile, which is found there then."""
    for _ in range(MOST_TRIES - 1):
        with suppress(GapMeanwhile):
            return _read(deployment, command, own, progress, uses_table=uses_table)
    return _read(deployment, command, own, progress, uses_table=uses_table)


def _read(
    deployment: Deployment, command: HistoryCommand, own: HistoryProgram, progress: JobProgress, *, uses_table: bool
) -> _Read:
    """Read a history until little is left, which the job waits for."""
    program, titles = own.program, own.titles
    if uses_table:
        run, limits = HistoryRun(program, titles), limits_of(command.since, program, progress.clock)
        last = run_over_table(run, program, deployment, limits)
        reading = HistoryReading(deployment, program, titles, replace(command, since=last + 1))
        run, mark = reading.begin(run, last)
    else:
        command = replace(command, since=_with_held(command.since, program, progress))
        reading = HistoryReading(deployment, program, titles, command)
        run, mark = reading.begin()
    for _ in range(MOST_ROUNDS):
        started = monotonic()
        mark, steps = reading.go_on(run, mark)
        if not steps or monotonic() - started < SOON:
            break
    return reading, run, mark


def _refuse_no_table(deployment: Deployment, *, uses_table: bool) -> None:
    if uses_table and deployment.history is None:
        raise InputError(f"{deployment.file}: has no 'history', which says where the table is")


def _since(text: str) -> int | None:
    if text == START:
        return None
    moment = parse_moment(text)
    if moment is None:
        raise InputError(f"--from {text!r} is not {EXPECTED}, nor `{START}`")
    return moment


def _with_held(moment: int | None, program: Program, progress: JobProgress) -> int | None:
    """When the history begins so that it has all that the job still has to process: buckets hold
    that, and it cannot be left out there."""
    if moment is None:
        return None
    met = [group.sources for group in program.groups()]
    reached = [
        item.arrival for item in progress.clock.sources if any(names is None or item.source in names for names in met)
    ]
    least = min([moment, *reached])
    return None if least == NO_TIME else least


def _refuse_other_clocks(deployment: Deployment) -> None:
    if deployment.clock is not Clock.ARRIVAL:
        raise InputError(
            f"{deployment.file}: with `clock: processing` records arrive when they are read, so there is no history"
        )


def _refuse_later(moment: int | None, progress: JobProgress) -> None:
    furthest = progress.furthest
    if moment is not None and furthest is not None and moment > furthest:
        raise InputError(
            f"--from {format_time(moment)} lies behind all that the job has read, until {format_time(furthest)};"
            " without it the queries begin now"
        )


def _program(deployment: Deployment, command: HistoryCommand) -> HistoryProgram:
    """What runs over the history; raises InputError for a text that cannot be deployed."""
    record = read_record(deployment.checkpoint)
    if record is None:
        raise InputError(
            f"{deployment.checkpoint}: no job has run on this checkpoint yet; start it with `ensue run {deployment.file}`"
        )
    compiled = compiled_as_kept(deployment, record)
    program, files = with_kept_tables(compiled.program(deployment), deployment), compiled.running
    journal = reached_journal(deployment) or Journal.begin(files, program.plan(), program.gathered)
    journal = journal.annotated_by(files).gathered_in(program)
    progress = JobFolder(deployment.checkpoint).last_progress()
    reached, moment = Reached(batches_of(deployment.checkpoint), progress), moment_of_change(progress, None)
    foretold = journal.joined(command, how_taken(deployment, program, journal, moment, reached), "")
    if foretold.taken[-1].errors:
        raise InputError("; ".join(foretold.taken[-1].errors))
    own = HistoryProgram.of(foretold, program)
    refuse_unknown_tables(own.program, own.program.plan())
    return own
