"""Write micro-batches exactly once: results to sinks, then ledger and progress, then a report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame

from spark_backend.durable_files import sync
from spark_backend.job.job_folder import JobFolder
from spark_backend.job.progress import JobProgress
from spark_backend.job.reporting import Reporter
from spark_backend.job.reports import (
    BatchReport,
    OnBatch,
    batch_report,
    batch_reports,
    driver_tables,
    ledger_changes,
)
from spark_backend.sinks.bucket_results import Written
from spark_backend.sinks.formats import Sink
from spark_backend.sinks.micro_batch import publish_batch
from spark_backend.wire.partition_groups import shared_order
from spark_backend.wire.program import Program
from spark_backend.wire.reports import Report
from spark_backend.wire.rows_in_files import remove_rows


@dataclass(slots=True)
class BatchWriter:
    """The `foreachBatch` function of a run.

    program: as the run has it
    sources: names of the job's sources
    identity: names the checkpoint
    rows: where tasks put packed rows for each other
    on_batch: called after each micro-batch
    reporter: warns of what micro-batches report
    is_first: whether the next micro-batch may be a repeated one
    """

    program: Program
    sinks: Mapping[str, Sink]
    sources: Sequence[str]
    identity: str
    folder: JobFolder
    rows: Path | None
    on_batch: OnBatch
    reporter: Reporter
    is_first: bool = field(default=True)

    def write(self, results: DataFrame, batch: int) -> None:
        """Spark may call this again with the same micro-batch after a crash."""
        started = time.monotonic()
        self._sync_offsets(batch)
        written = publish_batch(results, self.program, self.sinks, self.identity, batch, is_first=self.is_first)
        self.is_first = False
        if self.rows is not None:
            remove_rows(self.rows)
        changes = ledger_changes(written, self.sources)
        self.folder.ledger.add(batch, changes)
        report = batch_report(self.program.plan(), batch, written, changes, time.monotonic() - started)
        reports = batch_reports(written, changes)
        self._write_progress(batch, written, report, reports)
        self.reporter.add(reports)
        self.on_batch(report)

    def _sync_offsets(self, batch: int) -> None:
        """Sync Spark's log: a power cut must not leave results whose offsets are lost."""
        offsets = self.folder.checkpoint / "offsets"
        sync(offsets / str(batch))
        sync(offsets)

    def _write_progress(
        self, batch: int, written: Sequence[Written], report: BatchReport, reports: Sequence[Report]
    ) -> None:
        files = self.folder.progress
        before = files.latest(before=batch)
        progress = JobProgress.from_plain(None if before is None else before[1]["progress"]).after(
            driver_tables(written),
            records=report.records,
            matches=sum(report.matches.values()),
            reports=reports,
        )
        queries = {query.title: shared_order(query) for query in self.program.plan().queries}
        files.write(batch, {"queries": queries, "progress": progress.to_plain()})
