"""What users call to run queries in this process: `ensue.replay` and `ensue.open`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ensue.data_options import DataOptions
from ensue.parameters import Parameters
from ensue.python_words import in_python_words
from ensue.queries import Queries

if TYPE_CHECKING:
    from datetime import datetime

    from ensue.live.open_queries import Live
    from ensue.result import Replay
    from runtime.policies.forget_keys import ForgetKeys
    from runtime.policies.plan_policies import GivenOrderings


@in_python_words()
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
    csv: str | Mapping[str, str] | None = None,
    time_unit: str | None = None,
    time_format: str | None = None,
    source_column: str | None = None,
    partition_column: str | None = None,
    offset_column: str | None = None,
    until: str | float | datetime | None = None,
    flush: bool = True,
) -> Replay:
    """Run queries over event tables, in this process.

    queries: a path, query text, or the result of `load`
    events: a path, a pandas, Polars or Arrow table, a relation of DuckDB, a dataset or reader of
        pyarrow, a list or generator of rows, or a list of tables, which are merged by arrival
    arrival: the column of arrival times; None = `at`
    type: the column of event types; None = `event`; `"none"` = there is none
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
    csv: how CSV files are written, such as `delimiter=; encoding=latin-1` or the same as a mapping;
        None = with commas (`.tsv`: tabs), in UTF-8
    time_unit: unit of times that are numbers: `s`, `ms`, `us` or `ns`; None = seconds
    time_format: form of times that are text, in the letters of strptime, such as `%d.%m.%Y %H:%M`;
        None = ISO 8601 or HH:MM:SS
    source_column: the column that says which source a row is of; None = `source`, if its values can
        be that; `"none"` = there is none
    partition_column: that of its partition, text or integers; None = `partition`, likewise
    offset_column: that of its offset, unique in the partition; None = `offset`, likewise
    until: time at which to stop: later rows are not processed; None = after the last row
    flush: after the last row, advance time until no timer is left

    Raises QueryErrors and InputError.
    """
    from ensue import embedded

    options = DataOptions(
        arrival,
        type,
        source_time,
        parameters,
        ordering,
        forget_keys,
        max_record,
        csv,
        time_unit,
        time_format,
        source_column,
        partition_column,
        offset_column,
    )
    return embedded.replay(queries, events, options, until=until, flush=flush)


@in_python_words()
def open(  # noqa: A001  as files are opened
    queries: Queries | str | Path,
    state: str | Path | None = None,
    *,
    arrival: str | None = None,
    type: str | None = None,  # noqa: A002  the word that users write
    source_time: str | None = None,
    parameters: Parameters = None,
    ordering: GivenOrderings = None,
    forget_keys: ForgetKeys = None,
    max_record: str | None = None,
    csv: str | Mapping[str, str] | None = None,
    time_unit: str | None = None,
    time_format: str | None = None,
    source_column: str | None = None,
    partition_column: str | None = None,
    offset_column: str | None = None,
) -> Live:
    """Open queries for rows that come bit by bit, in this process.

    `send(rows)` and `advance(time)` give what they bring, as answers with `matches`, `outputs`,
    `discarded` and `ledger`; `save(path)` keeps the state in a file. All answers together are the
    replay's, wherever the rows are cut. Without definitions the first rows decide which fields the
    event types have.

    queries: a path, query text, or the result of `load`
    state: a file that `save` has written, to continue there; None = begin without one

    The other arguments are as in `replay`. Raises QueryErrors and InputError.
    """
    from ensue.live.open_queries import Live

    options = DataOptions(
        arrival,
        type,
        source_time,
        parameters,
        ordering,
        forget_keys,
        max_record,
        csv,
        time_unit,
        time_format,
        source_column,
        partition_column,
        offset_column,
    )
    return Live(queries, options, state)
