"""Ensue: pattern queries over event streams and tables, embedded or on Spark.

In this process
    ensue.replay(queries, events)       a table, or several, through the queries: a `Replay`
    ensue.sweep(queries, events, …)     values of parameters tried against labels: a `Backtest`
    ensue.open(queries, state=None)     rows bit by bit: `send`, `advance`, `save`; gives a `Live`
    ensue.load(path)                    reads and checks queries: `Queries`

On Spark
    ensue.match(frame, queries)         bounded DataFrame in, DataFrame of matches out
    ensue.batch(frame, queries)         the same with outputs, discards and ledger: a `Batch`
    ensue.stream(frame, queries)        streaming DataFrame in, streaming DataFrame of matches out
    ensue.streams(frame, queries)       the same with all results: `.write(function, checkpoint=)`
    ensue.deploy(path)                  the job of a deployment file

Queries are a path, query text, or what `load` gives. Times are microseconds in UTC. What users do
wrong raises an `EnsueError` of one line: `QueryErrors` for query text, with places, `InputError`
for tables, files, settings and state. Everything is imported on first use: the command line hears
signals once this file is read.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as checkers know it; `typing` takes longer to import than the rest of this file
if TYPE_CHECKING:
    from typing import Any

    from ensue.answer import Answer, Replay
    from ensue.calls import batch, deploy, match, open, replay, stream, streams, sweep  # noqa: A004  as files are opened
    from ensue.live.open_queries import Live
    from ensue.queries import Queries, load
    from ensue.rendering.scores import Backtest
    from querylang.errors import EnsueError, InputError, QueryError, QueryErrors
    from spark_backend.batches import Batch, Streams

    __version__: str

__all__ = [
    "Answer",
    "Backtest",
    "Batch",
    "EnsueError",
    "InputError",
    "Live",
    "Queries",
    "QueryError",
    "QueryErrors",
    "Replay",
    "Streams",
    "__version__",
    "batch",
    "deploy",
    "load",
    "match",
    "open",
    "replay",
    "stream",
    "streams",
    "sweep",
]

_ERRORS = ("EnsueError", "InputError", "QueryError", "QueryErrors")
_CALLS = ("batch", "deploy", "match", "open", "replay", "stream", "streams", "sweep")
_PLACES = {
    **dict.fromkeys(_CALLS, "ensue.calls"),
    **dict.fromkeys(_ERRORS, "querylang.errors"),
    "Answer": "ensue.answer",
    "Backtest": "ensue.rendering.scores",
    "Batch": "spark_backend.batches",
    "Live": "ensue.live.open_queries",
    "Queries": "ensue.queries",
    "Replay": "ensue.answer",
    "Streams": "spark_backend.batches",
    "load": "ensue.queries",
}
"""Where the public names are; imported when somebody asks for one."""


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = globals()[name] = getattr(import_module(_PLACES[name]), name)
        return found
    if name == "__version__":
        from importlib.metadata import version

        return version("ensue")
    raise AttributeError(f"module 'ensue' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
