"""What is remarked of the queries of a job: before a start, and by `ensue check`.

Needs only the language and the standard library, because `ensue check` does it too.
"""

from __future__ import annotations

from collections.abc import Iterator

from job_engine.job.plan_rules import clock_sources
from job_engine.job.writing_statements import WrittenBy, lost_routes, taken_events, written_by
from job_engine.settings.deployment import Deployment
from job_engine.sinks.channels import channels
from job_engine.sources.kinds import kind_of
from job_engine.wire.clock_sources import Clock, ClockSource, sources_of
from querylang.errors import did_you_mean
from querylang.plan.model import Plan, QueryPlan


def said_at_start(plan: Plan, deployment: Deployment, *, is_bounded: bool, is_new: bool) -> Iterator[str]:
    """The warnings of a job that starts.

    plan: with the ordering policies of the sources
    is_bounded: whether it ends with its input
    is_new: as of `Checked`
    """
    written = written_by(plan)
    yield from lost_outputs(written, deployment)
    yield from silent_channels(written, deployment)
    yield from lost_routes(written, taken_events(plan))
    if not is_bounded:
        yield from open_waits(plan, deployment)
    yield from unused_source_times(plan, deployment)
    yield from unused_history(deployment, is_new=is_new)


def lost_outputs(written: WrittenBy, deployment: Deployment) -> Iterator[str]:
    """A warning for each query whose outputs are written nowhere."""
    if "output" in deployment.sinks:
        return
    own = channels(deployment.sinks)
    for name, items in written.items():
        words = dict.fromkeys(item.word for item in items if item.channel not in own)
        if words:
            shown = ", ".join(f"`{word}`" for word in words)
            yield f"query {name}: without a sink `output` nothing keeps what it writes with {shown}"


def silent_channels(written: WrittenBy, deployment: Deployment) -> Iterator[str]:
    """A warning for each channel that has a place, and that no query sends to."""
    statements = [item for items in written.values() for item in items]
    if any(item.has_computed_channel for item in statements):
        return  # what an expression gives is known when it is sent
    used = {item.channel for item in statements if item.channel is not None}
    for channel in channels(deployment.sinks):
        if channel not in used:
            yield f"channel '{channel}': no query sends to it{did_you_mean(channel, sorted(used))}"


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


def unused_history(deployment: Deployment, *, is_new: bool) -> Iterator[str]:
    """A warning that they begin without it; `is_new`: as of `Checked`."""
    if is_new and deployment.history is not None:
        yield (
            "the queries begin with empty windows: 'history' is for those that"
            f" `ensue deploy {deployment.file} QUERY --history` deploys later"
        )
