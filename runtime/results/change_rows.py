"""What became of changes of the queries, as rows among the outputs."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from querylang.plan.changes import Outcome as ChangeOutcome
from runtime.results.no_rows import NO_OUTPUTS
from runtime.results.schemas import OUTPUT_SCHEMA, TIMESTAMP
from runtime.timestamps import format_time

_TIMES = ("handover",)
"""The details that are times, µs."""


def change_rows(outcomes: Sequence[ChangeOutcome], place: int, step: int = -1) -> pa.Table:
    """One row (OUTPUT_SCHEMA) per outcome.

    place: where in the order of arrival, µs
    step: the record that brought them; -1 = none
    """
    moment = pa.scalar(place, pa.int64()).cast(TIMESTAMP)
    rows = [
        {"kind": item.kind, "text": item.text, "query": item.query, "instance": item.instance, "key": "{}"}
        | {"event": json.dumps(_plain(item)) if item.details else None}
        | {"time": moment, "emitted": moment, "_step": step, "_rank": 0}
        for item in outcomes
    ]
    return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA) if rows else NO_OUTPUTS


def _plain(outcome: ChangeOutcome) -> dict[str, object]:
    return {name: format_time(value) if name in _TIMES else value for name, value in outcome.details.items()}
