"""Write micro-batches exactly once: results to sinks, then ledger and progress, then a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from job_engine.clock import monotonic, wall_seconds
from job_engine.job.batches.figures import Observed
from job_engine.job.batches.reporting import FirstRecords, Reporter
from job_engine.job.batches.reports import (
    BatchReport,
    OnBatch,
    batch_report,
    batch_reports,
    driver_tables,
    kernel_seconds,
    ledger_changes,
)
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.sinks.bucket_results import Written
from job_engine.sinks.kinds import MicroBatch, Sink
from job_engine.sinks.run_sinks import publish_batch
from job_engine.sources.listing.command_folder import Answer
from job_engine.wire.partition_groups import shared_order
from job_engine.wire.program import Program
from job_engine.wire.reports import Report
from job_engine.wire.rows_in_files import remove_rows
from job_engine.wire.tagged_rows import Tag


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
    observe: called after each micro-batch with what metrics show; None = there are none
    is_first: whether the next micro-batch may be a repeated one
    first_records: warns of a source whose first records come too late
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

    def __post_init__(self) -> None:
        """The first records of each source are looked at once."""
        self.first_records = FirstRecords(self.program.sources)

    def write(self, results: Callable[[], Iterable[bytes]], batch: int) -> None:
        """May be called again with the same micro-batch, after a crash.

        results: runs the tasks of the micro-batch, and gives `BucketResults` of its buckets
        batch: its number, as the driver counts
        """
        started = monotonic()
        self.confirm()
        batch += self.program.before
        own = MicroBatch(self.identity, batch)
        written = publish_batch(results(), self.program, self.sinks, own, is_first=self.is_first)
        self.is_first = False
        if self.rows is not None:
            remove_rows(self.rows)
        changes = ledger_changes(written, self.sources)
        ledger = self.folder.ledger.add(batch, changes)
        report = batch_report(self.program.running(), batch, written, changes, monotonic() - started)
        reports = batch_reports(written, changes)
        progress = self._write_progress(batch, written, report, reports)
        self._answer(batch, written)
        self._ask_for_changes(written)
        self.reporter.add(reports)
        self.first_records.look_at(ledger, changes)
        if self.observe is not None:
            self.observe(Observed(report, ledger, progress, kernel_seconds(written), wall_seconds()))
        self.on_batch(report)

    def _answer(self, batch: int, written: Sequence[Written]) -> None:
        """Write down what became of commands; who waits for them looks there."""
        tables = [table for tag, table in driver_tables(written) if tag is Tag.ANSWER]
        if tables:
            self.folder.commands.add(batch, (Answer(**row) for table in tables for row in table.to_pylist()))

    def _ask_for_changes(self, written: Sequence[Written]) -> None:
        """Write down the changes that the control stream asks for; the job does them later."""
        asked = [row for tag, table in driver_tables(written) if tag is Tag.ASKED for row in table.to_pylist()]
        if asked:
            self.folder.commands.send_changes(asked)

    def _write_progress(
        self, batch: int, written: Sequence[Written], report: BatchReport, reports: Sequence[Report]
    ) -> JobProgress:
        before = self.folder.last_progress(before=batch).of_buckets(self.program.buckets)
        progress = before.after(
            driver_tables(written),
            records=report.records,
            matches=sum(report.matches.values()),
            reports=reports,
        )
        known = {query.public_title for query in self.program.plan().queries}
        reached = {title: time for title, time in progress.queries.items() if title in known}
        progress = replace(progress, queries=reached)
        queries = {query.public_title: shared_order(query) for query in self.program.running().queries}
        self.folder.progress.write(batch, {"queries": queries, "progress": progress.to_plain()})
        return progress
