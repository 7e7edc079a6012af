"""Queries whose last wait no silence ends: reported before a job starts.

Needs only the language and the standard library, because `ensue check` does it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from job_engine.settings.deployment import Deployment
from job_engine.sources.kinds import kind_of
from job_engine.wire.clock import Clock
from job_engine.wire.clock_sources import ClockSource, clock_source, sources_of
from querylang.plan.model import Plan, QueryPlan


def clock_sources(deployment: Deployment) -> list[ClockSource]:
    """What clocks have to know of a deployment's sources."""
    return [
        replace(
            clock_source(item.name, item.event, item.idle, item.ordering, item.ahead),
            by_topic=kind_of(item.format).is_log,
            in_files=not kind_of(item.format).is_log,
        )
        for item in deployment.sources
    ]


def open_waits(plan: Plan, deployment: Deployment) -> Iterator[str]:
    """A warning for each query that ends with a wait, while nothing but records advances time."""
    if deployment.clock is Clock.PROCESSING:
        return
    sources = clock_sources(deployment)
    for query in plan.queries:
        if query.trailing is not None and not _has_heartbeats(query) and not _can_be_idle(query, sources):
            yield f"query {query.title}: its last wait ends only when a later record arrives; set 'idle'"


def unused_source_times(plan: Plan, deployment: Deployment) -> Iterator[str]:
    """A warning for each source whose column of source times does nothing.

    plan: with the ordering policies of the sources
    """
    named = [source for source in deployment.sources if source.source_time is not None]
    if not named:
        return
    from runtime.reading.plan_needs import unused_source_time  # it loads NumPy

    for source in named:
        has_arrival = source.arrival is not None or kind_of(source.format).tells_arrival
        warning = unused_source_time(plan, source.source_time) if has_arrival else None
        if warning is not None:
            yield f"source {source.name}: {warning}"


def _has_heartbeats(query: QueryPlan) -> bool:
    return any(item.heartbeat is not None for item in query.inputs)


def _can_be_idle(query: QueryPlan, sources: list[ClockSource]) -> bool:
    met = sources_of(query, sources)
    return any(source.idle is not None for source in sources if source.name in met)
