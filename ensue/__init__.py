"""Ensue: pattern queries over event streams and tables, embedded or on Spark.

`load` reads queries, `replay` runs them over a table, `match`, `stream` and `deploy` run them on Spark. What is raised
at users descends from `EnsueError`. Everything heavy is imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ensue.parameters import Parameters
from ensue.queries import Queries, load
from querylang.errors import EnsueError, InputError, QueryError, QueryErrors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ensue.result import Replay
    from runtime.policies.plan_policies import GivenOrderings
    from spark_backend.job.deployment import Handle

__all__ = [
    "EnsueError",
    "InputError",
    "Queries",
    "QueryError",
    "QueryErrors",
    "Replay",
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
    until: str | float | None = None,
    flush: bool = True,
) -> Replay:
    """Run queries over event tables, in this process.

    `queries`: a path, query text, or what `load` gave. `events`: a path, a pandas, Polars or Arrow table, a list of
    rows, or a list of tables, merged by arrival. `arrival`, `type`, `source_time` name other columns than `at`,
    `event`, `ts`. `parameters`: values for the queries' parameters, `{query: {instance: {parameter: value}}}`, for one
    instance `{query: {parameter: value}}`, for the only query that takes any `{parameter: value}`; a mapping, a YAML
    file or YAML text. `ordering`: how records are put in order, `"stream_analytics late=5s over=card"` or `{"policy":
    "stream_analytics", "late": "5s", "over": ["card"]}`; without it as the queries say; a mapping of sources' names to such is for
    these sources alone. After the last row time goes on until nothing is due any more; `until` (a time) stops it there,
    `flush=False` at the last row. Raises QueryErrors and InputError.
    """
    from ensue.result import run
    from runtime.reading.tables import ColumnNames

    columns = ColumnNames(arrival, type, source_time)
    return run(queries, events, columns, parameters=parameters, ordering=ordering, until=until, flush=flush)


def match(
    frames: DataFrame | Mapping[str, DataFrame],
    queries: Queries | str | Path,
    *,
    arrival: str | None = None,
    type: str | None = None,  # noqa: A002  the word that users write
    source_time: str | None = None,
    parameters: Parameters = None,
    ordering: GivenOrderings = None,
) -> DataFrame:
    """The matches in bounded Spark DataFrames, as a Spark DataFrame; columns, parameters and ordering as in `replay`."""
    from ensue import spark
    from runtime.reading.tables import ColumnNames

    return spark.match(frames, queries, ColumnNames(arrival, type, source_time), parameters, ordering)


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
) -> DataFrame:
    """A streaming DataFrame of tagged rows (matches, outputs, discards, accounts) from streaming DataFrames.

    `control`: a streaming DataFrame with `at` and `event`, control events as text. `clock`: `arrival` or `processing`.
    `idle`, with the clock `arrival`: how long a source partition may be silent (`1 minute`) before time goes on without it; at once for
    None, and never for `none`: then only records move time. Columns, parameters and ordering as in `replay`; the sources' names are those of `frames`.
    """
    from ensue import spark
    from runtime.reading.tables import ColumnNames

    columns = ColumnNames(arrival, type, source_time)
    return spark.stream(
        frames, queries, columns, control=control, clock=clock, idle=idle, parameters=parameters, ordering=ordering
    )


def deploy(path: str | Path) -> Handle:
    """Start the streaming job of a deployment file; gives its handle: `await_termination`, `status`, `stop`."""
    from spark_backend.job.deployment import deploy as start

    return start(path)


def __getattr__(name: str) -> Any:
    if name == "Replay":
        from ensue.result import Replay

        return Replay
    raise AttributeError(f"module 'ensue' has no attribute {name!r}")
