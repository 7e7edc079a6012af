"""The results of a job, whether it runs or not: compact files, compare two queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from job_engine.durable_files import sync
from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.journal.journal import Journal
from job_engine.job.journal.written import read_journal
from job_engine.places.place import Place, names_in
from job_engine.settings.deployment import Deployment
from job_engine.settings.deployment_file import load_deployment
from job_engine.sinks.kinds import MATCHES, Compacted, Compaction, Layout, Sink, publishing, sink_kind
from job_engine.sinks.names import folder_name
from job_engine.sinks.tables import row_of_query
from job_engine.sources.listing.batch_log import driver_files, last_batch
from querylang.changes import reach_of
from querylang.dataclass import dataclass
from querylang.errors import InputError, did_you_mean
from runtime.instants import EARLIEST
from runtime.results.for_users import MatchDifference, match_difference
from runtime.timestamps import format_time, parse_time

# Compact the files of a job's sinks, whether it runs or not.

TARGET = 128 << 20
"""Bytes of a compacted file: large enough for readers, small enough to be written in seconds."""

KEPT_RUNNING = 100
"""The newest micro-batches, which stay as they are: a checkpoint can go back so far."""

KEPT_STOPPED = 2
"""As many as may be repeated after a power cut, or because a log of the driver was damaged."""


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What a compaction has done.

    sinks: by name, those whose files were looked at
    others: names of sinks that are not files, and the format of each
    kept: number of the newest micro-batches that stay as they are
    ways: what else compacts the others, in words; "" = nothing does
    """

    sinks: Mapping[str, Compacted]
    others: Mapping[str, str]
    kept: int
    ways: Mapping[str, str]

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "sinks": {
                name: {"replaced": done.replaced, "written": done.written, "files": done.left}
                for name, done in self.sinks.items()
            },
            "others": dict(self.others),
            "kept_micro_batches": self.kept,
        }


def compact_job(
    path: Path | str, target: int = TARGET, tell: Callable[[str, Compacted], None] = lambda _name, _done: None
) -> CompactReport:
    """Let many small files of a job's sinks become few, with the same rows.

    path: the deployment file
    target: bytes that a compacted file should have
    tell: called after each sink

    Raises InputError.
    """
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        record = read_record(deployment.checkpoint)
        if record is None:
            raise InputError(f"{deployment.checkpoint}: the job has not run yet, so there is nothing to compact")
        folder = JobFolder(deployment.checkpoint)
        kept = KEPT_RUNNING if folder.lock().is_held() else KEPT_STOPPED
        lock = folder.compaction_lock()
        lock.acquire()
        try:
            last = _last_certain(deployment.checkpoint, kept)
            compaction = Compaction(record.identity, last, target, lock.confirm)
            done, others, ways = {}, {}, {}
            for name, sink in deployment.sinks.items():
                compacted = publishing(sink).compact(sink, compaction)
                if isinstance(compacted, str):
                    others[name], ways[name] = sink.format, compacted
                else:
                    done[name] = compacted
                    tell(name, compacted)
        finally:
            lock.release()
    return CompactReport(done, others, kept, ways)


def _last_certain(checkpoint: Place, kept: int) -> int:
    """The last micro-batch that is never repeated, even after a power cut at this moment."""
    newest = last_batch(checkpoint)
    last = newest - kept
    if last >= 0:
        files = driver_files(checkpoint)
        for number in range(max(0, last - files.before), newest - files.before + 1):
            if (files.commits / str(number)).exists():
                sync(files.commits / str(number))
        if files.commits.exists():
            sync(files.commits)
    return last


# Compare the matches of two queries of a job, such as a query and its shadow.


@dataclass(frozen=True, slots=True)
class QueryDifference:
    """What one of two queries of a job finds and the other does not.

    since: only matches from this event time on are compared, µs; None = all
    """

    first: str
    second: str
    since: int | None
    found: MatchDifference

    def to_plain(self) -> dict[str, Any]:
        """For machines."""
        return {
            "since": None if self.since is None else format_time(self.since),
            "both": self.found.both,
            "only": {self.first: list(self.found.only_first), self.second: list(self.found.only_second)},
        }


def compare_queries(file: Path, first: str, second: str) -> QueryDifference:
    """Compare what two queries of a job have found, from where the windows of both are full.

    Raises InputError.
    """
    deployment = load_deployment(file)
    with in_plain_words(deployment.environment):
        sink = _sink(deployment)
        journal = read_journal(deployment)
        since = max((start for name in (first, second) if (start := _full_since(journal, name))), default=None)
        found = [list(_matches(sink, name, since)) for name in (first, second)]
        return QueryDifference(first, second, since, match_difference(*found))


def _sink(deployment: Deployment) -> Sink:
    sink = deployment.sinks.get(MATCHES)
    if sink is None:
        raise InputError(f"the job has no sink '{MATCHES}', so there is nothing to compare")
    if sink.place is None:
        kind = sink_kind(sink.format).in_words(sink.format)
        raise InputError(f"the sink '{MATCHES}' is {kind}; matches in files or Delta tables can be compared")
    return sink


def _full_since(journal: Journal | None, name: str) -> int | None:
    """The event time from which on a query has full windows, µs; None = always."""
    if journal is None or name not in journal.running.queries:
        return None
    since = journal.since.get(name, EARLIEST)
    if since == EARLIEST:  # before all records
        return None
    reaches = [reach_of(plan) or 0 for plan in journal.running.queries[name].plans()]
    return since + max(reaches, default=0)


def _matches(sink: Sink, name: str, since: int | None) -> Iterator[dict[str, Any]]:
    if sink.layout is Layout.ONE:
        yield from _matches_in_one(sink, name, since)
        return
    folder = sink.folder / folder_name(name)
    if not folder.is_dir():
        known = sorted(names_in(sink.folder))
        raise InputError(f"there are no matches of a query '{name}' in {sink.folder}{did_you_mean(name, known)}")
    for row in publishing(sink).rows(sink, folder):
        if since is None or _time(row["time"]) >= since:
            yield row


def _matches_in_one(sink: Sink, name: str, since: int | None) -> Iterator[dict[str, Any]]:
    known = set()
    for row in publishing(sink).rows(sink, sink.folder):
        known.add(row["query"])
        if row["query"] == name and (since is None or _time(row["time"]) >= since):
            yield row_of_query(row)
    if name not in known:
        raise InputError(
            f"there are no matches of a query '{name}' in {sink.folder}{did_you_mean(name, sorted(known))}"
        )


def _time(value: datetime | str) -> int:
    return parse_time(value.isoformat() if isinstance(value, datetime) else value)
