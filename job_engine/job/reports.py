"""What micro-batches and whole runs did, as counts, and the figures of a job that runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from job_engine.job.checkpoint.job_folder import JobFolder, Ledger
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.sinks.bucket_results import Written
from job_engine.wire.reports import Report, added_up, reports_from_ledger
from job_engine.wire.tagged_rows import Tag, read_table
from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import Plan, QueryPlan, public_title
from querylang.plan.routing import ROUTE_SOURCE


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one micro-batch did.

    batch: its number
    records: number of records read from sources
    matches: by query's title
    state_bytes: size of the state of the buckets that were measured
    seconds: time spent
    malformed: number of records and of whole files that could not be read
    """

    batch: int
    records: int
    matches: Mapping[str, int]
    outputs: int
    errors: int
    discarded: int
    state_bytes: int
    seconds: float
    malformed: int = 0


CONTROL = "control"
"""The name of the control stream, and the ledger's word for its records."""

OnBatch = Callable[[BatchReport], None]
"""Called after each micro-batch."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """What one run did.

    matches: by query's title
    ledger: counts of the checkpoint since its beginning
    stopped_by: number of the signal that ended the run; None = it ended by itself
    idle: queries that did not run, because their parameters have no values
    is_unreadable: there were records, and none could be read
    waiting: number of matches that wait at its end
    next_due: when the next of them is due, µs; None = none waits
    """

    batches: int
    records: int
    matches: Mapping[str, int]
    discarded: int
    seconds: float
    ledger: Ledger
    stopped_by: int | None = None
    idle: tuple[QueryPlan, ...] = ()
    is_unreadable: bool = False
    waiting: int = 0
    next_due: int | None = None


class RunTotal:
    """The sum of a run's micro-batches so far."""

    def __init__(self) -> None:
        self._batches = self._records = self._discarded = self._malformed = 0
        self._matches: dict[str, int] = {}

    def add(self, batch: BatchReport) -> None:
        """Add one more micro-batch."""
        self._batches += 1
        self._records += batch.records
        self._discarded += batch.discarded
        self._malformed += batch.malformed
        for query, count in batch.matches.items():
            self._matches[query] = self._matches.get(query, 0) + count

    def report(
        self, plan: Plan, ledger: Ledger, seconds: float, *, stopped_by: int | None, idle: tuple[QueryPlan, ...]
    ) -> RunReport:
        """The report of the run; see `RunReport`.

        plan: what runs at its end; queries that ended before are there if they gave matches
        """
        return RunReport(
            self._batches,
            self._records,
            {query.public_title: 0 for query in plan.queries} | self._matches,
            self._discarded,
            seconds,
            ledger,
            stopped_by,
            idle,
            is_unreadable=bool(self._records) and self._malformed == self._records,
        )


DriverTables = Sequence[tuple[Tag, pa.Table]]
"""The tables of a micro-batch that the driver was sent, with their kinds."""


def batch_report(
    plan: Plan, batch: int, written: Sequence[Written], tables: DriverTables, changes: Ledger, seconds: float
) -> BatchReport:
    """The report of one micro-batch; `changes`: of the ledger."""
    matches: dict[str, int] = {}
    for row in written:
        if row.tag is Tag.MATCH:
            name = public_title(row.query)
            matches[name] = matches.get(name, 0) + row.rows
    first = plan.queries[0].public_title if plan.queries else None  # every query receives every record
    counts = Counter[str]()
    for (query, source, what), count in changes.items():
        if query == first and not source.startswith(ROUTE_SOURCE):
            counts[what] += count
    return BatchReport(
        batch=batch,
        records=counts["received"],
        matches=matches,
        outputs=_rows(written, Tag.OUTPUT),
        errors=_rows(written, Tag.ERROR),
        discarded=_rows(written, Tag.DISCARDED),
        state_bytes=sum(sum(table.column("state_bytes").to_pylist()) for tag, table in tables if tag is Tag.METRIC),
        seconds=seconds,
        malformed=counts["malformed"] + counts["malformed_file"],
    )


def ledger_changes(tables: DriverTables, sources: Sequence[str]) -> Ledger:
    """The ledger's changes in one micro-batch, by source: files are in the ledger's sink only.

    sources: the names of the job's sources
    """
    changes: Ledger = {}
    for table in (table for tag, table in tables if tag is Tag.LEDGER):
        for row in table.to_pylist():
            key = (row["query"], source_of(row["source"], row["what"], sources), row["what"])
            changes[key] = changes.get(key, 0) + row["count"]
    return changes


def source_of(file: str, what: str, sources: Sequence[str]) -> str:
    """The name of a file's source, or of the query that routes; `what`: the word that it is counted
    under."""
    if what == CONTROL:
        return CONTROL
    if file.startswith(ROUTE_SOURCE):
        return file
    if len(sources) == 1:
        return sources[0]
    owners = [name for name in (*sources, CONTROL) if file.startswith(f"{name}/")]
    return max(owners, key=len, default=file)


def batch_reports(tables: DriverTables, changes: Ledger) -> tuple[Report, ...]:
    """What one micro-batch reports, of itself and by its changes of the ledger."""
    own = [Report(**row) for tag, table in tables if tag is Tag.REPORT for row in table.to_pylist()]
    return added_up((*own, *reports_from_ledger(changes)))


def kernel_seconds(tables: DriverTables) -> float:
    """Time spent in the steps of buckets in one micro-batch, added up."""
    metrics = [table for tag, table in tables if tag is Tag.METRIC]
    return float(sum(sum(table.column("seconds").to_pylist()) for table in metrics))


def driver_tables(written: Sequence[Written]) -> list[tuple[Tag, pa.Table]]:
    """The tables that the driver was sent, with their kinds."""
    return [(row.tag, read_table(row.data)) for row in written if row.data is not None]


def _rows(written: Sequence[Written], tag: Tag) -> int:
    return sum(row.rows for row in written if row.tag is tag)


# The figures of a running job that its metrics show, as of the last micro-batch.


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known after a micro-batch, or once buckets have been measured.

    report: what the micro-batch did; None = there was none since the last look
    ledger, progress: after it, since the checkpoint's beginning
    kernel_seconds: time spent in the steps of its buckets, added up
    moment: when the results of the last micro-batch were written, seconds since 1970
    """

    report: BatchReport | None
    ledger: Ledger
    progress: JobProgress
    kernel_seconds: float
    moment: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What metrics are made of.

    queries: titles
    sources: names
    ledger, progress: since the checkpoint's beginning
    matches: since the run's beginning, by title; so are the other counts
    batch, moment: the last micro-batch, and when its results were written; None = none yet
    """

    queries: tuple[str, ...]
    sources: tuple[str, ...]
    ledger: Ledger
    progress: JobProgress
    matches: Mapping[str, int]
    outputs: int = 0
    errors: int = 0
    kernel_seconds: float = 0.0
    batches: int = 0
    batch: int | None = None
    moment: float | None = None

    def after(self, observed: Observed) -> Figures:
        """The figures after one more micro-batch, or one more measure."""
        report = observed.report
        known = replace(
            self,
            ledger=observed.ledger,
            progress=observed.progress,
            kernel_seconds=self.kernel_seconds + observed.kernel_seconds,
        )
        if report is None:
            return known
        return replace(
            known,
            matches={
                title: count + report.matches.get(title, 0)
                for title, count in {**dict.fromkeys(report.matches, 0), **self.matches}.items()
            },
            outputs=self.outputs + report.outputs,
            errors=self.errors + report.errors,
            batches=self.batches + 1,
            batch=report.batch,
            moment=observed.moment,
        )


def figures_at_start(folder: JobFolder, queries: Sequence[str], sources: Sequence[str]) -> Figures:
    """The figures of a run that begins."""
    matches = dict.fromkeys(queries, 0)
    return Figures(tuple(queries), tuple(sources), folder.ledger.total(), folder.last_progress(), matches)


@dataclass(slots=True)
class Pulse:
    """Whether a job is at work: when it last finished a micro-batch, or waited for records.

    last: that moment, in seconds of the clock; at first the run's beginning
    has_begun: whether there was one
    """

    last: float
    has_begun: bool = field(default=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def beat(self, now: float) -> None:
        """It has finished a micro-batch, or waits for records."""
        with self._lock:
            self.last, self.has_begun = max(self.last, now), True

    def problem(self, now: float, within: float) -> str:
        """Why it is not ready; "" = it is. `within`: seconds that a micro-batch may take."""
        if not self.has_begun:
            return "no micro-batch has ended yet"
        silent = now - self.last
        return (
            f"a micro-batch has been at work for {silent:.0f} s, longer than {within:.0f} s" if silent > within else ""
        )
