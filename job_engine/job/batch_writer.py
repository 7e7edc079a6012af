"""Write micro-batches exactly once: results to sinks, then ledger and progress, then a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from job_engine.clock import monotonic, wall_seconds
from job_engine.job.checkpoint.job_folder import JobFolder, Ledger
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.job.reports import (
    BatchReport,
    DriverTables,
    Observed,
    OnBatch,
    batch_report,
    batch_reports,
    driver_tables,
    kernel_seconds,
    ledger_changes,
)
from job_engine.sinks.kinds import MicroBatch, Sink
from job_engine.sinks.run_sinks import publish_batch
from job_engine.sources.listing.batch_log import JobNotes
from job_engine.sources.listing.command_folder import Answer
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.packed_rows import remove_rows
from job_engine.wire.partition_groups import shared_order
from job_engine.wire.program import Program
from job_engine.wire.reports import CAUSES, Report, added_up
from job_engine.wire.tagged_rows import Tag
from querylang.dataclass import dataclass, field, replace
from querylang.printable import quoted, warn
from runtime.results.ledger import KEEPS_LATE, RECEIVED, is_remarkable

# Warn of what is reported: per cause at most once a minute, with a count and one example.

INTERVAL = 60.0
"""Least number of seconds between two warnings of one cause."""


class Reporter:
    """Logs reports as warnings of the logger `ensue`.

    now: gives the time in seconds, from any beginning
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._waiting: dict[str, tuple[Report, ...]] = {}
        self._warned: dict[str, float] = {}

    def add(self, reports: Iterable[Report]) -> None:
        """Warn of these and of those that still wait, as far as their minute has passed."""
        for item in reports:
            self._waiting[item.cause] = (*self._waiting.get(item.cause, ()), item)
        now = self._now()
        for cause in sorted(self._waiting):
            if now >= self._warned.get(cause, now - INTERVAL) + INTERVAL:
                self._warn(cause)
                self._warned[cause] = now
            else:
                self._waiting[cause] = added_up(self._waiting[cause])

    def finish(self) -> None:
        """Warn of all that still waits: the job has ended."""
        for cause in sorted(self._waiting):
            self._warn(cause)

    def _warn(self, cause: str) -> None:
        reports = added_up(self._waiting.pop(cause))
        names = ("source", "count", "example", "field")
        found = [
            {name: value for name in names if (value := getattr(item, name)) or name != "field"} for item in reports
        ]
        warn(warning_text(cause, reports), {"event": "report", "cause": cause, "found": found})


FIRST = 10_000
"""Number of a source's first records that are looked at."""


class FirstRecords:
    """Warns once of a source many of whose first records come too late, and says what would help.

    Once in the life of a job: behind the micro-batch in which there came to be many.

    sources: of the job
    """

    def __init__(self, sources: Iterable[ClockSource]) -> None:
        self._sources = {source.name: source for source in sources}
        self._told: set[str] = set()

    def look_at(self, ledger: Ledger, changes: Ledger) -> None:
        """Look at the account of a job after a micro-batch; `changes`: of the ledger, in it."""
        first = (
            name
            for name in {(query, source) for query, source, _ in changes}
            if ledger.get((*name, RECEIVED), 0) - changes.get((*name, RECEIVED), 0) < FIRST
        )
        for query, name in sorted(first):
            now, added = (_First.of(account, query, name) for account in (ledger, changes))
            then = _First(now.received - added.received, now.late - added.late, now.before_clock - added.before_clock)
            is_new = now.is_remarkable and not then.is_remarkable
            if is_new and name in self._sources and name not in self._told:
                self._told.add(name)
                warn(_too_late(self._sources[name], now))


@dataclass(frozen=True, slots=True)
class _First:
    """Of the first records of a source, how many a query received, and how many were too late."""

    received: int
    late: int
    before_clock: int

    @property
    def is_remarkable(self) -> bool:
        return is_remarkable(max(self.late, self.before_clock), self.received)

    @staticmethod
    def of(ledger: Ledger, query: str, source: str) -> _First:
        return _First(*(ledger.get((query, source, word), 0) for word in (RECEIVED, "late", "before_clock")))


def _too_late(source: ClockSource, first: _First) -> str:
    if first.late > first.before_clock:
        count, what = first.late, "are late"
        way_out = KEEPS_LATE
    else:
        count, what = first.before_clock, "arrive before the clock"
        way_out = (
            "`min_age` of the source lists files of the same time together; `partition: COLUMN` gives each value a clock"
            " of its own"
            if source.in_files
            else "a longer `idle`, or none, lets time wait for them"
        )
    return f"source {source.name!r}: {count} of its first {first.received} records {what}: {way_out}"


def warning_text(cause: str, reports: tuple[Report, ...]) -> str:
    """The reports of one cause as one line; names from outside are quoted and escaped."""
    parts = [_part(item) for item in reports]
    examples = [item.example for item in reports if item.example and not item.field]
    example = f"; for example {quoted(examples[-1])}" if examples else ""
    return f"{cause}: {CAUSES.get(cause, cause)}: {', '.join(parts)}{example}"


def _part(report: Report) -> str:
    """What is said of one source, or of a field of it."""
    count = f"{report.count} of {report.source!r}" if report.source else str(report.count)
    return f"{count} in {report.field!r}, first {quoted(report.example)}" if report.field else count


@dataclass(frozen=True, slots=True)
class Counts:
    """What was found since buckets were measured, and what metrics have not shown yet.

    seconds: time spent in steps
    """

    records: int = 0
    matches: int = 0
    seconds: float = 0.0

    def with_batch(self, report: BatchReport, seconds: float) -> Counts:
        """The same, with one more micro-batch."""
        matches = self.matches + sum(report.matches.values())
        return Counts(self.records + report.records, matches, self.seconds + seconds)

    def with_seconds(self, seconds: float) -> Counts:
        """The same, with more time."""
        return replace(self, seconds=self.seconds + seconds)

    def behind(self, before: JobProgress, after: JobProgress) -> Counts:
        """What is left of them once progress has gone on: it may have counted them."""
        return self if after.timestamp == before.timestamp else Counts(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Totals:
    """Ledger and progress since the checkpoint's beginning, behind a micro-batch.

    counts: what progress does not have yet
    """

    batch: int
    ledger: Ledger
    progress: JobProgress
    counts: Counts = Counts()

    @staticmethod
    def before(folder: JobFolder, batch: int) -> Totals:
        """As they were saved before a micro-batch, whatever later ones have left."""
        return Totals(batch - 1, folder.ledger.total(before=batch), folder.last_progress(before=batch))


@dataclass(slots=True)
class BatchWriter:
    """Writes the micro-batches of a run.

    confirm: raises InputError if another run has the checkpoint
    program: as the run has it
    sources: names of the job's sources
    identity: names the checkpoint
    rows: where tasks put packed rows for each other
    on_batch: called after each micro-batch
    reporter: warns of what micro-batches report
    observe: called with what metrics show after each micro-batch and measure; None = there are
        none
    is_first: whether the next micro-batch may be a repeated one
    first_records: warns of a source whose first records come too late
    orders: `shared_order` of the queries that run, by title
    titles: of the queries whose time is shown: those of ended epochs are not among them
    epoch: the number of the earliest epoch that is not over, which `titles` are of
    totals: behind the last micro-batch of the run; None = there was none
    """

    confirm: Callable[[], None]
    program: Program
    sinks: Mapping[str, Sink]
    sources: Sequence[str]
    identity: str
    folder: JobFolder
    rows: Path | None
    on_batch: OnBatch
    reporter: Reporter
    observe: Callable[[Observed], None] | None = None
    is_first: bool = field(default=True)
    first_records: FirstRecords = field(init=False)
    orders: dict[str, str | None] = field(init=False)
    titles: frozenset[str] = field(init=False)
    epoch: int = field(init=False, default=0)
    totals: Totals | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """What is the same in all micro-batches of a run is found once."""
        self.first_records = FirstRecords(self.program.sources)
        names = self.program.names
        self.orders = {
            query.public_title: shared_order(query, names[query.title]) for query in self.program.running().queries
        }
        self.titles = self.program.titles_since(self.epoch)

    def write(self, results: Callable[[], Iterable[bytes]], batch: int) -> None:
        """Publish a micro-batch and save the totals behind it.

        May be called again with the same micro-batch, after a crash; parameters as of `publish`.
        """
        self.publish(results, batch, may_be_repeated=self.is_first)
        if self.rows is not None:
            remove_rows(self.rows)
        self.is_first = False
        self.save()

    def publish(
        self,
        results: Callable[[], Iterable[bytes]],
        batch: int,
        *,
        may_be_repeated: bool,
        started: float | None = None,
    ) -> None:
        """Make visible what a micro-batch gives; its totals are saved later.

        results: runs the tasks of the micro-batch, and gives `BucketResults` of its buckets
        batch: its number, as the driver counts
        may_be_repeated: an earlier run may have been interrupted in it, or behind it
        started: when the micro-batch was begun, as `monotonic` tells it; None = now
        """
        started = monotonic() if started is None else started
        self.confirm()
        batch += self.program.before
        own = MicroBatch(self.identity, batch)
        written = publish_batch(results(), self.program, self.sinks, own, is_first=may_be_repeated)
        tables = driver_tables(written)
        changes = ledger_changes(tables, self.sources)
        report = batch_report(self.program.running(), batch, written, tables, changes, monotonic() - started)
        reports = batch_reports(tables, changes)
        before = self.totals or Totals.before(self.folder, batch)
        ledger = before.ledger
        for key, count in changes.items():
            ledger[key] = ledger.get(key, 0) + count
        counts = before.counts.with_batch(report, kernel_seconds(tables))
        progress = self._progress_after(before.progress, tables, counts, reports)
        left = replace(counts.behind(before.progress, progress), seconds=0.0)
        self.totals = Totals(batch, ledger, progress, left)
        self._answer(batch, tables)
        self._ask_for_changes(tables)
        self.reporter.add(reports)
        self.first_records.look_at(ledger, changes)
        self._observe(report, ledger, progress, counts.seconds)
        self.on_batch(report)

    def measure(self, tables: DriverTables) -> None:
        """Take measures of buckets that came without the results of a micro-batch."""
        if self.totals is not None:
            counts = self.totals.counts.with_seconds(kernel_seconds(tables))
            progress = self._progress_after(self.totals.progress, tables, counts, ())
            self._observe(None, self.totals.ledger, progress, counts.seconds)
            left = replace(counts.behind(self.totals.progress, progress), seconds=0.0)
            self.totals = replace(self.totals, progress=progress, counts=left)

    def save(self) -> None:
        """Write the totals behind the last micro-batch; they survive a power cut."""
        if self.totals is not None:
            self.folder.ledger.write(self.totals.batch, self.totals.ledger)
            plain = {"queries": self.orders, "progress": self.totals.progress.to_plain()}
            self.folder.progress.write(self.totals.batch, plain)

    def notes(self) -> JobNotes | None:
        """What the lister has to know of the micro-batches of this run; None = there was none."""
        return None if self.totals is None else self.totals.progress.notes

    def _observe(
        self, report: BatchReport | None, ledger: Ledger, progress: JobProgress, kernel_seconds: float
    ) -> None:
        if self.observe is not None:
            self.observe(Observed(report, dict(ledger), progress, kernel_seconds, wall_seconds()))

    def _answer(self, batch: int, tables: DriverTables) -> None:
        """Write down what became of commands; who waits for them looks there."""
        answers = [Answer(**row) for tag, table in tables if tag is Tag.ANSWER for row in table.to_pylist()]
        if answers:
            self.folder.commands.add(batch, answers)

    def _ask_for_changes(self, tables: DriverTables) -> None:
        """Write down the changes that the control stream asks for; the job does them later."""
        asked = [row for tag, table in tables if tag is Tag.ASKED for row in table.to_pylist()]
        if asked:
            self.folder.commands.send_changes(asked)

    def _progress_after(
        self, before: JobProgress, tables: DriverTables, counts: Counts, reports: Sequence[Report]
    ) -> JobProgress:
        progress = before.of_buckets(self.program.buckets).after(
            tables, records=counts.records, matches=counts.matches, reports=reports
        )
        if progress.epoch != self.epoch:
            self.epoch, self.titles = progress.epoch, self.program.titles_since(progress.epoch)
        reached = {title: time for title, time in progress.queries.items() if title in self.titles}
        return replace(progress, queries=reached)
