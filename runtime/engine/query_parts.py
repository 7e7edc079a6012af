"""The fixed parts of one query at work: its plan and what is derived from it, the same for all
calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass

import pyarrow as pa

from querylang.plan.expression import EventOf, FieldOf, Invoke
from querylang.plan.model import Plan, QueryPlan
from runtime.admission.selection import Selector
from runtime.arrow_types import arrow_type
from runtime.columns.arrivals import SYSTEM_FIELDS, field_columns
from runtime.columns.keys import key_columns
from runtime.engine.forgetting import Forgetting, forgetting_of
from runtime.matching.choose import choose_matcher
from runtime.matching.interface import Matcher
from runtime.matching.kernel.matcher import KernelMatcher
from runtime.matching.windows import WindowColumns, window_columns
from runtime.policies.per_input import PolicyColumns, adjusts, has_ends, policy_columns, shares_clock


@dataclass(frozen=True, slots=True)
class QueryParts:
    """One query of a plan.

    selector: what the query makes of a record
    policies: the inputs' settings of time
    windows: the inputs' windows
    matcher: finds the query's pattern
    schema: the columns of events
    forgetting: when keys are forgotten
    gathers_later: matches are the numbers of records, from the column `_row`, and events have only
        the columns that are needed to find them
    """

    plan: Plan
    query: QueryPlan
    selector: Selector
    policies: PolicyColumns
    windows: WindowColumns
    matcher: Matcher
    schema: pa.Schema
    forgetting: Forgetting
    gathers_later: bool

    def keys_of(self, table: pa.Table) -> list[pa.Array]:
        """The key columns of events."""
        return key_columns(table, table.column("_kind").to_numpy(), self.plan, self.query)


def query_parts(plan: Plan, query: QueryPlan, matcher: str, *, gathers_later: bool = False) -> QueryParts:
    """The parts of a query; see `runtime.engine.engine.Engine` for the options."""
    policies = policy_columns(query)
    chosen = choose_matcher(plan, query, matcher)
    gathers_later = gathers_later and _is_only_found(query) and _is_kernel(chosen)
    return QueryParts(
        plan=plan,
        query=query,
        selector=Selector(plan, query),
        policies=policies,
        windows=window_columns(query),
        matcher=chosen,
        schema=_needed_schema(plan, query) if gathers_later else _event_schema(plan, query),
        forgetting=forgetting_of(query, policies),
        gathers_later=gathers_later,
    )


ROW_FIELD = pa.field("_row", pa.int64())
"""The number of a record among all."""


def _is_kernel(matcher: object) -> bool:
    return isinstance(matcher, KernelMatcher)


def _is_only_found(query: QueryPlan) -> bool:
    """Whether nothing of a match but its members' rows and times is needed while time advances."""
    return not query.block and query.every is None and not has_ends(query)


def _needed_schema(plan: Plan, query: QueryPlan) -> pa.Schema:
    """The columns of `_event_schema` that decide which events match, and the record's number."""
    schema, nodes = _event_schema(plan, query), list(_parts_of(query))
    takes_whole_events = any(isinstance(node, EventOf | Invoke) for node in nodes)
    has_clocks = shares_clock(query) or any(item.heartbeat is not None for item in query.inputs)
    if takes_whole_events or has_clocks:
        return schema.append(ROW_FIELD)
    read = {node.field for node in nodes if isinstance(node, FieldOf)}
    kept = [field for field in schema if field.name[0] == "_" or field.name.rpartition(":")[0] in read]
    return pa.schema([*(field for field in kept if field.name != "_offset"), ROW_FIELD])


def _parts_of(part: object) -> Iterator[object]:
    """A part of a plan, and all parts of it."""
    yield part
    below: Iterable[object] = ()
    if isinstance(part, Mapping):
        below = part.values()
    elif isinstance(part, tuple | list | frozenset):
        below = part
    elif is_dataclass(part):
        below = [getattr(part, field.name) for field in fields(part)]
    for item in below:
        yield from _parts_of(item)


_OF_CALLS = ("_text", "_place")
"""System columns that mean nothing once the records of a call are in order."""


def _event_schema(plan: Plan, query: QueryPlan) -> pa.Schema:
    """System columns, and the fields of the event types that the query reads."""
    used = {item.event for item in query.inputs}
    used |= {item.heartbeat.event for item in query.inputs if item.heartbeat is not None}
    columns = field_columns(event for event in plan.events if event.name in used)
    system = [field for field in SYSTEM_FIELDS if field.name not in _OF_CALLS]
    system += [pa.field("_adjusted", pa.int8())] if adjusts(query) else []
    system += [pa.field("_shape", pa.int8()), pa.field("_end", pa.int64())] if has_ends(query) else []
    return pa.schema([*system, *((name, arrow_type(type_, plan)) for name, type_ in columns.items())])
