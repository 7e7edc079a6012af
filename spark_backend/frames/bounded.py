"""Match bounded DataFrames or files of events in batch: the same operator, without state.

At the end time advances until no timer is left, unless `flush` is False.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from querylang.plan.model import Plan
from runtime.columns.arrivals import place_of
from spark_backend.frames.streaming import union_by_name
from spark_backend.operator.spark_operator import tagged_bounded
from spark_backend.session import with_package_path
from spark_backend.sources.files import file_list, packed_files
from spark_backend.sources.frames import packed_frame
from spark_backend.sources.reading import Reading
from spark_backend.wire.decode import matches_frame
from spark_backend.wire.program import Program

DEFAULT_BUCKETS = 64
"""More than in a stream, because all events of a bucket must fit into a worker's memory."""


def match_tagged(
    frames: DataFrame | Mapping[str, DataFrame],
    plan: Plan,
    *,
    buckets: int = DEFAULT_BUCKETS,
    reading: Reading | None = None,
    flush: bool = True,
) -> DataFrame:
    """All results for DataFrames of events, as tagged rows; `frames`: by source name, or one."""
    named = {"table": frames} if isinstance(frames, DataFrame) else dict(frames)
    program = Program.of(plan, buckets=buckets, is_bounded=True)
    parts = {
        name: packed_frame(named[name], program, replace(reading or Reading(source=name), place=place_of(rank)))
        for rank, name in enumerate(sorted(named))
    }
    with_package_path(next(iter(named.values())).sparkSession)
    return tagged_bounded(union_by_name(parts), program, flush=flush)


def match(frames: DataFrame | Mapping[str, DataFrame], plan: Plan, *, reading: Reading | None = None) -> DataFrame:
    """The matches in DataFrames of events; columns as in `wire.decode.matches_frame`."""
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
    """All results for files of events, as tagged rows; workers read the files themselves."""
    with_package_path(session)
    program = Program.of(plan, buckets=buckets, is_bounded=True)
    packed = packed_files(file_list(session, paths), program, reading or Reading())
    return tagged_bounded(packed, program, flush=flush)
