"""Discarded records as rows of `discard_schema`: no record disappears."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.model import Plan
from runtime.admission.outcomes import Outcome
from runtime.arrow_types import arrow_type, has_column, one_chunk
from runtime.columns.arrivals import RecordKind, field_columns
from runtime.instants import NO_TIME
from runtime.results.no_rows import no_discards
from runtime.results.schemas import discard_schema, moments


def refused_at_source(plan: Plan, table: pa.Table, kinds: NDArray[np.int64], arrival: NDArray[np.int64]) -> pa.Table:
    """Rows for records that no query can read: malformed ones, and those of an unknown type."""
    if not len(kinds) or kinds.min() >= 0:  # the usual case: all are events
        return no_discards(plan)
    rows = np.flatnonzero((kinds == RecordKind.MALFORMED) | (kinds == RecordKind.UNKNOWN_TYPE))
    if not len(rows):
        return no_discards(plan)
    is_malformed = pa.array(kinds[rows] == RecordKind.MALFORMED)
    reasons = pc.if_else(is_malformed, Outcome.MALFORMED.word, Outcome.UNKNOWN_TYPE.word)
    times = table.column("_source_time").to_numpy()[rows]
    bounds = np.full(len(rows), NO_TIME, np.int64)
    return refused(plan, "", table, rows, reasons, arrival[rows], times, bounds)


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
    if not len(rows):
        return no_discards(plan)
    schema = no_discards(plan).schema
    index = None if len(rows) == len(table) else pa.array(rows)

    def taken(name: str, type_: pa.DataType) -> pa.Array:
        if not has_column(table, name):
            return pa.nulls(len(rows), type_)
        column = one_chunk(table.column(name))
        return column if index is None else column.take(index)

    kinds = taken("_kind", pa.int16()).to_numpy()
    payload = [taken(name, arrow_type(type_, plan)) for name, type_ in field_columns(plan.events).items()]
    fields = schema.field("fields").type
    columns = [
        pa.repeat(pa.scalar(query), len(rows)),
        reasons,
        _event_names(plan, kinds),
        taken("_source", pa.string()).dictionary_decode(),
        taken("_partition", pa.int64()),
        taken("_offset", pa.int64()),
        moments(source_time),
        moments(arrival),
        moments(bound),
        taken("_text", pa.string()),
        pa.StructArray.from_arrays(payload, fields=list(fields)) if payload else pa.array([{}] * len(rows), fields),
        pa.array(rows),
    ]
    return pa.table(columns, schema=schema)


def _event_names(plan: Plan, kinds: NDArray[np.int16]) -> pa.Array:
    """By record, its event type; null for one that is not an event of the plan."""
    is_other = kinds < 0
    if is_other.all():
        return pa.nulls(len(kinds), pa.string())
    return pa.array([event.name for event in plan.events]).take(pa.array(kinds, mask=is_other))
