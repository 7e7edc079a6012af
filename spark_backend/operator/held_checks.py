"""Refuse held records that cannot be, before kernels read them without looking at bounds."""

from __future__ import annotations

import pyarrow.compute as pc

from querylang.plan.model import Plan
from runtime.columns.arrivals import SYSTEM_FIELDS, Arrivals, RecordKind, arrivals_schema


def refuse_impossible(arrivals: Arrivals, plan: Plan) -> None:
    """ValueError if records lack a system column, have a null in it or are of no kind."""
    table = arrivals.table
    table.validate(full=True)
    known = arrivals_schema(plan)
    for field in table.schema:
        if field.name in known.names and field.type != known.field(field.name).type:
            raise ValueError(f"held records have {field.type} in '{field.name}'")
    for field in SYSTEM_FIELDS:
        if field.nullable:
            continue
        if field.name not in table.column_names or table.column(field.name).null_count:
            raise ValueError(f"held records have no '{field.name}'")
    if len(table):
        kinds = pc.min_max(table.column("_kind")).as_py()
        if kinds["min"] < min(RecordKind) or kinds["max"] >= len(plan.events):
            raise ValueError("held records are of an event type that there is not")
