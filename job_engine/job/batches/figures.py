"""The figures of a running job that its metrics show, as of the last micro-batch."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from job_engine.job.batches.reports import BatchReport
from job_engine.job.checkpoint.job_folder import JobFolder, Ledger
from job_engine.job.checkpoint.progress import JobProgress


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
