"""What users call to run queries in this process: `ensue.replay` and `ensue.open`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ensue.data_options import DataOptions, TableOptions
from ensue.python_words import public_call
from ensue.queries import Queries

if TYPE_CHECKING:
    from datetime import datetime

    from ensue.live.open_queries import Live
    from ensue.result import Replay


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
