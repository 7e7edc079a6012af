"""Error rows among the outputs: for control events that change nothing, and for query instances
that do not run."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import Stopped
from runtime.results.no_rows import NO_OUTPUTS
from runtime.results.schemas import OUTPUT_SCHEMA, TIMESTAMP


def control_errors(errors: Iterable[tuple[int, str]], arrival: NDArray[np.int64]) -> pa.Table:
    """One row (OUTPUT_SCHEMA) per wrong control event, at its arrival; `errors`: record numbers and
    messages."""
    rows = []
    for record, text in errors:
        moment = pa.scalar(int(arrival[record]), pa.int64()).cast(TIMESTAMP)
        rows.append(
            {"kind": "error", "text": text, "query": "", "instance": "", "key": "{}"}
            | {"time": moment, "emitted": moment, "match_id": None, "_step": record, "_rank": 0}
        )
    return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA) if rows else NO_OUTPUTS


def stopped_instances(stopped: Iterable[Stopped]) -> pa.Table:
    """One row (OUTPUT_SCHEMA) per instance that does not run; it has no moment."""
    rows = [
        {"kind": "error", "text": item.reason, "query": item.query, "instance": item.instance}
        | {"key": "{}", "_step": -1, "_rank": 0}
        for item in stopped
    ]
    return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA) if rows else NO_OUTPUTS
