"""Warn of what is reported: per cause at most once a minute, with a count and one example."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from job_engine.clock import monotonic
from job_engine.job.checkpoint.job_folder import Ledger
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.reports import CAUSES, Report, added_up
from querylang.printable import warn
from runtime.results.ledger import KEEPS_LATE, RECEIVED, is_remarkable

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

    sources: of the job
    """

    def __init__(self, sources: Iterable[ClockSource]) -> None:
        self._sources = tuple(sources)
        self._told: set[str] = set()

    def look_at(self, ledger: Ledger, changes: Ledger) -> None:
        """Look at the account of a job after a micro-batch; `changes`: of the ledger, in it."""
        queries = {query for query, _, _ in ledger}
        for source in self._sources:
            for query in sorted(queries):
                name = query, source.name
                received = ledger.get((*name, RECEIVED), 0)
                if received - changes.get((*name, RECEIVED), 0) >= FIRST:
                    continue
                late, before = (ledger.get((*name, word), 0) for word in ("late", "before_clock"))
                if is_remarkable(max(late, before), received) and source.name not in self._told:
                    self._told.add(source.name)
                    warn(_too_late(source, late, before, received))


def _too_late(source: ClockSource, late: int, before: int, received: int) -> str:
    if late > before:
        count, what = late, "are late"
        way_out = KEEPS_LATE
    else:
        count, what = before, "arrive before the clock"
        way_out = (
            "`min_age` of the source lists files of the same time together; `partition: COLUMN` gives each value a clock"
            " of its own"
            if source.in_files
            else "a longer `idle`, or none, lets time wait for them"
        )
    return f"source {source.name!r}: {count} of its first {received} records {what}: {way_out}"


def warning_text(cause: str, reports: tuple[Report, ...]) -> str:
    """The reports of one cause as one line; names from outside are quoted and escaped."""
    parts = [_part(item) for item in reports]
    examples = [item.example for item in reports if item.example and not item.field]
    example = f"; for example {examples[-1]!r}" if examples else ""
    return f"{cause}: {CAUSES.get(cause, cause)}: {', '.join(parts)}{example}"


def _part(report: Report) -> str:
    """What is said of one source, or of a field of it."""
    count = f"{report.count} of {report.source!r}" if report.source else str(report.count)
    return f"{count} in {report.field!r}, first {report.example!r}" if report.field else count
