"""Read the rows of a step: what they bring, what is refused, and which changes they ask for.

Records that arrive further in the future than their source allows (`ahead`) are discarded here, and
move no clock. What counts is the timestamp of the micro-batch, which the driver logs. So a repeated
micro-batch refuses the same records. Where records are messages of topics, it is the moment of the
listing, which is on record before the micro-batch.

Changes of queries that the control stream asks for are taken out: the driver does them, not the
engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from job_engine.wire.clock_sources import Clock
from job_engine.wire.packed_rows import CONTROL, HOME, BucketInput, GroupRecords, RefusedFile, Signal, unpack_row
from job_engine.wire.partition_groups import PartitionGroup
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag, TaggedRow
from querylang.dataclass import dataclass, replace
from querylang.plan.model import Plan
from runtime.admission import Outcome, furthest_time
from runtime.column_types import one_chunk
from runtime.columns.arrivals import Arrivals, RecordKind, in_arrival_order
from runtime.instants import NEVER, NO_TIME
from runtime.reading import ControlError, parse_change
from runtime.results.ledger import Account, count_records, ledger_table
from runtime.results.outputs import Refused, refused_file, refused_records
from runtime.results.schemas import OUTPUT_SCHEMA, Results, discard_schema

_REFUSED = (Outcome.USED, Outcome.HEARTBEAT, Outcome.CONTROL, Outcome.NULL_KEY, Outcome.NULL_TIME)
"""What a query wants of a record that is refused to it; all others are counted as they are."""

ASKED_SCHEMA = pa.schema([("origin", pa.string()), ("at", pa.int64()), ("text", pa.string())])
"""One row per change: where its record is, its arrival in µs, and the control event."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One bucket in one micro-batch.

    bucket: counts through all plans of the program
    timestamp: of the micro-batch, ms
    plan: that the bucket belongs to
    groups: its partition groups; those of the last epoch, if there are any
    is_home: whether this bucket counts and reports what all buckets have in common
    """

    program: Program
    bucket: int
    timestamp: int
    plan: Plan
    groups: tuple[PartitionGroup, ...]
    is_home: bool

    @staticmethod
    def of(program: Program, bucket: int, timestamp: int) -> Visit:
        """The visit of a bucket at `timestamp`, ms."""
        index = program.plan_index(bucket)
        is_home = bucket % program.buckets == HOME
        return Visit(program, bucket, timestamp, program.plan(index), program.groups(index), is_home)


@dataclass(frozen=True, slots=True)
class ReadRows:
    """What the rows of a step bring.

    inputs: batches in the order of their sources, without what is refused and changes of queries
    signals: what is asked of the bucket
    asked: control records (of one partition group) that ask for changes
    results: counts and discards of what was not sent or is refused
    """

    inputs: tuple[BucketInput, ...]
    signals: frozenset[Signal]
    asked: tuple[pa.Table, ...]
    results: tuple[Results, ...]

    @property
    def newest(self) -> int:
        """The furthest source time of the records, µs; NO_TIME = none has one."""
        return max((item.newest for item in self.inputs), default=NO_TIME)

    def asked_changes(self) -> Iterator[TaggedRow]:
        """The changes that the driver is asked for, in order of arrival."""
        if self.asked:
            table = in_arrival_order(pa.concat_tables(self.asked))
            places = zip(
                *(table.column(name).to_pylist() for name in ("_source", "_partition", "_offset")), strict=True
            )
            origins = [f"{source}/{partition}/{offset}" for source, partition, offset in places]
            columns = [pa.array(origins), table.column("_arrival"), table.column("_text")]
            yield TaggedRow(Tag.ASKED, "", pa.table(columns, schema=ASKED_SCHEMA))


def read(visit: Visit, rows: Sequence[bytes], signal: Signal | None = None) -> ReadRows:
    """Read packed rows; `signal`: asked of the bucket in addition to those in rows.

    Raises ContainerError for rows of another release.
    """
    batches = sorted((unpack_row(row, visit.plan) for row in rows), key=_first)
    near = [_without_far_records(visit, item) for item in batches]
    inputs, asked = _without_changes(visit.program, [item for item, _ in near])
    signals = frozenset(found for found in (signal, *(item.signal for item in inputs)) if found is not None)
    results = [Results(ledger=item.ledger) for item in inputs]
    results += [_discarded(file, visit.plan) for item in inputs for file in item.refused]
    results += [result for _, discarded in near for result in discarded]
    return ReadRows(inputs, signals, asked, tuple(results))


def _first(row: BucketInput) -> list[tuple[tuple[int, int], str]]:
    """What batches are ordered by, because they come in any order."""
    return sorted((item.first, item.source) for item in row.progress)


def _discarded(file: RefusedFile, plan: Plan) -> Results:
    """A file that is not a table: a discarded row and an error."""
    text = f"the file '{file.source}' is discarded: {file.reason}"
    error = pa.Table.from_pylist(
        [{"kind": "error", "text": text, "query": "", "instance": "", "key": "{}", "_step": -1, "_rank": 0}],
        schema=OUTPUT_SCHEMA,
    )
    return Results(outputs=error, discarded=refused_file(plan, file.source, file.reason))


def _without_far_records(visit: Visit, row: BucketInput) -> tuple[BucketInput, list[Results]]:
    """The batch without the records that are refused, and what is reported of them."""
    limits = _limits(visit.program, row, visit.timestamp)
    if not limits or visit.program.clock is Clock.PROCESSING:
        return row, []
    progress = (item.up_to(limits[item.source]) if item.source in limits else item for item in row.progress)
    kept, results = [], []
    for item in row.records:
        limit = limits.get(item.source)
        is_far = None if limit is None else item.arrivals.system("arrival") > limit
        if limit is None or is_far is None or not is_far.any():
            kept.append(item)
            continue
        unread = item.arrivals.system("kind") < RecordKind.CONTROL
        stays = item.arrivals.take(np.flatnonzero(~is_far | unread))
        if len(stays):
            kept.append(replace(item, arrivals=_not_after(stays, limit)))
        chosen = item.arrivals.take(np.flatnonzero(is_far & ~unread))
        if len(chosen) and (visit.is_home or not item.is_copy):
            results.append(_refused(visit.groups[item.group], chosen, limit))
    left = tuple(item for item in progress if item is not None)
    return replace(row, progress=left, records=tuple(kept), newest=_newest(visit.groups, row, limits, kept)), results


def _newest(
    groups: Sequence[PartitionGroup], row: BucketInput, limits: Mapping[str, int], kept: Sequence[GroupRecords]
) -> int:
    """The furthest source time without the records that are refused, here or in another bucket."""
    if not any(item.arrival > limits.get(item.source, NEVER) for item in row.progress):
        return row.newest
    return max((furthest_time(item.arrivals.table, groups[item.group].selectors) for item in kept), default=NO_TIME)


def _limits(program: Program, row: BucketInput, timestamp: int) -> dict[str, int]:
    """By source: the latest arrival, µs. Readers of topics have decided it."""
    if row.latest is not None:
        return {item.source: row.latest for item in row.records}
    limited = (item for item in program.sources if item.ahead is not None and not item.by_topic)
    return {item.name: timestamp * 1000 + item.ahead for item in limited if item.ahead is not None}


def _not_after(arrivals: Arrivals, limit: int) -> Arrivals:
    """Records that cannot be read are refused anyway: they must not wait for the far future."""
    arrival = arrivals.system("arrival")
    if (arrival <= limit).all():
        return arrivals
    table, least = arrivals.table, min(int(arrival.min()), limit)
    position = table.schema.get_field_index("_arrival")
    moved = pa.array(np.where(arrival > limit, least, arrival))
    return Arrivals(table.set_column(position, table.schema.field(position), moved))


def _refused(group: PartitionGroup, chosen: Arrivals, limit: int) -> Results:
    """Discarded rows and the account of each query that wanted these records."""
    account, rows = Account(), [discard_schema(group.plan).empty_table()]
    kinds, arrival = chosen.system("kind").astype(np.int64), chosen.system("arrival")
    sources = one_chunk(chosen.table.column("_source"))
    for query, selector in zip(group.plan.queries, group.selectors, strict=True):
        selection = selector.select(chosen.table, kinds)
        of_all = selector.outcomes(chosen.table, kinds)
        wanted = np.isin(of_all, _REFUSED)
        outcome = np.where(wanted, np.int8(Outcome.AHEAD), of_all)
        account.update(count_records(query.title, sources, outcome))
        at = np.flatnonzero(wanted)
        reasons, bounds = np.full(len(at), np.int8(Outcome.AHEAD)), np.full(len(at), limit)
        refused = Refused(at, reasons, arrival[at], selection.time[at], bounds)
        rows.append(refused_records(group.plan, query.title, chosen.table, refused))
    return Results(
        matches={}, outputs=OUTPUT_SCHEMA.empty_table(), discarded=pa.concat_tables(rows), ledger=ledger_table(account)
    )


def _without_changes(
    program: Program, inputs: Sequence[BucketInput]
) -> tuple[tuple[BucketInput, ...], tuple[pa.Table, ...]]:
    """The batches without well-formed changes, if the control stream may ask for them, and these.

    What is wrong with others the engines answer.
    """
    if not program.live:
        return tuple(inputs), ()
    left: list[BucketInput] = []
    asked: list[pa.Table] = []
    for item in inputs:
        parts: list[GroupRecords] = []
        for part in item.records:
            is_change = _is_change(part)
            if not is_change.any():
                parts.append(part)
                continue
            if part.group == 0:
                asked.append(part.arrivals.take(np.flatnonzero(is_change)).table)
            parts.append(replace(part, arrivals=part.arrivals.take(np.flatnonzero(~is_change))))
        left.append(replace(item, records=tuple(parts)))
    return tuple(left), tuple(asked)


def _is_change(records: GroupRecords) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found = np.zeros(len(records.arrivals), np.bool_)
    if records.source != CONTROL:
        return found
    texts = records.arrivals.table.column("_text").to_pylist()
    for row in np.flatnonzero(records.arrivals.system("kind") == RecordKind.CONTROL).tolist():
        with suppress(ControlError):
            found[row] = parse_change(texts[row] or "") is not None
    return found
