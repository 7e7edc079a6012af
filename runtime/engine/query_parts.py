"""The fixed parts of one query at work: its plan and what is derived from it, the same for all
calls."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from querylang.plan.model import EventType, Plan, QueryPlan
from runtime.admission.selection import Selector
from runtime.arrow_types import arrow_type
from runtime.columns.arrivals import SYSTEM_FIELDS, field_columns
from runtime.columns.keys import key_columns
from runtime.engine.forgetting import Forgetting, forgetting_of
from runtime.engine.running_numbers import NUMBER, are_numbered
from runtime.matching.choose import choose_matcher
from runtime.matching.interface import Matcher
from runtime.matching.windows import WindowColumns, window_columns
from runtime.policies.per_input import PolicyColumns, adjusts, has_ends, policy_columns


@dataclass(frozen=True, slots=True)
class QueryParts:
    """One query of a plan.

    selector: what the query makes of a record
    policies: the inputs' settings of time
    windows: the inputs' windows
    matcher: finds the query's pattern
    schema: the columns of events
    forgetting: when keys are forgotten
    admission: equal for queries that make the same of every record, and keep nothing beside it
    """

    plan: Plan
    query: QueryPlan
    selector: Selector
    policies: PolicyColumns
    windows: WindowColumns
    matcher: Matcher
    schema: pa.Schema
    forgetting: Forgetting
    admission: str

    def keys_of(self, table: pa.Table) -> list[pa.Array]:
        """The key columns of events."""
        return key_columns(table, table.column("_kind").to_numpy(), self.plan, self.query)


def query_parts(plan: Plan, query: QueryPlan, matcher: str) -> QueryParts:
    """The parts of a query; see `runtime.engine.engine.Engine` for `matcher`."""
    policies = policy_columns(query)
    return QueryParts(
        plan=plan,
        query=query,
        selector=Selector(plan, query),
        policies=policies,
        windows=window_columns(query),
        matcher=choose_matcher(plan, query, matcher),
        schema=_event_schema(plan, query),
        forgetting=forgetting_of(query, policies),
        admission=_admission(query),
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was made for plans with these event types.

    parts: by the identity of their query, which they hold
    """

    events: tuple[EventType, ...]
    parts: dict[int, QueryParts]


_KEPT: dict[tuple[int, str], _Kept] = {}
"""By the identity of the event types, and the matcher that was wanted; the last used are the last.

Parts never change. A job makes an engine per bucket and micro-batch, and a change of its queries
leaves most of them as they are.
"""

_MOST_EVENTS, _MOST_PARTS = 4, 20_000


def all_parts(plan: Plan, matcher: str) -> list[QueryParts]:
    """The parts of all queries; what queries with the same admission have alike is made once."""
    kept = _KEPT.pop((id(plan.events), matcher), None)
    if kept is None or kept.events is not plan.events or len(kept.parts) > _MOST_PARTS:
        kept = _Kept(plan.events, {})
    _KEPT[id(plan.events), matcher] = kept
    for key in list(_KEPT)[:-_MOST_EVENTS]:
        _KEPT.pop(key, None)
    found = [kept.parts.get(id(query)) for query in plan.queries]
    first = {parts.admission: parts for parts in reversed(found) if parts is not None}
    return [
        parts or _new_parts(plan, query, matcher, first, kept) for query, parts in zip(plan.queries, found, strict=True)
    ]


def _new_parts(plan: Plan, query: QueryPlan, matcher: str, first: dict[str, QueryParts], kept: _Kept) -> QueryParts:
    """The parts of a query; `first`: by admission those of the first query that has it."""
    like = first.get(_admission(query))
    if like is None:
        parts = query_parts(plan, query, matcher)
        first[parts.admission] = parts
    else:
        own = choose_matcher(plan, query, matcher)
        parts = replace(like, query=query, windows=window_columns(query), matcher=own)
    kept.parts[id(query)] = parts
    return parts


def _admission(query: QueryPlan) -> str:
    # Waits and skipped events are stored with the events.
    own = query.title if query.trailing is not None or query.skip is not None else ""
    return repr((query.inputs, query.keys, query.forget_keys, query.nulls_fail, are_numbered(query), own))


_OF_CALLS = ("_text", "_place")
"""System columns that mean nothing once the records of a call are in order."""


def _event_schema(plan: Plan, query: QueryPlan) -> pa.Schema:
    """System columns, and the fields of the event types that the query reads."""
    used = {item.event for item in query.inputs}
    used |= {item.heartbeat.event for item in query.inputs if item.heartbeat is not None}
    columns = field_columns(event for event in plan.events if event.name in used)
    system = [field for field in SYSTEM_FIELDS if field.name not in _OF_CALLS]
    system += [pa.field("_adjusted", pa.int8())] if adjusts(query) else []
    system += [pa.field("_skipped", pa.bool_())] if query.skip is not None else []
    system += [pa.field("_shape", pa.int8()), pa.field("_end", pa.int64())] if has_ends(query) else []
    system += [NUMBER] if are_numbered(query) else []
    return pa.schema([*system, *((name, arrow_type(type_, plan)) for name, type_ in columns.items())])
