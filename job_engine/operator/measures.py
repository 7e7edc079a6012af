"""What a bucket reports after a step: sizes, source watermarks, definitive times of queries.

The driver keeps these tables beside the checkpoint, for `ensue status`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from job_engine.operator.bucket_state import BucketState
from job_engine.operator.clocks import NO_CLOCK, GroupClock, file_name, place_name
from job_engine.operator.reading import Visit
from job_engine.wire.clock_sources import Clock
from job_engine.wire.packed_rows import HOME
from job_engine.wire.tagged_rows import Tag, TaggedRow
from querylang.plan.model import TimelineKind
from runtime.engine import Engine
from runtime.instants import NO_TIME

METRIC_SCHEMA = pa.schema(
    [
        ("bucket", pa.int32()),
        ("timestamp", pa.int64()),
        ("state_bytes", pa.int64()),
        ("kept", pa.int64()),
        ("held", pa.int64()),
        ("waiting", pa.int64()),
        ("next_due", pa.int64()),
        ("seconds", pa.float64()),
        ("keys", pa.int64()),
        ("epoch", pa.int64()),
        ("newest", pa.int64()),
    ]
)
"""One row per step.

timestamp: of the micro-batch, ms
state_bytes: size of the saved state
kept: events in windows or pending
held: records that slower sources hold back
waiting: matches that wait
next_due: when the next of them is due, µs; null = none waits
seconds: time spent in the step
keys: those that have state, summed over the queries; estimated where there are many
epoch: the least number of an epoch that some engine is in; 0 = the queries never change
newest: the furthest source time of the records of the step, µs; null = none has one
"""

SOURCE_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("partition", pa.int64()),
        ("arrival", pa.int64()),
        ("updated", pa.int64()),
    ]
)
"""One row per source partition, as in `SourceWatermark`; all buckets have the same."""


TIMELINE_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("timeline", pa.string()),
        ("bound", pa.int64()),
        ("newest", pa.int64()),
        ("arrival", pa.int64()),
        ("waits_for", pa.list_(pa.string())),
        ("is_behind", pa.bool_()),
    ]
)
"""The time that queries and their timelines have reached.

timeline: a timeline that keys of the query share; null = the query's definitive time, the least
    of all keys
bound: its watermark, µs; null = none yet
newest: its newest source time, µs
arrival: its last arrival time, µs; of a query, its clock
waits_for: the source partitions and listed files that a query's clock waits for
is_behind: whether others have been read further than its clock
"""


def measures(visit: Visit, state: BucketState, newest: int, *, state_bytes: int, seconds: float) -> list[TaggedRow]:
    """The tables of one step; parameters as in METRIC_SCHEMA."""
    program, groups, timestamp = visit.program, visit.groups, visit.timestamp
    clocks = [state.clock.of(group.sources, timestamp, program.idle_times) for group in groups]
    waiting = [engine.waiting() for engine in state.engines]
    values = {
        "bucket": [visit.bucket],
        "timestamp": [timestamp],
        "state_bytes": [state_bytes],
        "kept": [sum(engine.retained() for engine in state.engines)],
        "held": [_held_back(state, clocks, visit.is_home)],
        "waiting": [sum(count for count, _ in waiting)],
        "next_due": [min((due for _, due in waiting if due is not None), default=None)],
        "seconds": [seconds],
        "keys": [sum(engine.keys() for engine in state.engines)],
        "epoch": [min(state.epochs, default=0)],
        "newest": [None if newest == NO_TIME else newest],
    }
    rows = [TaggedRow(Tag.METRIC, "", pa.table(values, schema=METRIC_SCHEMA))]
    if visit.is_home:
        rows.append(TaggedRow(Tag.SOURCE, "", _sources(state)))
    for group, engine, clock in zip(groups, state.engines, clocks, strict=True):
        # time is the same in all buckets that have a group: one of them reports it
        if visit.bucket % program.buckets == (group.only_bucket(program.buckets) or HOME):
            waits = clock if program.clock is Clock.ARRIVAL else NO_CLOCK
            rows.append(TaggedRow(Tag.TIMELINE, "", _timelines(engine, waits)))
    return rows


def _timelines(engine: Engine, clock: GroupClock) -> pa.Table:
    """The clock and definitive time of each query, and its timelines if these are few.

    There may be as many substreams as keys, so these are not listed.
    """
    furthest = clock.furthest
    waits_for = [place_name(source, None if number < 0 else number) for source, number in clock.waits_for(engine.clock)]
    waits_for += [file_name(files.source, files.path) for files in clock.waits_for_files(engine.clock)]
    is_behind = furthest is not None and (engine.clock is None or engine.clock < furthest)
    definitive, titles = engine.least_definitive(), [query.public_title for query in engine.plan.queries]
    of_queries = {"bound": [definitive[query.title] for query in engine.plan.queries]}
    of_all = {"timeline": None, "newest": None, "arrival": engine.clock, "waits_for": waits_for, "is_behind": is_behind}
    columns = {"query": titles, **of_queries, **{name: [value] * len(titles) for name, value in of_all.items()}}
    table = pa.table([columns[name] for name in TIMELINE_SCHEMA.names], schema=TIMELINE_SCHEMA)
    kinds = {item.policy.timeline for query in engine.plan.queries for item in query.inputs if item.policy is not None}
    if not kinds or not kinds <= {TimelineKind.PARTITION, TimelineKind.EVENT_TYPE}:
        return table
    timelines = engine.clocks().rename_columns(TIMELINE_SCHEMA.names[:5])
    return pa.concat_tables([table, timelines], promote_options="permissive").cast(TIMELINE_SCHEMA)


def _held_back(state: BucketState, clocks: Sequence[GroupClock], is_home: bool) -> int:
    """The number of held records that are not newer than the furthest source of their queries."""
    held = 0
    for item in state.held:
        furthest = clocks[item.group].furthest
        if furthest is not None and (is_home or not item.is_copy):
            held += int(np.count_nonzero(item.arrivals.system("arrival") <= furthest))
    return held


def _sources(state: BucketState) -> pa.Table:
    names = SOURCE_SCHEMA.names
    rows = [dict(zip(names, row[: len(names)], strict=True)) for row in state.clock.to_plain()]
    return pa.Table.from_pylist(rows, SOURCE_SCHEMA)
