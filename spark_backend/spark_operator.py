"""Apply the operator to a DataFrame of packed rows: streaming with state, or bounded without.

A checkpoint fixes the types used here for good: an integer bucket, one binary state value, a
processing-time timeout, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import TAGGED_DDL
from runtime.temporary import own_folder
from spark_backend.session import is_on_one_machine

# Where tasks of Spark put packed rows for each other.


def new_folder(session: SparkSession) -> Path | None:
    """A folder for the rows of a run; None = its tasks may run on several machines.

    Spark removes it when its own folder for what is temporary goes.
    """
    if not is_on_one_machine(session):
        return None
    parent = getattr(session.sparkContext, "_temp_dir", None)
    return own_folder(parent and Path(parent))


# Functions for Spark to run on its workers: sent by name, so that no code of ours is pickled.


def on_worker(module: str, function: str, *arguments: Any) -> Callable[..., Any]:
    """A callable that runs `module.function(*arguments, *what Spark passes)` on a worker.

    Only the two names and the arguments (plain data) are sent. The function must return an
    iterator, as Spark expects. Raises RuntimeError where Ensue is not installed on the executor.
    """

    def run(*passed: Any) -> Any:
        import importlib

        try:
            importlib.import_module("runtime.threads").set_objects_aside()
            importlib.import_module("spark_backend.executors").use_shipped_kernels()
            target = getattr(importlib.import_module(module), function)
        except ImportError as error:
            message = f"Ensue cannot be imported on a Spark executor ({error}); install it there, or send it along"
            raise RuntimeError(message) from error
        yield from target(*arguments, *passed)

    return run


STATE_DDL = "data binary"
_FUNCTIONS = "spark_backend.worker_functions"


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
