"""Checked queries, the output of the checker."""

from __future__ import annotations

from dataclasses import dataclass

from querylang.errors import QueryError
from querylang.plan.model import EventType, QueryPlan


@dataclass(frozen=True, slots=True)
class Checked:
    """A set of queries without a mistake, and the event types that are defined or used.

    If they were checked without schemas, the plans lack what depends on event types that nothing
    defines.
    """

    events: tuple[EventType, ...]
    queries: tuple[QueryPlan, ...]
    warnings: tuple[QueryError, ...]
