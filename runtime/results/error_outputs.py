"""Rows of kind `error` of a query's matches that did not become rows."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from querylang.plan.model import Plan, QueryPlan
from runtime.number_arrays import Integers
from runtime.results.json_objects import cells, plain_value
from runtime.results.no_rows import NO_OUTPUTS
from runtime.results.schemas import OUTPUT_SCHEMA, key_struct, moments


def error_outputs(
    plan: Plan,
    query: QueryPlan,
    keys: Sequence[pa.Array],
    time: Integers,
    emitted: Integers,
    step: Integers,
    rank: Integers,
    texts: Sequence[str],
    ids: pa.Array | None = None,
) -> pa.Table:
    """One row (OUTPUT_SCHEMA) per text.

    keys: by key of the query its values, by row
    time, emitted: µs, by row
    step, rank: as in `runtime.results.matched.Matched`
    ids: the identities of the matches; None = the rows belong to no single match
    """
    if not texts:
        return NO_OUTPUTS
    count = len(texts)
    struct = pa.StructArray.from_arrays(list(keys), fields=list(key_struct(plan, query))) if keys else None
    values = [{}] * count if struct is None else cells(pa.chunked_array([struct]))
    columns = {
        "kind": pa.repeat("error", count),
        "channel": pa.nulls(count, pa.string()),
        "text": pa.array(texts, pa.string()),
        "event": pa.nulls(count, pa.string()),
        "query": pa.repeat(query.name, count),
        "instance": pa.repeat(query.instance, count),
        "key": pa.array([json.dumps(plain_value(value)) for value in values], pa.string()),
        "time": moments(time),
        "emitted": moments(emitted),
        "match_id": pa.nulls(count, pa.string()) if ids is None else ids,
        "_step": pa.array(step, pa.int64()),
        "_rank": pa.array(rank, pa.int64()),
    }
    return pa.table(columns, schema=OUTPUT_SCHEMA)
