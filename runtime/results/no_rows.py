"""Tables of results without rows, made once: an Arrow table costs time even if it is empty."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from querylang.plan.model import Plan
from runtime.results.schemas import ADJUSTED_SCHEMA, OUTPUT_SCHEMA, discard_schema

NO_OUTPUTS = OUTPUT_SCHEMA.empty_table()

NO_ADJUSTED = ADJUSTED_SCHEMA.empty_table()

_DISCARDS: dict[int, tuple[Plan, pa.Table]] = {}
"""By the identity of a plan, which is kept beside."""

_MOST_PLANS = 64


def no_discards(plan: Plan) -> pa.Table:
    """No discarded record, with the columns of `discard_schema`."""
    known = _DISCARDS.get(id(plan))
    if known is None or known[0] is not plan:
        known = plan, discard_schema(plan).empty_table()
        if len(_DISCARDS) >= _MOST_PLANS:
            _DISCARDS.clear()
        _DISCARDS[id(plan)] = known
    return known[1]


def rows_of(nothing: pa.Table, parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of all parts; `nothing`: a table without rows that has their columns."""
    some = [part for part in parts if len(part)]
    return pa.concat_tables(some) if some else nothing
