"""What a bucket tells of itself after a call: sizes, the clocks of sources, how far each timeline has come.

Takes a bucket's engines and clocks; gives tagged tables for the driver, which keeps them beside the checkpoint for `ensue status`.
Only bucket HOME tells of the sources' clocks: all buckets have the same.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from querylang.plan.model import TimelineKind
from runtime.engine.engine import Engine
from runtime.instants import NO_TIME
from spark_backend.operator.bucket_state import Saved
from spark_backend.wire.packed_rows import HOME
from spark_backend.wire.program import Program
from spark_backend.wire.tagged_rows import Tag, TaggedRow

METRIC_SCHEMA = pa.schema(
    [
        ("bucket", pa.int32()),
        ("timestamp", pa.int64()),
        ("state_bytes", pa.int64()),
        ("kept", pa.int64()),
        ("held", pa.int64()),
        ("seconds", pa.float64()),
    ]
)
"""One row a call of the operator: the batch's timestamp (ms), the size of the state left, events in windows or pending, records that wait for
slower sources, time spent."""

SOURCE_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("partition", pa.int32()),
        ("arrival", pa.int64()),
        ("reached", pa.int64()),
        ("seen", pa.int64()),
    ]
)
"""One row a source partition: `spark_backend.operator.job_clock.SourceClock`."""


TIMELINE_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("timeline", pa.string()),
        ("bound", pa.int64()),
        ("newest", pa.int64()),
        ("heard", pa.int64()),
    ]
)
"""How far a query's time has come (µs, null: nowhere yet). `timeline` null: the query's definitive time, that of the keys that are
furthest behind; else one of the timelines that its keys share, with its newest time and last arrival."""


def measured(
    program: Program, bucket: int, saved: Saved, timestamp: int, *, state_bytes: int, seconds: float
) -> list[TaggedRow]:
    """The tables of one call."""
    is_home = bucket % program.buckets == HOME
    values = {
        "bucket": [bucket],
        "timestamp": [timestamp],
        "state_bytes": [state_bytes],
        "kept": [sum(engine.retained() for engine in saved.engines)],
        "held": [_held(saved, is_home)],
        "seconds": [seconds],
    }
    rows = [TaggedRow(Tag.METRIC, "", pa.table(values, schema=METRIC_SCHEMA))]
    if is_home:
        rows.append(TaggedRow(Tag.SOURCE, "", _sources(saved)))
    for group, engine in zip(program.groups(program.plan_index(bucket)), saved.engines, strict=True):
        # in all buckets that have a group time has come equally far: one of them tells
        if bucket % program.buckets == (group.only_bucket(program.buckets) or HOME):
            rows.append(TaggedRow(Tag.TIMELINE, "", _timelines(engine)))
    return rows


def _timelines(engine: Engine) -> pa.Table:
    """Source partitions and event types by themselves; of substreams, which may be as many as keys, only the query's definitive time."""
    own = []
    for query in engine.plan.queries:
        definitive = engine.definitive(query.title, (None,) * len(query.keys))
        bound = None if definitive is None or definitive == NO_TIME else definitive
        own.append({"query": query.title, "timeline": None, "bound": bound})
    table = pa.Table.from_pylist(own, TIMELINE_SCHEMA)
    kinds = {item.policy.timeline for query in engine.plan.queries for item in query.inputs if item.policy is not None}
    has_few = kinds <= {TimelineKind.PARTITION, TimelineKind.EVENT_TYPE}
    return pa.concat_tables([table, engine.clocks().cast(TIMELINE_SCHEMA)]) if has_few else table


def _held(saved: Saved, is_home: bool) -> int:
    """How many records have arrived no later than the furthest source has come, and wait all the same."""
    parts = [part.arrivals for part in saved.held if is_home or not part.is_copy]
    return sum(int(np.count_nonzero(part.system("arrival") <= saved.clocks.furthest)) for part in parts)


def _sources(saved: Saved) -> pa.Table:
    rows = [dict(zip(SOURCE_SCHEMA.names, row, strict=True)) for row in saved.clocks.to_plain()]
    return pa.Table.from_pylist(rows, SOURCE_SCHEMA)
