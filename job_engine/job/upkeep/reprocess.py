"""Put mended records back: rows of the sink `discarded` become a new file of their source.

The file has the records with their arrival. Its name is made of its content and of where they were.
So the same records cannot be put back twice.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from job_engine.durable_files import RESULT, new_file, publish
from job_engine.errors import in_plain_words
from job_engine.job.reports import source_of
from job_engine.job.upkeep.opened_checkpoint import open_checkpoint
from job_engine.places.place import Place, RemotePath
from job_engine.settings.deployment import Deployment
from job_engine.settings.deployment_file import load_deployment
from job_engine.sources.kinds import running_of
from job_engine.sources.source import Source
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, counted, listed
from querylang.plan.model import EventType, Plan
from querylang.system_errors import refused
from runtime.file_forms import USUAL_CSV
from runtime.instants import EXPECTED, parse_moment
from runtime.json_reader import DamagedJson, json_of_text
from runtime.policies.settings_text import USUAL_TIMES
from runtime.reading import NONE
from runtime.results.outputs import AS_ROLE

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
