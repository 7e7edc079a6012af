"""Refuse records that arrive further in the future than their source allows (`ahead`).

They are discarded when they are read, and move no clock. What counts is the timestamp of the
micro-batch, which Spark logs. So a repeated micro-batch refuses the same records. Where records
are messages of topics, it is the moment of the listing, which is on record before the micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from runtime.admission.outcomes import Outcome
from runtime.admission.selection import furthest_time
from runtime.arrow_types import one_chunk
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.instants import NEVER, NO_TIME
from runtime.results.discards import refused
from runtime.results.ledger import Account, count_records, ledger_table
from runtime.results.schemas import OUTPUT_SCHEMA, Results, discard_schema
from spark_backend.wire.clock import Clock
from spark_backend.wire.packed_rows import BucketInput, GroupRecords
from spark_backend.wire.partition_groups import PartitionGroup
from spark_backend.wire.program import Program

_REFUSED = (Outcome.USED, Outcome.HEARTBEAT, Outcome.CONTROL, Outcome.NULL_KEY, Outcome.NULL_TIME)
"""What a query wants of a record that is refused to it; all others are counted as they are."""


def without_far_records(
    program: Program, groups: Sequence[PartitionGroup], row: BucketInput, timestamp: int, *, is_home: bool
) -> tuple[BucketInput, list[Results]]:
    """The batch without the records that are refused, and what is reported of them."""
    limits = _limits(program, row, timestamp)
    if not limits or program.clock is Clock.PROCESSING:
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
        if len(chosen) and (is_home or not item.is_copy):
            results.append(_refused(groups[item.group], chosen, limit))
    left = tuple(item for item in progress if item is not None)
    return replace(row, progress=left, records=tuple(kept), newest=_newest(groups, row, limits, kept)), results


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
        wanted = np.isin(selection.outcome, _REFUSED)
        outcome = np.where(wanted, np.int8(Outcome.AHEAD), selection.outcome)
        account.update(count_records(query.title, sources, outcome))
        at = np.flatnonzero(wanted)
        reasons = pa.repeat(pa.scalar(Outcome.AHEAD.word), len(at))
        bounds = np.full(len(at), limit)
        rows.append(
            refused(group.plan, query.title, chosen.table, at, reasons, arrival[at], selection.time[at], bounds)
        )
    return Results(
        matches={}, outputs=OUTPUT_SCHEMA.empty_table(), discarded=pa.concat_tables(rows), ledger=ledger_table(account)
    )
