"""Refused records as rows: nothing disappears.

Takes the records of a call and which of them were refused, by whom, why and against which bound; gives rows of `discard_schema`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import Plan
from runtime.admission.outcomes import Outcome
from runtime.arrow_types import arrow_type, one_chunk
from runtime.columns.arrivals import RecordKind, field_columns
from runtime.instants import NO_TIME
from runtime.results.schemas import discard_schema, moments


def refused_at_source(plan: Plan, table: pa.Table, kinds: NDArray[np.int64], arrival: NDArray[np.int64]) -> pa.Table:
    """Records that no query could look at: unreadable ones, and those of a type that is not defined."""
    rows = np.flatnonzero((kinds == RecordKind.MALFORMED) | (kinds == RecordKind.UNKNOWN_TYPE))
    reasons = [Outcome[RecordKind(kind).name].word for kind in kinds[rows].tolist()]
    times = table.column("_source_time").to_numpy()[rows]
    bounds = np.full(len(rows), NO_TIME, np.int64)
    return refused(plan, "", table, rows, pa.array(reasons, pa.string()), arrival[rows], times, bounds)


def refused(
    plan: Plan,
    query: str,
    table: pa.Table,
    rows: NDArray[np.int64],
    reasons: pa.Array,
    arrival: NDArray[np.int64],
    source_time: NDArray[np.int64],
    bound: NDArray[np.int64],
) -> pa.Table:
    """The records at `rows` of `table`; the other columns have one entry a refused record. Moments in microseconds."""
    schema = discard_schema(plan)
    if not len(rows):
        return schema.empty_table()
    taken = table.take(pa.array(rows))
    events = np.array([event.name for event in plan.events] + [None], object)
    kinds = taken.column("_kind").to_numpy().astype(np.int64)
    payload = [
        one_chunk(taken.column(name)) if name in taken.column_names else pa.nulls(len(rows), arrow_type(type_, plan))
        for name, type_ in field_columns(plan.events).items()
    ]
    text = one_chunk(taken.column("_text")) if "_text" in taken.column_names else pa.nulls(len(rows), pa.string())
    fields = schema.field("fields").type
    columns = [
        pa.repeat(pa.scalar(query), len(rows)),
        reasons,
        pa.array(events[np.where(kinds < 0, len(plan.events), kinds)], pa.string()),
        one_chunk(taken.column("_source")).dictionary_decode(),
        one_chunk(taken.column("_partition")),
        one_chunk(taken.column("_offset")),
        moments(source_time),
        moments(arrival),
        moments(bound),
        text,
        pa.StructArray.from_arrays(payload, fields=list(fields)) if payload else pa.array([{}] * len(rows), fields),
        pa.array(rows),
    ]
    return pa.table(columns, schema=schema)
