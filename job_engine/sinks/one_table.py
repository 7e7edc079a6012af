"""Matches of all queries in one table: what queries have in common as columns, the rest as JSON.

For jobs with so many queries that a folder or table for each would be too many.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from job_engine.delta.log import is_table
from job_engine.places.place import Place
from job_engine.sinks.file_names import RESULT_FILE
from job_engine.sinks.kinds import Layout, Sink, publishing
from job_engine.wire.file_layouts import json_rows, json_texts
from querylang.errors import InputError
from runtime.arrow_types import has_column
from runtime.json_reader import json_of_text
from runtime.results.for_users import COMMON

KEY, MEMBERS = "key", "members"
"""The columns of JSON: the key, and what the query's own table would have besides."""


def one_table(matches: pa.Table) -> pa.Table:
    """Matches of a query, as its own table has them, as rows of the table of all queries."""
    own = [name for name in matches.column_names if name not in (*COMMON, KEY)]
    columns = {name: matches.column(name) for name in COMMON}
    keys = json_rows(matches.select([KEY])) if has_column(matches, KEY) else [{KEY: {}}] * len(matches)
    columns[KEY] = pa.array([_text(row[KEY]) for row in keys], pa.string())
    columns[MEMBERS] = pa.array(json_texts(matches.select(own)), pa.string())
    return pa.table(columns)


def row_of_query(row: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse for one row: with the columns of the query's own table, its values as in JSON."""
    key = json_of_text(row[KEY], dict[str, Any])
    own: dict[str, Any] = {name: row[name] for name in COMMON}
    return own | ({KEY: key} if key else {}) | json_of_text(row[MEMBERS], dict[str, Any])


def is_in_one(sinks: Mapping[str, Sink], name: str) -> bool:
    """Whether a sink has one table for all queries."""
    return name in sinks and sinks[name].layout is Layout.ONE


def one_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the table of all queries; `schema`: of any query's own table."""
    return one_table(schema.empty_table()).schema


def refuse_other_layout(sink: Sink) -> None:
    """Raise InputError if the sink of matches has results of the other layout: readers would get
    both. Writes nothing."""
    if sink.place is None:
        return
    if sink.layout is Layout.ONE:
        other = publishing(sink).table_of_one_query(sink)
        if other is not None:
            raise InputError(
                f"{other}: has matches of one query; 'layout: one' needs another folder, or 'layout: query'"
            )
    elif is_table(sink.place) or any(RESULT_FILE.fullmatch(name) for name in _files_in(sink.place)):
        raise InputError(f"{sink.place}: has matches of all queries; choose another folder, or 'layout: one'")


def _files_in(folder: Place) -> list[str]:
    return [item.name for item in folder.iterdir() if item.is_file()] if folder.is_dir() else []


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
