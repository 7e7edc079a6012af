"""Match bounded DataFrames or files of events in batch: the same operator, without state.

At the end time advances until no timer is left, unless `flush` is False.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from job_engine.sources.reading import Reading
from job_engine.wire.program import Program, with_script
from querylang.plan.model import Plan
from runtime.columns.arrivals import place_of
from runtime.replay.epochs import Script
from spark_backend.frames.change_records import BoundedSource
from spark_backend.frames.files import file_list, packed_files
from spark_backend.frames.frames import columns_of_all, packed_frame
from spark_backend.frames.streaming import union_by_name
from spark_backend.session import with_package_path
from spark_backend.stream.spark_operator import tagged_bounded

DEFAULT_BUCKETS = 64
"""More than in a stream, because all events of a bucket must fit into a worker's memory."""


def match_tagged(
    frames: DataFrame | Mapping[str, DataFrame],
    plan: Plan,
    *,
    buckets: int = DEFAULT_BUCKETS,
    reading: Reading | Mapping[str, Reading] | None = None,
    flush: bool = True,
    changing: Changing | None = None,
    logs_discards: bool = False,
) -> DataFrame:
    """All results for DataFrames of events, as tagged rows; `frames`: by source name, or one.

    changing: how the queries change; `plan` is then that of its script
    logs_discards: as of `tagged_bounded`
    """
    program = _program(plan, buckets, changing)
    readings = _readings(frames, reading)
    parts = {name: packed_frame(frame, program, own) for name, (frame, own) in readings.items()}
    with_package_path(next(iter(readings.values()))[0].sparkSession)
    return tagged_bounded(union_by_name(parts), program, flush=flush, logs_discards=logs_discards)


@dataclass(frozen=True, slots=True)
class Changing:
    """How control events change the queries.

    changes: the records that the script counts
    """

    script: Script
    changes: pa.Table


def frame_sources(
    frames: DataFrame | Mapping[str, DataFrame], reading: Reading | Mapping[str, Reading] | None
) -> list[BoundedSource]:
    """What `match_tagged` reads."""
    with_package_path(next(iter(_readings(frames, reading).values()))[0].sparkSession)
    return [BoundedSource(frame, own, is_files=False) for frame, own in _readings(frames, reading).values()]


def file_source(session: SparkSession, paths: Sequence[Path | str], readings: Sequence[Reading]) -> BoundedSource:
    """What `match_files` reads."""
    with_package_path(session)
    return BoundedSource(file_list(session, paths, readings), Reading(), is_files=True)


def _readings(
    frames: DataFrame | Mapping[str, DataFrame], readings: Reading | Mapping[str, Reading] | None
) -> dict[str, tuple[DataFrame, Reading]]:
    named = {"table": frames} if isinstance(frames, DataFrame) else dict(frames)
    given = dict.fromkeys(named, readings) if isinstance(readings, Reading) else readings or {}
    own = {name: given.get(name) or Reading(source=name) for name in named}
    elsewhere = columns_of_all(named)
    return {
        name: (named[name], replace(own[name], place=place_of(rank), elsewhere=elsewhere))
        for rank, name in enumerate(sorted(named))
    }


def _program(plan: Plan, buckets: int, changing: Changing | None) -> Program:
    program = Program.of(plan, buckets=buckets, is_bounded=True)
    return program if changing is None else with_script(program, changing.script, changing.changes)


def match_files(
    session: SparkSession,
    paths: Sequence[Path | str],
    plan: Plan,
    *,
    readings: Sequence[Reading],
    buckets: int = DEFAULT_BUCKETS,
    flush: bool = True,
    changing: Changing | None = None,
) -> DataFrame:
    """All results for files of events, as tagged rows; workers read the files themselves."""
    with_package_path(session)
    program = _program(plan, buckets, changing)
    packed = packed_files(file_list(session, paths, readings), program)
    return tagged_bounded(packed, program, flush=flush)
