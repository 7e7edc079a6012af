"""Results as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from querylang.plan.model import Plan
from runtime.columns.arrivals import column_name
from runtime.replay.replay import matches_in_order
from runtime.results.json_objects import RowOf
from runtime.results.schemas import Results

MATCH_COLUMNS = ("match_id", "query", "instance", "key", "time", "definitive", "emitted", "waited", "members")
SOME_COLUMNS = ("selected", "points")
"""Present if a query of the set is a `find every`, or names a wait."""

_PLACE = ("source", "partition", "offset")


def matches_frame(plan: Plan, results: Results, row_of: RowOf) -> pd.DataFrame:
    """The matches of all queries, in order.

    `key`, `members` and `SOME_COLUMNS` hold dictionaries.
    """
    frames = {name: _members_by_row(table.to_pandas(), row_of) for name, table in results.matches.items()}
    if not frames:
        return pd.DataFrame(columns=list(MATCH_COLUMNS))
    first = dict(zip(frames, _starts([len(frame) for frame in frames.values()]), strict=True))
    columns = [*MATCH_COLUMNS, *(name for name in SOME_COLUMNS if any(name in frame for frame in frames.values()))]
    both = pd.concat([_with_columns(frame, columns) for frame in frames.values()], ignore_index=True)
    order = [first[name] + row for name, row in matches_in_order(plan, results)]
    return both.iloc[order].reset_index(drop=True)[columns]


def outputs_frame(outputs: pa.Table) -> pd.DataFrame:
    """The outputs, without the columns that order them."""
    return _public(outputs).to_pandas()


def discards_frame(plan: Plan, discarded: pa.Table) -> pd.DataFrame:
    """The discarded records; `fields` holds those of the record's event type."""
    frame = _public(discarded).to_pandas()
    fields = [
        None if event is None else _own_fields(plan, event, values)
        for event, values in zip(frame["event"], frame["fields"], strict=True)
    ]
    return frame.assign(fields=_objects(fields))


def _members_by_row(frame: pd.DataFrame, row_of: RowOf) -> pd.DataFrame:
    """The matches with their members as in `--format matches`: the row's number, not its place."""

    def member(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if found is None:  # an unset name
            return None
        place = [found[name] for name in _PLACE]
        kept = {name: value for name, value in found.items() if name not in {*_PLACE, "fields"}}
        return {**kept, "row": row_of(*place), "fields": found["fields"]}

    members = [{name: member(found) for name, found in match.items()} for match in frame["members"]]
    return frame.assign(members=_objects(members))


def _own_fields(plan: Plan, event: str, values: Mapping[str, Any]) -> dict[str, Any]:
    definition = plan.event(event)
    return {field.name: values[column_name(field.name, field.type)] for field in definition.fields}


def _with_columns(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    return frame.assign(**{name: _objects([None] * len(frame)) for name in columns if name not in frame})


def _objects(values: Sequence[Any]) -> pd.Series:
    return pd.Series(values, dtype=object)


def _starts(lengths: Sequence[int]) -> list[int]:
    return [sum(lengths[:place]) for place in range(len(lengths))]


def _public(table: pa.Table) -> pa.Table:
    return table.select([name for name in table.column_names if not name.startswith("_")])
