"""The results of a job: compacted, compared, and mended records put back."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from job_engine.deployment import Deployment
from job_engine.deployment_file import load_deployment
from job_engine.durable_files import RESULT, new_file, publish, sync
from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.journal import Journal
from job_engine.job.reports import source_of
from job_engine.job.upkeep.opened_checkpoint import open_checkpoint
from job_engine.job.written_journal import read_journal
from job_engine.place import Place, RemotePath, names_in
from job_engine.sinks.kinds import MATCHES, Compacted, Compaction, Layout, Sink, publishing, sink_kind
from job_engine.sinks.names import folder_name
from job_engine.sinks.tables import row_of_query
from job_engine.sources.kinds import running_of
from job_engine.sources.listing.batch_log import driver_files, last_batch
from job_engine.sources.source import Source
from querylang.changes import reach_of
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, counted, did_you_mean, listed
from querylang.plan.model import EventType, Plan
from querylang.plan.routing import ROUTE_SOURCE
from querylang.system_errors import refused
from runtime.file_forms import USUAL_CSV
from runtime.instants import EARLIEST, EXPECTED, parse_moment
from runtime.json_reader import DamagedJson, json_of_text
from runtime.policies.settings_text import USUAL_TIMES
from runtime.reading import NONE
from runtime.results.for_users import MatchDifference, match_difference
from runtime.results.outputs import AS_ROLE
from runtime.timestamps import format_time, parse_time

# The results of a job, whether it runs or not: compact files, compare two queries.

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


# Put mended records back: rows of the sink `discarded` become a new file of their source.
#
# The file has the records with their arrival. Its name is made of its content and of where they
# were. So the same records cannot be put back twice.

WRITTEN = ("json", "csv")
"""Formats of sources that records can be put back into."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PutBack:
    """What was put back.

    files: by name of the source, its new file
    records: how many records they have
    twice: how many of them some queries have used before, and use again
    """

    files: Mapping[str, str]
    records: int
    twice: int


@dataclass(frozen=True, slots=True)
class _Record:
    """One record: where it was, what it is now, and the titles of queries that refused it."""

    place: str
    event: str
    arrival: str
    fields: Mapping[str, Any]
    source: str
    refused_by: frozenset[str]


def reprocess(path: Path | str, folder: Path, *, again: bool = False) -> PutBack:
    """Put the records of a file or folder back; the job may run.

    folder: rows of the sink `discarded` as JSON lines, mended
    again: also records that some queries have used, which use them again

    Raises InputError; then nothing is put back.
    """
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        plan = open_checkpoint(deployment).program.plan()
        records = _records(folder, deployment, plan)
        twice = [record for record in records if _used_by(record, plan)]
        if twice and not again:
            raise InputError(_would_count_twice(twice, plan))
        texts = {name: _text(_source(deployment, name), own) for name, own in _by_source(records).items()}
        sources = _by_source(records)
        targets = {name: _target(_source(deployment, name), text, sources[name]) for name, text in texts.items()}
        for name, target in targets.items():
            _write(target, texts[name])
        return PutBack({name: str(target) for name, target in targets.items()}, len(records), len(twice))


def _records(folder: Path, deployment: Deployment, plan: Plan) -> list[_Record]:
    """The records, each once; raises InputError for one that is not mended."""
    files = sorted(folder.rglob("*.json*")) if folder.is_dir() else [folder]
    rows: dict[tuple[Any, ...], list[tuple[str, Row]]] = {}
    for file in files:
        for where, row in _rows(file):
            key = tuple(json.dumps(row.get(name)) for name in ("source", "partition", "offset"))
            rows.setdefault(key, []).append((where, row))
    if not rows:
        raise InputError(f"{folder}: there are no rows of the sink 'discarded' as JSON lines")
    return [_record(same, deployment, plan) for same in rows.values()]


def _rows(file: Path) -> Iterator[tuple[str, Row]]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise refused(error, f"{file}: cannot be read") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json_of_text(line, dict[str, Any])
        except DamagedJson as error:
            raise InputError(f"{file}:{number}: {error}") from error
        if not {"event", "source", "arrival", "fields"} <= row.keys():
            raise InputError(
                f"{file}:{number}: is not a row of the sink 'discarded': it needs event, source, arrival, fields"
            )
        yield f"{file}:{number}", row


def _record(same: Sequence[tuple[str, Row]], deployment: Deployment, plan: Plan) -> _Record:
    """The record of its rows, one for each query that refused it; all have to be mended alike."""
    where, row = same[0]
    if any(_content(other) != _content(row) for _, other in same):
        raise InputError(f"{same[1][0]}: the record of {where} again, with another content; mend both, or keep one")
    events = {event.name: event for event in plan.events}
    known = {source.name: source.event for source in deployment.sources}
    if str(row["source"]).startswith(ROUTE_SOURCE):
        query = str(row["source"]).removeprefix(ROUTE_SOURCE)
        raise InputError(f"{where}: '{query}' has routed it, so no source has it: leave it out")
    source = source_of(str(row["source"]), str(row.get("reason")), list(known))
    event = known.get(source) if row["event"] is None else str(row["event"]).partition(AS_ROLE)[0]
    if event not in events:
        found = "has no event type" if event is None else f"{event!r} is not an event type"
        raise InputError(f"{where}: {found}; the queries know {listed(list(events))}")
    if not isinstance(row["arrival"], str) or parse_moment(row["arrival"]) is None:
        raise InputError(f"{where}: the arrival {row['arrival']!r} is not {EXPECTED}")
    fields = _fields(where, row["fields"], events[event])
    if source not in known:
        raise InputError(f"{where}: no source of the job has brought {row['source']!r}")
    place = json.dumps([row["source"], row.get("partition"), row.get("offset")])
    refused_by = frozenset(str(other.get("query") or "") for _, other in same)
    return _Record(place, event, row["arrival"], fields, source, refused_by)


def _content(row: Row) -> tuple[Any, ...]:
    """What rows of one record have alike, whichever query and role refused it."""
    event = None if row["event"] is None else str(row["event"]).partition(AS_ROLE)[0]
    return event, row["fields"], row["arrival"]


def _fields(where: str, given: Any, event: EventType) -> dict[str, Any]:
    """The values of an event's fields; their names may have the types, as in the sink."""
    if not isinstance(given, dict):
        raise InputError(f"{where}: has no fields; write them as {{{', '.join(field.name for field in event.fields)}}}")
    known = {name: field.name for field in event.fields for name in (field.name, f"{field.name}:{field.type}")}
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in known:
            found[known[name]] = value
        elif value is not None:
            raise InputError(f"{where}: {event.name} has no field {name.partition(':')[0]!r}")
    return found


def _used_by(record: _Record, plan: Plan) -> list[str]:
    """The queries that read its event type and have not refused it."""
    if "" in record.refused_by:
        return []  # no query could read it
    readers = [query.title for query in plan.queries if any(item.event == record.event for item in query.inputs)]
    return [title for title in readers if title not in record.refused_by]


def _would_count_twice(records: Sequence[_Record], plan: Plan) -> str:
    queries = dict.fromkeys(title for record in records for title in _used_by(record, plan))
    return (
        f"{counted(len(records), 'record')} of these were refused by some queries only: {listed(list(queries))} would use"
        " them a second time. Add --again if that is right; nothing was put back"
    )


def _by_source(records: Sequence[_Record]) -> dict[str, list[_Record]]:
    found: dict[str, list[_Record]] = {}
    for record in sorted(records, key=lambda record: record.arrival):
        found.setdefault(record.source, []).append(record)
    return found


def _source(deployment: Deployment, name: str) -> Source:
    source = next(source for source in deployment.sources if source.name == name)
    is_usual = source.times == USUAL_TIMES and replace(source.csv, delimiter=None) == USUAL_CSV
    if source.format not in WRITTEN or not is_usual:
        own = f"of {source.format}" if source.format not in WRITTEN else "written in a form of its own"
        raise InputError(
            f"the source '{name}' is {own}: records can be put back into files of {' and '.join(WRITTEN)} with the usual"
            " times; write these to the source yourself. Nothing was put back"
        )
    return source


def _text(source: Source, records: Sequence[_Record]) -> str:
    """The content of a new file of the source."""
    rows = []
    for record in records:
        row: dict[str, Any] = {source.arrival or "at": record.arrival}
        if source.event is None:
            if source.type_field != NONE:
                row[source.type_field or "event"] = record.event
        elif source.event != record.event:
            raise InputError(
                f"the source '{source.name}' has events {source.event!r} only, and a record is {record.event!r}"
            )
        rows.append({**row, **record.fields})
    if source.format == "json":
        return "".join(json.dumps(row) + "\n" for row in rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, delimiter=source.csv.delimiter or ",", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    match value:
        case bool():
            return "true" if value else "false"
        case dict() | list():
            return json.dumps(value)
        case _:
            return value


def _target(source: Source, text: str, records: Sequence[_Record]) -> Place:
    """The place of the new file; raises InputError if the records were put back before."""
    whole = json.dumps([text, *(record.place for record in records)])
    name = f"reprocessed-{hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()}.{source.format}"
    return running_of(source).place_of_new(source, name)


def _write(target: Place, text: str) -> None:
    try:
        if isinstance(target, RemotePath):
            target.write_text(text)
            return
        draft = target.with_name(f".{target.name}.draft")
        try:
            with new_file(draft, RESULT) as file:
                file.write(text.encode("utf-8"))
            publish([(draft, target)])
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise refused(error, f"{target}: cannot be written") from error
