"""Records of event types that are not known yet."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from querylang.plan.model import EventType
from runtime.arrow_types import has_column
from runtime.columns.arrivals import RecordKind


def as_known(table: pa.Table, events: Sequence[EventType], known: Collection[str]) -> pa.Table:
    """A table of arrivals where events of types that are not known are of unknown types."""
    unknown = [place for place, event in enumerate(events) if event.name not in known]
    if not unknown:
        return table
    kinds = table.column("_kind").to_numpy()
    is_unknown = np.isin(kinds, unknown)
    if not is_unknown.any():
        return table
    names = [events[kind].name if new else None for kind, new in zip(kinds, is_unknown, strict=True)]
    told = table.column("_text").to_pylist() if has_column(table, "_text") else [None] * len(table)
    texts = pa.array([old if name is None else name for old, name in zip(told, names, strict=True)], pa.string())
    kinds = np.where(is_unknown, np.int16(RecordKind.UNKNOWN_TYPE), kinds)
    table = table.set_column(table.schema.get_field_index("_kind"), table.schema.field("_kind"), pa.array(kinds))
    if not has_column(table, "_text"):
        return table.append_column("_text", texts)
    return table.set_column(table.schema.get_field_index("_text"), "_text", texts)
