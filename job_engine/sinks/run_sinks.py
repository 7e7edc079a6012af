"""The sinks of a run, on the driver: begun, published micro-batch by micro-batch, ended.

Tasks write the results of buckets; the driver writes what buckets send it, and publishes all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from job_engine.sinks import bucket_results
from job_engine.sinks.kinds import MATCHES, Draft, MicroBatch, Publishing, Sink, publishing
from job_engine.sinks.tables import is_in_one
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag, read_table, user_table


def begin(identity: str, sinks: Mapping[str, Sink], newest: int, drafts: Path | None) -> dict[str, Sink]:
    """The sinks of a run that begins; raises InputError where the job may not write.

    identity: names the checkpoint
    newest: number of the newest micro-batch that the checkpoint knows; -1 = none
    drafts: a folder that tasks and the driver see; None = what has no place goes to the driver
    """
    placed = {
        name: sink if sink.place is None else replace(sink, place=sink.place.resolve()) for name, sink in sinks.items()
    }
    if drafts is not None:
        placed = {name: publishing(sink).with_drafts(sink, str(drafts)) for name, sink in placed.items()}
    for kind, names in _by_kind(placed):
        kind.begin(identity, [placed[name] for name in names], newest)
    return placed


def publish(sinks: Mapping[str, Sink], drafts: Sequence[tuple[str, Draft]], batch: MicroBatch) -> None:
    """Make the drafts of a micro-batch visible; `drafts`: with the names of their sinks."""
    own = {word: [draft for name, draft in drafts if name == word] for word in sinks}
    for kind, words in _by_kind(sinks):
        written = [(sinks[word], own[word]) for word in words if own[word]]
        if written:
            kind.publish(batch, written)


def end(identity: str, sinks: Mapping[str, Sink]) -> None:
    """End a run."""
    for kind, _ in _by_kind(sinks):
        kind.end(identity)


def _by_kind(sinks: Mapping[str, Sink]) -> list[tuple[Publishing, list[str]]]:
    """The names of the sinks of each kind."""
    found: dict[str, list[str]] = {}
    for name, sink in sinks.items():
        found.setdefault(sink.package, []).append(name)
    return [(publishing(sinks[names[0]]), names) for names in found.values()]


FROM_DRIVER = 99_999
"""The number in the names of files that the driver writes."""


def publish_batch(
    results: Iterable[bytes], program: Program, sinks: Mapping[str, Sink], batch: MicroBatch, *, is_first: bool
) -> list[bucket_results.Written]:
    """Make what the tasks of a micro-batch wrote visible.

    results: `BucketResults` of its buckets
    is_first: whether an earlier run may have been interrupted in this micro-batch
    """
    found = [bucket_results.BucketResults.from_bytes(data) for data in results]
    drafts = [draft for bucket in found for draft in bucket.drafts]
    tables = [table for bucket in found for table in bucket.tables]
    _refuse_unfinished(tables, drafts)
    _refuse_others(drafts, batch.name)
    written, own = _with_own_files(tables, program, sinks, batch)
    publish(sinks, [*drafts, *own], batch)
    if is_first or any(bucket.is_repeated for bucket in found):
        kept = {draft.place for _, draft in (*drafts, *own)}
        for sink in sinks.values():
            publishing(sink).remove_leftovers(sink, batch, kept)
    return written


def _refuse_unfinished(tables: Sequence[bucket_results.Written], drafts: Sequence[tuple[str, Draft]]) -> None:
    """Raise RuntimeError if a file was begun that nobody finished: its results would be lost."""
    missing = {row.file for row in tables if row.file is not None} - {draft.place for _, draft in drafts}
    if missing:
        raise RuntimeError(f"a task has not finished its files: {', '.join(sorted(missing))}")


def _refuse_others(drafts: Sequence[tuple[str, Draft]], name: str) -> None:
    """Raise RuntimeError for files of another micro-batch: they would replace its results."""
    others = [draft.place for _, draft in drafts if name not in draft.place]
    if others:
        raise RuntimeError(f"a task of micro-batch {name} has written files of another one: {', '.join(others)}")


def _joined(
    tables: Sequence[bucket_results.Written], sinks: Mapping[str, Sink]
) -> Iterator[tuple[bucket_results.Written, pa.Table | None]]:
    """The tables of buckets, those that the driver writes as one per kind, query and schema.

    The table is None for what is written already, and for what no sink takes.
    """
    own: dict[tuple[Tag, str], list[list[pa.Table]]] = {}
    for row in tables:
        if row.file is not None or row.data is None or not bucket_results.has_sink(row.tag, sinks):
            yield row, None
            continue
        table = read_table(row.data)
        if row.tag in bucket_results.FOR_DRIVER:
            yield row, table
            continue
        groups = own.setdefault((row.tag, row.query), [])
        alike = next((group for group in groups if group[0].schema.equals(table.schema)), None)
        if alike is None:  # while one text of a query hands over to another
            groups.append([table])
        else:
            alike.append(table)
    for (tag, query), groups in own.items():
        for group in groups:
            table = pa.concat_tables(group)
            yield bucket_results.Written(tag, query, len(table), None, None), table


def _with_own_files(
    tables: Sequence[bucket_results.Written], program: Program, sinks: Mapping[str, Sink], batch: MicroBatch
) -> tuple[list[bucket_results.Written], list[tuple[str, Draft]]]:
    """Write what buckets have sent for sinks, all of it together."""
    plan = program.plan()
    files = bucket_results.TaskFiles.open(sinks, bucket_results.Attempt(batch, FROM_DRIVER, 0))
    written, in_one = [], list[tuple[str, pa.Table]]()
    try:
        for row, sent in _joined(tables, sinks):
            data = row.data if row.tag in bucket_results.FOR_DRIVER else None
            if sent is None:
                written.append(replace(row, data=data))
                continue
            table = user_table(sent, row.tag, row.query, plan)
            if row.tag is Tag.MATCH and is_in_one(sinks, MATCHES):
                in_one.append((row.query, table))
                continue
            written += [
                replace(part, data=data) for part in bucket_results.put_in_sinks(table, row.tag, row.query, files, plan)
            ]
        if in_one:
            written += bucket_results.put_in_one(in_one, files)
        return written, files.finish()
    except BaseException:
        files.abort()
        raise
