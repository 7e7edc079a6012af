"""Rows that tell when control events of the control stream were processed: kind `control`.

A control event whose arrival lies before the clock is processed at the clock. Its row tells that
place in the order of arrival, so that a replay can put the event there.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.instants import NO_TIME
from runtime.reading.control_events import ControlEvents
from runtime.results.schemas import OUTPUT_SCHEMA, TIMESTAMP


def control_rows(plan: Plan, controls: Arrivals, clock: int | None) -> pa.Table:
    """One row (OUTPUT_SCHEMA) per query and control event that is not wrong.

    plan: of a partition group
    controls: records of the control stream, before they are processed
    clock: the group's clock then, µs; None = nothing has arrived
    """
    is_control = controls.system("kind") == RecordKind.CONTROL
    table = controls.table.filter(pa.array(is_control))
    if not len(table):
        return OUTPUT_SCHEMA.empty_table()
    wrong = {record for record, _ in ControlEvents.of(table, plan, None).errors}
    places = np.maximum(table.column("_arrival").to_numpy(), NO_TIME if clock is None else clock)
    moments = pa.array(places).cast(TIMESTAMP)
    rows = [
        {"kind": "control", "text": text, "query": query.name, "instance": query.instance, "key": "{}"}
        | {"event": json.dumps({"source": source, "offset": offset}), "time": moment, "emitted": moment}
        | {"_step": -1, "_rank": 0}
        for record, (text, source, offset, moment) in enumerate(
            zip(*(table.column(name).to_pylist() for name in ("_text", "_source", "_offset")), moments, strict=True)
        )
        if record not in wrong
        for query in plan.queries
    ]
    return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA)
