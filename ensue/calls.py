"""What users call: `ensue.replay` and `ensue.open` in this process, and on Spark the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ensue.data_options import DataOptions, FrameOptions, TableOptions, public_call
from ensue.queries import Queries
from querylang.errors import InputError, did_you_mean, kind_in_words, listed
from spark_backend.versions import refuse_missing_spark

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from pyspark.sql import DataFrame, SparkSession

    from ensue.answer import Replay
    from ensue.live.open_queries import Live
    from ensue.rendering.scores import Backtest
    from job_engine.job.stages.start import Handle
    from spark_backend.batches import Batch, Streams


# What users call to run queries in this process: `ensue.replay` and `ensue.open`.


@public_call(TableOptions)
def replay(
    queries: Queries | str | Path,
    events: Any,
    *,
    until: str | float | datetime | None = None,
    flush: bool = True,
    **options: Unpack[TableOptions],
) -> Replay:
    """Run queries over event tables, in this process.

    queries: a path, query text, or the result of `load`
    events: a path, a pandas, Polars or Arrow table, a relation of DuckDB, a dataset or reader of
        pyarrow, a list or generator of rows, or a list of tables, which are merged by arrival
    until: time at which to stop: later rows are not processed; None = after the last row
    flush: after the last row, advance time until no timer is left
    options: how rows are read, as `TableOptions` says

    Raises QueryErrors and InputError.
    """
    from ensue import embedded

    return embedded.replay(queries, events, DataOptions(**options), until=until, flush=flush)


@public_call(TableOptions)
def sweep(
    queries: Queries | str | Path,
    events: Any,
    labels: Any,
    vary: Mapping[str, Sequence[Any]],
    *,
    within: str | timedelta | None = None,
    query: str | None = None,
    until: str | float | datetime | None = None,
    flush: bool = True,
    **options: Unpack[TableOptions],
) -> Backtest:
    """Compare the matches with labels for many values of a query's parameters, in one replay.

    queries, events, until, flush: as in `replay`
    labels, within: as of `Replay.backtest`
    vary: by name of a parameter the values to try; all combinations are
    query: whose parameters they are; needed where several have them
    options: how rows are read, as `TableOptions` says; `parameters` gives the other ones

    Raises QueryErrors and InputError.
    """
    from ensue import sweeping

    return sweeping.sweep(
        queries, events, DataOptions(**options), labels, vary, within=within, query=query, until=until, flush=flush
    )


@public_call(TableOptions)
def open(  # noqa: A001  as files are opened
    queries: Queries | str | Path,
    state: str | Path | None = None,
    **options: Unpack[TableOptions],
) -> Live:
    """Open queries for rows that come bit by bit, in this process.

    `send(rows)` and `advance(time)` give what they bring, as answers with `matches`, `outputs`,
    `discarded` and `ledger`; `save(path)` keeps the state in a file. All answers together are the
    replay's, wherever the rows are cut. Without definitions the first rows decide which fields the
    event types have.

    queries: a path, query text, or the result of `load`
    state: a file that `save` has written, to continue there; None = begin without one
    options: how rows are read, as `TableOptions` says

    Raises QueryErrors and InputError.
    """
    from ensue.live.open_queries import Live

    return Live(queries, DataOptions(**options), state)


# What users call to run queries on Spark: DataFrames in, DataFrames out, and deployments.


@public_call(FrameOptions)
def match(
    frames: DataFrame | Mapping[str, DataFrame],
    queries: Queries | str | Path,
    *,
    flat: bool = False,
    **options: Unpack[FrameOptions],
) -> DataFrame:
    """The matches in bounded Spark DataFrames, as a Spark DataFrame.

    Of one query it has a struct per name of the pattern, as in Parquet sinks; of several queries
    the columns that all have, and `batch` has the others.

    frames: one DataFrame, or several by the names of their sources
    flat: a column per field, in place of a struct per name: names are joined by `_`
    options: how rows are read, as `FrameOptions` says

    Raises QueryErrors and InputError.
    """
    refuse_missing_spark()
    from ensue import spark

    return spark.match(frames, queries, DataOptions(**options), flat=flat)


@public_call(FrameOptions)
def batch(
    frames: DataFrame | Mapping[str, DataFrame],
    queries: Queries | str | Path,
    *,
    flat: bool = False,
    **options: Unpack[FrameOptions],
) -> Batch:
    """All results of bounded Spark DataFrames: matches by query, outputs, discards, the ledger.

    Spark keeps them after the first look, until `unpersist` of the batch.

    frames: one DataFrame, or several by the names of their sources
    flat: a column per field, in place of a struct per name: names are joined by `_`
    options: how rows are read, as `FrameOptions` says

    Raises QueryErrors and InputError.
    """
    refuse_missing_spark()
    from ensue import spark

    return spark.batch(frames, queries, DataOptions(**options), flat=flat)


@public_call(FrameOptions)
def stream(
    frames: DataFrame | Mapping[str, DataFrame],
    queries: Queries | str | Path,
    *,
    flat: bool = False,
    control: DataFrame | None = None,
    clock: str = "arrival",
    idle: str | None = None,
    apply: bool = False,
    **options: Unpack[FrameOptions],
) -> DataFrame:
    """The matches in streaming DataFrames, as a streaming DataFrame with the columns of `match`.

    It is ready for any `writeStream` with the output mode `append`. The `observedMetrics` of each
    micro-batch have a row `ensue` that counts `matches`, `outputs`, `errors` and `discarded`;
    workers log the first record that they discard for a reason. `streams` gives outputs and
    discards as tables.

    Without `idle` a bounded trigger (`availableNow`) ends when the input has been processed. Where
    time advances without records (`idle`, the clock `processing`, policies that say so) it does not
    end: Spark always sees one more micro-batch.

    frames: one streaming DataFrame, or several by the names of their sources
    control: a streaming DataFrame with `at` and `event`, control events as text; None = none
    clock: `arrival` or `processing`
    idle: with the clock `arrival`, how long a source is silent before time advances without it,
        such as `1 minute`; `none` = never; None = as its ordering policy says, otherwise never
    flat: a column per field, in place of a struct per name: names are joined by `_`
    apply: whether the queries go by today's rule for nulls from now on, where a checkpoint of an
        earlier version has kept its own
    options: how rows are read, as `FrameOptions` says

    Raises QueryErrors and InputError.
    """
    refuse_missing_spark()
    from ensue import spark

    return spark.stream(
        frames, queries, DataOptions(**options), spark.StreamOptions(control, clock, idle, apply), flat=flat
    )


@public_call(FrameOptions)
def streams(
    frames: DataFrame | Mapping[str, DataFrame],
    queries: Queries | str | Path,
    *,
    flat: bool = False,
    control: DataFrame | None = None,
    clock: str = "arrival",
    idle: str | None = None,
    apply: bool = False,
    **options: Unpack[FrameOptions],
) -> Streams:
    """All results of streaming DataFrames: `.write(function, checkpoint=...)` starts the query.

    The function gets a `Batch` per micro-batch, with one state for all: `id`, `matches["Q"]`,
    `outputs`, `discarded` and `ledger`, which are DataFrames.

    frames, flat, control, clock, idle, apply: as in `stream`
    options: how rows are read, as `FrameOptions` says

    Raises QueryErrors and InputError.
    """
    refuse_missing_spark()
    from ensue import spark

    return spark.streams(
        frames, queries, DataOptions(**options), spark.StreamOptions(control, clock, idle, apply), flat=flat
    )


def deploy(
    deployment: str | Path | Mapping[str, Any],
    session: SparkSession | None = None,
    *,
    accept_loss: bool = False,
    apply: bool = False,
    engine: str | None = None,
) -> Handle:
    """Start the job of a deployment file, or of a mapping with the same keys.

    Its handle has `await_termination`, `status`, `stop` and `is_active`.

    deployment: paths of a mapping are relative to the working folder; its `queries` may be paths,
        query texts, or what `load` gives
    session: of Spark, beside which the job runs, with settings of its own; None = the one that
        exists, or a new one as `spark` of the deployment says
    accept_loss: continue without files that an interrupted micro-batch read and that have changed
    apply: take over what has changed in the files of queries and values since the last start
    engine: what runs the job, `spark` or `local`; None = as `engine` of the deployment says

    Raises QueryErrors and InputError before anything starts. What ends the job later is raised by
    `await_termination` as an EnsueError, whose `__cause__` is the first error.
    """
    from job_engine.job.job import deploy as start
    from job_engine.setting_keys import Engine

    if not isinstance(deployment, str | Path | Mapping):
        raise InputError(f"deployment: expected a path or a mapping, not {kind_in_words(deployment)}")
    if isinstance(deployment, Mapping) and isinstance(deployment.get("queries"), Queries):
        queries = deployment["queries"]
        deployment = {**deployment, "queries": list(queries.paths) or queries.texts[0].text}
    known = {str(item): item for item in Engine}
    if engine is not None and engine not in known:
        near = did_you_mean(engine, known)
        raise InputError(f"`engine` must be {listed(known, 'or')}, not {engine!r}{near}")
    chosen = None if engine is None else known[engine]
    return start(deployment, session=session, accept_loss=accept_loss, apply=apply, engine=chosen)
