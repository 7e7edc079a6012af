"""A streaming DataFrame of tagged rows from sources that are packed already, or from DataFrames.

Takes packed rows and a program; gives Spark's stateful operator over them. What is fixed for good on a checkpoint is
fixed here: an integer bucket, one binary state value, a processing-time timeout.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupStateTimeout

from querylang.plan.model import Plan
from spark_backend.job.settings import DEFAULT_BUCKETS, Clock
from spark_backend.operator.worker_functions import STATE_DDL
from spark_backend.session import findable
from spark_backend.sources.files import packed_frame
from spark_backend.sources.reading import Reading
from spark_backend.wire.plan_text import on_worker
from spark_backend.wire.program import Program
from spark_backend.wire.tagged_rows import TAGGED_DDL

CONTROL_READING = Reading(source="control", is_control=True)


def tagged_stream(packed: DataFrame, program: Program) -> DataFrame:
    """The operator over packed rows `(bucket, data)`."""
    run = on_worker("spark_backend.operator.worker_functions", "run_bucket", program.to_text())
    timeout = GroupStateTimeout.ProcessingTimeTimeout
    return packed.groupBy("bucket").applyInPandasWithState(run, TAGGED_DDL, STATE_DDL, "append", timeout)


def union_by_name(parts: Mapping[str, DataFrame]) -> DataFrame:
    """All sources as one, in the order of their names.

    Spark tells the sources of a checkpoint apart by position only, and would read every file again after a swap.
    """
    return reduce(DataFrame.union, [parts[name] for name in sorted(parts)])


def stream(
    frames: DataFrame | Mapping[str, DataFrame],
    plan: Plan,
    *,
    control: DataFrame | None = None,
    clock: str = "arrival",
    idle: int | None = 0,
    buckets: int = DEFAULT_BUCKETS,
    reading: Reading | Mapping[str, Reading] | None = None,
) -> DataFrame:
    """Streaming DataFrames of events in, a streaming DataFrame of tagged rows out.

    `frames` by source name, or one; columns as in an event table (`at`, `event`, `ts`, fields). `control`: rows with
    `at` and `event`, an event in Apama's syntax. `idle`: as in a deployment, microseconds; None: only records move time, and
    a source partition that is silent stops the others. The result has the columns of `tagged.TAGGED_DDL`; `decode` makes
    typed DataFrames of it. Write it with the output mode `append`.
    """
    named = {"table": frames} if isinstance(frames, DataFrame) else dict(frames)
    has_idle = Clock(clock) is Clock.ARRIVAL
    program = Program.of(plan, buckets=buckets, clock=Clock(clock), idle=idle if has_idle else None)
    parts = {name: packed_frame(frame, program, _reading(reading, name)) for name, frame in named.items()}
    if control is not None:
        parts["control"] = packed_frame(control, program, CONTROL_READING)
    findable(next(iter(named.values())).sparkSession)
    return tagged_stream(union_by_name(parts), program)


def _reading(reading: Reading | Mapping[str, Reading] | None, name: str) -> Reading:
    if isinstance(reading, Reading):
        return reading
    return (reading or {}).get(name, Reading(source=name))
