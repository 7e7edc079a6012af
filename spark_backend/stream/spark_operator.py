"""Apply the operator to a DataFrame of packed rows: streaming with state, or bounded without.

A checkpoint fixes the types used here for good: an integer bucket, one binary state value, a
processing-time timeout, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import TAGGED_DDL
from spark_backend.stream.worker_calls import on_worker

STATE_DDL = "data binary"
_FUNCTIONS = "spark_backend.stream.worker_functions"


def tagged_stream(packed: DataFrame, program: Program) -> DataFrame:
    """A streaming DataFrame of tagged rows."""
    return bucket_stream(packed, on_worker(_FUNCTIONS, "run_bucket", program.to_text()), TAGGED_DDL)


def tagged_user_stream(packed: DataFrame, program: Program) -> DataFrame:
    """The same for the writer of a user, who cannot see what is not a match.

    Workers log the first discarded record. There are timeouts only if time advances without
    records: with them Spark always sees one more micro-batch, so that a bounded trigger never ends.
    """
    run = on_worker(_FUNCTIONS, "run_bucket_of_user", program.to_text())
    return bucket_stream(packed, run, TAGGED_DDL, has_timeouts=program.needs_timeouts)


def bucket_stream(packed: DataFrame, run: Callable[..., Any], ddl: str, *, has_timeouts: bool = True) -> DataFrame:
    """A streaming DataFrame of what `run` gives for each bucket; `ddl`: its columns."""
    timeout = GroupStateTimeout.ProcessingTimeTimeout if has_timeouts else GroupStateTimeout.NoTimeout
    return packed.groupBy("bucket").applyInPandasWithState(run, ddl, STATE_DDL, "append", timeout)


def start_workers(session: SparkSession) -> None:
    """Let Python workers start and load packages, as many as run at once."""
    tasks = session.sparkContext.defaultParallelism
    rows = session.range(0, tasks, 1, tasks).mapInArrow(on_worker(_FUNCTIONS, "import_packages"), "id long")
    rows.write.format("noop").mode("overwrite").save()


def tagged_bounded(
    packed: DataFrame, program: Program, *, flush: bool = True, logs_discards: bool = False
) -> DataFrame:
    """A DataFrame of tagged rows.

    flush: time advances at the end until no timer is left
    logs_discards: workers log the first discarded record, for users who see matches only
    """
    name = "run_bounded_of_user" if logs_discards else "run_bounded"
    run = on_worker(_FUNCTIONS, name, program.to_text(), flush)
    return packed.repartition("bucket").sortWithinPartitions("bucket").mapInArrow(run, TAGGED_DDL)
