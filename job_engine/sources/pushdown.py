"""What a source does before the shuffle: drop columns, filter records, compute times and keys.

The workers that read do it with `runtime.admission.selection`, not with Spark expressions. So a
filter means exactly what it means embedded, and records that it refuses are still counted.
"""

from __future__ import annotations

from job_engine.wire.partition_groups import shared_order
from querylang.plan.model import Input, Plan, QueryPlan


def describe_pushdown(plan: Plan, query: QueryPlan) -> list[str]:
    """What is done for a query before the shuffle, a line each, for `ensue explain`."""
    read = {event.name for event in plan.events if event.name in _types(query)}
    fields = dict.fromkeys(field.name for event in plan.events if event.name in read for field in event.fields)
    lines = [f"fields read: {', '.join(fields)}"] if fields else []
    filtered = [item.event for item in query.inputs if item.filter is not None]
    if filtered:
        lines.append(f"filters of {', '.join(filtered)}: what they refuse is counted, not shipped")
    lines.append("records of other types: counted, not shipped")
    lines.append(f"bucket: {_buckets(query)}")
    return lines


def _buckets(query: QueryPlan) -> str:
    order = shared_order(query)
    if order is not None:
        return f"one, for all records: {order}"
    return f"by {', '.join(query.key_names)}" if query.keys else "one, for all records"


def _types(query: QueryPlan) -> set[str]:
    return {name for item in query.inputs for name in _names(item)}


def _names(item: Input) -> list[str]:
    return [item.event] if item.heartbeat is None else [item.event, item.heartbeat.event]
