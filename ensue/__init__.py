"""Ensue: pattern queries over event streams and tables, embedded or on Spark.

`load` reads queries. `replay` runs them over tables; `match`, `stream` and `deploy` run them on
Spark. All exceptions for users' mistakes are subclasses of `EnsueError`. Everything heavy is
imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ensue.data_options import DataOptions
from ensue.parameters import Parameters
from ensue.queries import Queries, load
from querylang.errors import EnsueError, InputError, QueryError, QueryErrors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ensue.result import Replay
    from runtime.policies.forget_keys import ForgetKeys
    from runtime.policies.plan_policies import GivenOrderings
    from spark_backend.job.job import Handle

    __version__: str

__all__ = [
    "EnsueError",
    "InputError",
    "Queries",
    "QueryError",
    "QueryErrors",
    "Replay",
    "__version__",
    "deploy",
    "load",
    "match",
    "replay",
    "stream",
]


def replay(
    queries: Queries | str | Path,
    events: Any,
    *,
    arrival: str | None = None,
    type: str | None = None,  # noqa: A002  the word that users write
    source_time: str | None = None,
    parameters: Parameters = None,
    ordering: GivenOrderings = None,
    forget_keys: ForgetKeys = None,
    max_record: str | None = None,
    until: str | float | None = None,
    flush: bool = True,
) -> Replay:
    """Run queries over event tables, in this process.

    queries: a path, query text, or the result of `load`
    events: a path, a pandas, Polars or Arrow table, a list of rows, or a list of tables, which
        are merged by arrival
    arrival: the column of arrival times; None = `at`
    type: the column of event types; None = `event`
    source_time: the column of source times; None = `ts`
    parameters: values of the queries' parameters; None = defaults only. A mapping, a YAML file or
        YAML text: `{query: {instance: {parameter: value}}}`; for a single instance
        `{query: {parameter: value}}`; if only one query has parameters `{parameter: value}`
    ordering: how records are put in order; None = as the queries say. A policy for all sources,
        such as `"stream_analytics late=5s over=card"` or the same as a mapping,
        `{"policy": "stream_analytics", "late": "5s", "over": ["card"]}`; or a mapping of sources'
        names to policies
    forget_keys: how long after its last record a key is forgotten, such as `30 days`; None = never
    max_record: length of the longest record that is read from a file, such as `64 MB`; longer ones
        are malformed; None = `16 MB`
    until: time at which to stop: later rows are not processed; None = after the last row
    flush: after the last row, advance time until no timer is left

    Raises QueryErrors and InputError.
    """
    from ensue import embedded

    options = DataOptions(arrival, type, source_time, parameters, ordering, forget_keys, max_record)
    return embedded.replay(queries, events, options, until=until, flush=flush)


def match(
    frames: DataFrame | Mapping[str, DataFrame],
    queries: Queries | str | Path,
    *,
    arrival: str | None = None,
    type: str | None = None,  # noqa: A002  the word that users write
    source_time: str | None = None,
    parameters: Parameters = None,
    ordering: GivenOrderings = None,
    forget_keys: ForgetKeys = None,
    max_record: str | None = None,
) -> DataFrame:
    """The matches in bounded Spark DataFrames, as a Spark DataFrame.

    frames: one DataFrame, or several by the names of their sources

    The other arguments are as in `replay`.
    """
    from ensue import spark

    return spark.match(
        frames, queries, DataOptions(arrival, type, source_time, parameters, ordering, forget_keys, max_record)
    )


def stream(
    frames: DataFrame | Mapping[str, DataFrame],
    queries: Queries | str | Path,
    *,
    control: DataFrame | None = None,
    clock: str = "arrival",
    idle: str | None = None,
    arrival: str | None = None,
    type: str | None = None,  # noqa: A002  the word that users write
    source_time: str | None = None,
    parameters: Parameters = None,
    ordering: GivenOrderings = None,
    forget_keys: ForgetKeys = None,
    max_record: str | None = None,
) -> DataFrame:
    """The results of streaming DataFrames, as one streaming DataFrame of tagged rows.

    The rows are matches, outputs, discards and accounts.

    frames: one DataFrame, or several by the names of their sources
    control: a streaming DataFrame with `at` and `event`, control events as text; None = none
    clock: `arrival` or `processing`
    idle: with the clock `arrival`, how long a source is silent before time advances without it,
        such as `1 minute`; `none` = never; None = as its ordering policy says, otherwise never

    The other arguments are as in `replay`.
    """
    from ensue import spark

    options = DataOptions(arrival, type, source_time, parameters, ordering, forget_keys, max_record)
    return spark.stream(frames, queries, options, control=control, clock=clock, idle=idle)


def deploy(path: str | Path) -> Handle:
    """Start the streaming job of a deployment file.

    Its handle has `await_termination`, `status` and `stop`.
    """
    from spark_backend.job.job import deploy as start

    return start(path)


def __getattr__(name: str) -> Any:
    if name == "Replay":
        from ensue.result import Replay

        return Replay
    if name == "__version__":
        from importlib.metadata import version

        return version("ensue")
    raise AttributeError(f"module 'ensue' has no attribute {name!r}")
