"""How far back a match can reach, and whether a changed query can keep the state it has."""

from __future__ import annotations

from dataclasses import replace

from querylang.plan.model import Input, QueryPlan, known


def reach_of(query: QueryPlan) -> int | None:
    """The longest time, µs, from what a match depends on to its own time; None = it has no limit.

    query: an instance, whose durations are numbers
    """
    windows = [_window(query, item) for item in query.inputs]
    waits = [known(wait.duration) * wait.most for wait in (query.leading, query.trailing) if wait is not None]
    if any(window is None for window in windows):
        return None
    return max((window for window in windows if window is not None), default=0) + sum(waits)


def _window(query: QueryPlan, item: Input) -> int | None:
    return query.within if item.within is None else known(item.within)


def settled_after(query: QueryPlan) -> int | None:
    """How long, µs, after a moment no earlier time can come any more; None = it is not known.

    query: an instance
    """
    if any(item.policy is not None for item in query.inputs):
        return None
    # definitive time is at least the clock less `wait`, whatever records and heartbeats say
    waits = [known(item.wait) for item in query.inputs if item.wait is not None]
    return max(waits) + _REORDER if waits else 0


_REORDER = 20_000_000
"""Leeway and reorder buffer of delayed events, as they are at the start, µs."""


def keeps_state(old: QueryPlan, new: QueryPlan) -> bool:
    """Whether templates differ at most in what is given out: block, selects, `having`, actions."""
    return (old.every is None) == (new.every is None) and _found(old) == _found(new)


def _found(query: QueryPlan) -> QueryPlan:
    """The query without what is given out."""
    return replace(query, block=(), slots=0, actions=(), every=None, selects=(), metadata=(), edition=0)
