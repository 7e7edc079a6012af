"""What one bucket gave in one micro-batch, written to sinks by the task that made it.

Only what the driver needs travels through the JVM: numbers of rows, names of files, and tables of
kinds that are for the driver.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from job_engine.sinks.kinds import MATCHES, Draft, Layout, MicroBatch, Sink, TaskWriter, publishing, writing
from job_engine.sinks.names import by_channel, channels, match_folder
from job_engine.sinks.tables import is_in_one, one_schema, one_table
from job_engine.wire.packed_rows import pack, unpack
from job_engine.wire.program import Program, last_label, task_of
from job_engine.wire.tagged_rows import Tag, TaggedRow, schema_of, spread_schema, user_table
from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import Plan, QueryPlan
from runtime.results.ledger import RECEIVED

if TYPE_CHECKING:
    import pyarrow as pa


# The files that the buckets of one task share: a file per part of a sink, and not one per bucket.
#
# Spark does not say when a task has called its last bucket. But where all buckets have a step, they
# are called in order of their labels, so the one with the largest label finishes the files.

Sinks = Mapping[str, Sink]
"""By the name that a deployment file uses."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a task of a micro-batch.

    task: its number among the tasks of the micro-batch
    number: names it among all attempts
    is_repeated: whether an earlier attempt has failed
    """

    batch: MicroBatch
    task: int
    number: int
    is_repeated: bool = False


@dataclass(slots=True)
class TaskFiles:
    """Open files by sink, and whether they are finished."""

    attempt: Attempt
    sinks: Sinks
    writers: Mapping[str, TaskWriter]
    is_finished: bool = field(default=False)

    @staticmethod
    def open(sinks: Sinks, attempt: Attempt, number: int | None = None) -> TaskFiles:
        """Nothing is written yet; `number`: in the names of files, None = that of the task."""
        own = attempt.task if number is None else number
        writers = {word: writing(sink).open(sink, attempt.batch, own, attempt.number) for word, sink in sinks.items()}
        return TaskFiles(attempt, sinks, writers)

    def finish(self) -> list[tuple[str, Draft]]:
        """Complete the files; gives them with the names of their sinks."""
        self.is_finished = True
        return [(word, draft) for word, writer in self.writers.items() for draft in writer.finish()]

    def abort(self) -> None:
        """Remove the files."""
        self.is_finished = True
        for writer in self.writers.values():
            writer.abort()


_of_this_process: TaskFiles | None = None
"""A Python worker runs one task at a time."""


def shared_files(sinks: Sinks, attempt: Attempt) -> TaskFiles:
    """The files of a task; those that an attempt before it left open are removed."""
    global _of_this_process  # noqa: PLW0603 # Spark calls us once per bucket, and keeps nothing in between
    files = _of_this_process
    if files is None or files.attempt != attempt:
        if files is not None and not files.is_finished:
            files.abort()
        files = _of_this_process = TaskFiles.open(sinks, attempt)
    return files


COUNTS = ("records", "matches", "outputs", "errors", "discarded", "pending")
"""Numbers that Spark adds up for its own progress events; `pending`: matches that wait."""

RESULTS_VERSION = 1
_USE = "results"

SINK_OF = {
    Tag.MATCH: "matches",
    Tag.OUTPUT: "output",
    Tag.ERROR: "output",
    Tag.DISCARDED: "discarded",
    Tag.LEDGER: "ledger",
}
"""The sink that each kind of tagged row goes to, by its name in a deployment file."""

FOR_DRIVER = {Tag.LEDGER, Tag.METRIC, Tag.SOURCE, Tag.TIMELINE, Tag.REPORT, Tag.ANSWER, Tag.ASKED}
"""Kinds whose tables are sent to the driver; of the others it gets the number of rows."""

SENT = 256 << 10
"""Bytes. A bucket that is called alone sends at most so much to the driver, which writes it."""

OWN_FILES = 100_000
"""What is added to the number of a bucket that writes files of its own, to name them."""


@dataclass(frozen=True, slots=True)
class Written:
    """One table of one bucket.

    tag, query, rows: its kind, its query's title and its number of rows
    file: where its sink puts it; None = it has no sink, or the driver writes it
    data: the table itself, for the driver
    """

    tag: Tag
    query: str
    rows: int
    file: str | None
    data: bytes | None


@dataclass(frozen=True, slots=True)
class BucketResults:
    """What the driver gets of a bucket.

    drafts: files that are complete, with the names of their sinks
    is_repeated: whether an earlier attempt at the task has failed
    """

    tables: tuple[Written, ...]
    drafts: tuple[tuple[str, Draft], ...]
    is_repeated: bool

    def to_bytes(self) -> bytes:
        """The only value that travels through the JVM."""
        header = {
            "tables": [[row.tag, row.query, row.rows, row.file, row.data is not None] for row in self.tables],
            "drafts": [
                [sink, draft.path, draft.place, draft.details, draft.data is not None] for sink, draft in self.drafts
            ],
            "is_repeated": self.is_repeated,
        }
        contents = (*(row.data for row in self.tables), *(draft.data for _, draft in self.drafts))
        return pack(_USE, RESULTS_VERSION, header, [data for data in contents if data is not None])

    @staticmethod
    def from_bytes(data: bytes) -> BucketResults:
        """The inverse of `to_bytes`."""
        header, parts = unpack(_USE, RESULTS_VERSION, data)
        content = iter(parts)
        tables = tuple(
            Written(Tag(tag), query, rows, file, bytes(next(content)) if has_data else None)
            for tag, query, rows, file, has_data in header["tables"]
        )
        drafts = tuple(
            (sink, Draft(path, place, details, bytes(next(content)) if has_data else None))
            for sink, path, place, details, has_data in header["drafts"]
        )
        return BucketResults(tables, drafts, header["is_repeated"])


def counts(plan: Plan, rows: Sequence[TaggedRow]) -> dict[str, int]:
    """What a bucket did, by the names in COUNTS."""
    import pyarrow.compute as pc

    by_kind = Counter[Tag]()
    records = pending = 0
    for row in rows:
        by_kind[row.tag] += row.table.num_rows
        if row.tag is Tag.METRIC:
            pending += pc.sum(row.table.column("waiting")).as_py() or 0
        elif row.tag is Tag.LEDGER:
            first = pc.equal(row.table.column("query"), plan.queries[0].public_title)  # all queries receive all records
            received = pc.and_(first, pc.equal(row.table.column("what"), RECEIVED))
            records += pc.sum(row.table.column("count").filter(received)).as_py() or 0
    kinds = (Tag.MATCH, Tag.OUTPUT, Tag.ERROR, Tag.DISCARDED)
    return dict(zip(COUNTS, (records, *(by_kind[kind] for kind in kinds), pending), strict=True))


def write_results(
    program: Program, bucket: int, rows: Sequence[TaggedRow], sinks: Sinks, attempt: Attempt, *, is_alone: bool
) -> BucketResults:
    """Write the tables of a bucket.

    is_alone: whether other buckets may have no step in this micro-batch
    """
    plan, label = program.plan(), program.labels[bucket]
    is_shared = not is_alone and program.tasks is not None and task_of(label, program.tasks) == attempt.task
    files = shared_files(sinks, attempt) if is_shared else None
    if files is None or files.is_finished:
        is_shared = False
        files = TaskFiles.open(sinks, attempt, OWN_FILES + bucket) if _is_large(rows, sinks) else None
    if files is None:
        return BucketResults(tuple(_sent(row, sinks) for row in rows), (), attempt.is_repeated)
    try:
        tables = tuple(_all_written(rows, files, plan))
        is_last = not is_shared or label == last_label(label, program.buckets, program.tasks or 1)
        drafts = tuple(files.finish()) if is_last else ()
    except BaseException:
        files.abort()
        raise
    return BucketResults(tables, drafts, attempt.is_repeated)


def _is_large(rows: Sequence[TaggedRow], sinks: Sinks) -> bool:
    return sum(row.table.nbytes for row in rows if has_sink(row.tag, sinks) and row.tag not in FOR_DRIVER) > SENT


def has_sink(tag: Tag, sinks: Sinks) -> bool:
    """Whether some sink takes tables of this kind."""
    return SINK_OF.get(tag) in sinks or (tag is Tag.OUTPUT and bool(channels(sinks)))


def _all_written(rows: Sequence[TaggedRow], files: TaskFiles, plan: Plan) -> Iterator[Written]:
    in_one = [row for row in rows if row.tag is Tag.MATCH and is_in_one(files.sinks, MATCHES)]
    if in_one:
        yield from put_in_one([(row.query, user_table(row.table, row.tag, row.query, plan)) for row in in_one], files)
    for row in rows:
        if not (in_one and row.tag is Tag.MATCH):
            yield from _written(row, files, plan)


def put_in_one(matches: Sequence[tuple[str, pa.Table]], files: TaskFiles) -> list[Written]:
    """Write matches to the table of all queries, which their sink has.

    matches: by title of a query, its own table; at least one
    """
    import pyarrow as pa

    file = files.writers[MATCHES].write("", pa.concat_tables([one_table(table) for _, table in matches]))
    return [Written(Tag.MATCH, query, table.num_rows, file, None) for query, table in matches]


def _written(row: TaggedRow, files: TaskFiles, plan: Plan) -> Iterator[Written]:
    data = row.data() if row.tag in FOR_DRIVER else None
    if not has_sink(row.tag, files.sinks):
        yield Written(row.tag, row.query, row.table.num_rows, None, data)
        return
    table = user_table(row.table, row.tag, row.query, plan)
    for written in put_in_sinks(table, row.tag, row.query, files, plan):
        yield replace(written, data=data)


def put_in_sinks(table: pa.Table, tag: Tag, query: str, files: TaskFiles, plan: Plan) -> Iterator[Written]:
    """Write a table as users get it to the sinks of its rows."""
    parts = by_channel(table, files.sinks) if tag is Tag.OUTPUT else [(SINK_OF.get(tag, ""), table)]
    for sink, part in parts:
        writer = files.writers.get(sink)
        file = None if writer is None else writer.write(part_of(tag, query, plan), part)
        yield Written(tag, query, part.num_rows, file, None)


def _sent(row: TaggedRow, sinks: Sinks) -> Written:
    """A table on its way to the driver, which wants all of them where there are no sinks at all."""
    is_wanted = not sinks or row.tag in FOR_DRIVER or has_sink(row.tag, sinks)
    data = row.data() if is_wanted else None
    return Written(row.tag, row.query, row.table.num_rows, None, data)


def part_of(tag: Tag, query: str, plan: Plan) -> str:
    """The part of its sink that a table belongs to."""
    return match_folder(plan.query(query)) if tag is Tag.MATCH else ""


def refuse_unwritable(name: str, sink: Sink, plan: Plan) -> None:
    """Raise InputError if results cannot be written to the sink of that name; writes nothing."""
    publishing(sink).refuse_unwritable(sink, _parts_of(name, sink, plan))


def refuse_mixtures(sink: Sink, before: Sequence[Plan], plan: Plan) -> None:
    """Raise InputError if matches of two texts of a query do not fit into one place.

    before: plans whose matches may be still to be written
    """
    if sink.layout is not Layout.ONE:
        publishing(sink).refuse_mixtures(sink, _mixtures(before, plan))


def _mixtures(before: Sequence[Plan], plan: Plan) -> Iterator[tuple[str, Sequence[pa.Schema]]]:
    texts: dict[str, dict[int, tuple[Plan, QueryPlan]]] = {match_folder(query): {} for query in plan.queries}
    for each in (*before, plan):
        for query in each.queries:  # while a text hands over, there are two of one name
            texts.get(match_folder(query), {})[id(query)] = each, query
    for part, found in texts.items():
        if len(found) > 1:
            yield part, [spread_schema(each, query) for each, query in found.values()]


class _Schemas(Mapping[str, "pa.Schema"]):
    """Schemas by part of a sink, made when somebody asks for one: files of matches need none."""

    def __init__(self, made: Mapping[str, Callable[[], pa.Schema]]) -> None:
        self._made = made

    def __getitem__(self, part: str) -> pa.Schema:
        return self._made[part]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _parts_of(name: str, sink: Sink, plan: Plan) -> Mapping[str, pa.Schema]:
    """By part of the sink of that name: the schema of what is written there."""
    if name == MATCHES and sink.layout is Layout.ONE:
        return {"": one_schema(spread_schema(plan, plan.queries[0]))} if plan.queries else {}
    if name == MATCHES:
        return _Schemas({match_folder(query): partial(spread_schema, plan, query) for query in plan.queries})
    tag = next((tag for tag, sink in SINK_OF.items() if sink == name), Tag.OUTPUT)  # of a channel
    return {"": schema_of(plan, tag)}


def sinks_to_text(sinks: Mapping[str, Sink]) -> str:
    """What workers need of the sinks, as JSON text."""
    return json.dumps({name: sink.to_plain() for name, sink in sinks.items()})
