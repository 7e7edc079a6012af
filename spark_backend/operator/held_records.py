"""Split a bucket's records into released ones and ones to hold until slower sources catch up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from runtime.columns.arrivals import Arrivals
from runtime.instants import NEVER
from runtime.results.ledger import Account, ledger_table
from spark_backend.operator.epoch_records import QueriesAt
from spark_backend.operator.group_clock import ReleaseLimits
from spark_backend.wire.packed_rows import GroupRecords


def split_released(
    records: Iterable[GroupRecords], limits: Sequence[ReleaseLimits], topic_sources: Collection[str] = ()
) -> tuple[tuple[GroupRecords, ...], tuple[GroupRecords, ...]]:
    """The released records in order of their sources' ranks, and the records to hold.

    limits: per partition group
    topic_sources: as in `Program`

    The held records of one source, group and kind are joined.
    """
    released: list[GroupRecords] = []
    held: dict[tuple[int, bool, str, int, bool], list[GroupRecords]] = {}
    for item in sorted(records, key=attrgetter("rank")):
        by_topic = item.source in topic_sources
        limit = limits[item.group].released_before(item.source, item.arrivals, by_topic=by_topic)
        is_unlimited = isinstance(limit, int) and limit == NEVER
        is_released = None if is_unlimited else item.arrivals.system("arrival") < limit
        if is_released is None or is_released.all():
            released.append(item)
            continue
        if is_released.any():
            released.append(_chosen(item, is_released))
        kind = (item.group, item.is_copy, item.source, item.rank, item.refuses)
        held.setdefault(kind, []).append(_chosen(item, ~is_released))
    joined = [replace(some[0], arrivals=Arrivals.concat([item.arrivals for item in some])) for some in held.values()]
    return tuple(released), tuple(joined)


def _chosen(records: GroupRecords, rows: NDArray[np.bool_]) -> GroupRecords:
    return replace(records, arrivals=records.arrivals.take(np.flatnonzero(rows)))


def held_ledger(
    queries: QueriesAt, before: Sequence[GroupRecords], after: Sequence[GroupRecords], *, is_home: bool
) -> pa.Table:
    """Ledger changes for held records: received and pending.

    When it is released, both counts are reversed, because its engine counts it from then on.
    """
    account: Account = Account()
    for records, sign in ((before, -1), (after, 1)):
        for item in records:
            if item.is_copy and not is_home:
                continue
            for own, titles in queries.of_counted(item):
                for source in pc.value_counts(own.table.column("_source")).to_pylist():
                    for title in titles:
                        for word in ("received", "pending"):
                            account[title, source["values"], word] += sign * source["counts"]
    return ledger_table(account)
