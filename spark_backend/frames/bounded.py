"""A bounded DataFrame of events in, a DataFrame of matches out: the same engine, without state.

Takes DataFrames or files; gives tagged rows, or one query's matches, typed. Time goes on at the end until nothing is
due, unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from querylang.plan.model import Plan
from runtime.replay.replay import source_names
from spark_backend.frames.streaming import union_by_name
from spark_backend.session import findable
from spark_backend.sources.files import file_list, packed_files, packed_frame
from spark_backend.sources.reading import Reading
from spark_backend.wire.decode import matches_frame
from spark_backend.wire.plan_text import on_worker
from spark_backend.wire.program import Program
from spark_backend.wire.tagged_rows import TAGGED_DDL

DEFAULT_BUCKETS = 64
"""A bucket's events must fit in a worker's memory: more, smaller buckets than in a stream."""


def tagged_bounded(packed: DataFrame, program: Program, *, flush: bool = True) -> DataFrame:
    """The operator over all packed rows at once."""
    run = on_worker("spark_backend.operator.worker_functions", "run_bounded", program.to_text(), flush)
    return packed.repartition("bucket").sortWithinPartitions("bucket").mapInArrow(run, TAGGED_DDL)


def match_tagged(
    frames: DataFrame | Mapping[str, DataFrame],
    plan: Plan,
    *,
    buckets: int = DEFAULT_BUCKETS,
    reading: Reading | None = None,
    flush: bool = True,
) -> DataFrame:
    """All that the engine gives for DataFrames of events, as tagged rows."""
    named = {"table": frames} if isinstance(frames, DataFrame) else dict(frames)
    program = Program.of(plan, buckets=buckets)
    parts = {name: packed_frame(frame, program, reading or Reading(source=name)) for name, frame in named.items()}
    findable(next(iter(named.values())).sparkSession)
    return tagged_bounded(union_by_name(parts), program, flush=flush)


def match(frames: DataFrame | Mapping[str, DataFrame], plan: Plan, *, reading: Reading | None = None) -> DataFrame:
    """The matches of DataFrames of events: typed for one query; of several, the columns that all have."""
    return matches_frame(match_tagged(frames, plan, reading=reading), plan)


def match_files(
    session: SparkSession,
    paths: Sequence[Path | str],
    plan: Plan,
    *,
    buckets: int = DEFAULT_BUCKETS,
    reading: Reading | None = None,
    flush: bool = True,
) -> DataFrame:
    """All that the engine gives for files of events, as tagged rows; workers read the files themselves."""
    findable(session)
    program = Program.of(plan, buckets=buckets, sources=source_names(paths))
    packed = packed_files(file_list(session, paths), program, reading or Reading())
    return tagged_bounded(packed, program, flush=flush)
