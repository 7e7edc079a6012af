"""Discarded records as rows of `discard_schema`: no record disappears."""

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
    """Rows for records that no query can read: malformed ones, and those of an unknown type."""
    rows = np.flatnonzero((kinds == RecordKind.MALFORMED) | (kinds == RecordKind.UNKNOWN_TYPE))
    reasons = [Outcome[RecordKind(kind).name].word for kind in kinds[rows].tolist()]
    times = table.column("_source_time").to_numpy()[rows]
    bounds = np.full(len(rows), NO_TIME, np.int64)
    return refused(plan, "", table, rows, pa.array(reasons, pa.string()), arrival[rows], times, bounds)


def refused_file(plan: Plan, source: str, reason: str) -> pa.Table:
    """One row for a file that is not a table; `source`: its name."""
    row = {"query": "", "reason": Outcome.MALFORMED_FILE.word, "source": source, "text": reason, "_step": 0}
    return pa.Table.from_pylist([row], schema=discard_schema(plan))


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
    """Rows for discarded records; `query` is the title of the query that refused them.

    rows: their rows in `table`, which holds the records of the call
    reasons: by discarded record, the word of its reason
    arrival: by discarded record, its arrival time, µs
    source_time: by discarded record, its source time, µs; NO_TIME = none
    bound: by discarded record, the bound that it was measured against, µs; NO_TIME = none
    """
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
