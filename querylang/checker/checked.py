"""Checked queries, the output of the checker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from querylang.errors import QueryError
from querylang.plan.model import EventType, QueryPlan


@dataclass(frozen=True, slots=True)
class Written:
    """A statement that writes: `print`, `log`, `send`, `emit` or `route`.

    - `channel`: None: it has none, or an expression gives it.
    - `event`: of `route`, the type of the event; None: not known.
    """

    word: str
    channel: str | None = None
    has_computed_channel: bool = False
    event: str | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """A set of queries without a mistake, and the event types that are defined or used.

    If they were checked without schemas, the plans lack what depends on event types that nothing
    defines.

    - `written`: what each query writes, by its name, as far as the text says it.
    """

    events: tuple[EventType, ...]
    queries: tuple[QueryPlan, ...]
    warnings: tuple[QueryError, ...]
    written: Mapping[str, tuple[Written, ...]]
