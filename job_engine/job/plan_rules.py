"""What a job adds to plans, refuses of them, and remarks of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from job_engine.deployment import Deployment
from job_engine.sinks.kinds import MATCHES
from job_engine.sinks.names import channels, in_one_folder
from job_engine.sources.kinds import kind_of
from job_engine.wire.clock_sources import Clock, ClockSource, clock_source, sources_of
from querylang.checker.checked import Written
from querylang.errors import FileErrors, InputError, did_you_mean, listed
from querylang.plan.expression import Expression, Literal, type_of
from querylang.plan.model import (
    Emit,
    For,
    If,
    IfPresent,
    Log,
    Plan,
    Print,
    QueryPlan,
    Route,
    Send,
    Statement,
    Table,
    While,
)
from querylang.plan.routing import QUERIES_CHANNEL, has_chains, taken_types, with_routes
from runtime.policies.plan_policies import OrderingError, SourceOrdering, with_ordering
from runtime.policies.settings_text import with_forget_keys


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


Finish = Callable[[Plan], Plan]
"""Gives a plan the settings of the job; raises InputError for one that cannot run here."""


def would_chain(plan: Plan) -> bool:
    """Whether queries of a plan feed each other by their texts, whatever the plan says."""
    return has_chains(with_routes(plan.queries, plan.events))


def finishing(deployment: Deployment, *, feeds: bool) -> Finish:
    """What makes the plan of changed queries fit to run in a job, as `finished`."""
    return partial(finished, deployment=deployment, feeds=feeds)


def finished(plan: Plan, deployment: Deployment, *, feeds: bool) -> Plan:
    """The plan of changed queries with the settings of the job.

    feeds: as of `job_engine.wire.program.Program`

    Raises InputError for one that cannot run here.
    """
    from job_engine.sinks.bucket_results import refuse_unwritable  # slow to import

    routing = with_routes(plan.queries, plan.events)
    plan = replace(plan, queries=routing) if feeds and has_chains(routing) else plan.without_routes()
    types: set[str | None] = {source.event for source in deployment.sources}
    if None not in types:
        wanted = dict.fromkeys(item.event for query in plan.queries for item in query.inputs)
        routed = {name for query in routing for name in query.routes}
        missing = [name for name in wanted if name not in types and name not in routed]
        if missing:
            names, known = listed(f"'{name}'" for name in missing), sorted(str(name) for name in types)
            raise InputError(
                f"no source of the job brings events of {names}{did_you_mean(missing[0], known)};"
                f" they bring {listed(known)}"
            )
    if not plan.queries:  # no ordering has an effect
        return plan
    complete = with_forget_keys(with_source_orderings(plan, deployment), deployment.forget_keys)
    refuse_name_conflicts(deployment.file, complete)
    refuse_missing_tables(deployment, complete)
    for name, sink in deployment.sinks.items():
        refuse_unwritable(name, sink, complete)
    return complete


def refuse_mixtures(deployment: Deployment, before: Sequence[Plan], plan: Plan) -> None:
    """Raise InputError if matches of a plan have no place in their sink beside earlier ones.

    before: plans whose matches may be still to be written
    """
    from job_engine.sinks import bucket_results  # slow to import

    sink = deployment.sinks.get(MATCHES)
    if sink is not None:
        bucket_results.refuse_mixtures(sink, before, plan)


def with_source_orderings(plan: Plan, deployment: Deployment, unseen: Collection[str] = ()) -> Plan:
    """The plan with the policies of its sources.

    unseen: event types whose fields are known only once there is data

    Raises FileErrors, with lines, for policies that do not fit the queries.
    """
    if all(source.ordering is None for source in deployment.sources):
        return plan
    given = [
        SourceOrdering(source.name, source.ordering, None if source.event is None else (source.event,))
        for source in deployment.sources
    ]
    lines = {source.name: source.ordering_line for source in deployment.sources}
    try:
        return with_ordering(plan, given, unseen)
    except OrderingError as error:
        found = [(lines.get(source or ""), message) for source, message in error.found]
        raise FileErrors(str(deployment.file), sorted(found, key=lambda item: item[0] or 0)) from None


def refuse_name_conflicts(file: Path, plan: Plan) -> None:
    """Raise FileErrors if two names give one folder or one column.

    `file`: the deployment.
    """
    found = [*_folders(plan), *_columns(plan)]
    if found:
        raise FileErrors(str(file), [(None, message) for message in found])


def refuse_missing_tables(deployment: Deployment, plan: Plan) -> None:
    """Raise FileErrors for a table beside the stream that the deployment does not name, or that
    queries define in different ways."""
    users: dict[str, dict[Table, str]] = {}
    for query in plan.queries:
        for table in query.tables:
            users.setdefault(table.name, {}).setdefault(table, query.name)
    found = []
    for name, tables in users.items():
        first, *others = tables.values()
        if name not in deployment.tables:
            near = did_you_mean(name, deployment.tables)
            found.append(
                f"query '{first}' looks something up in table '{name}'; say where it is: `tables: {{{name}:"
                f" {{path: {name.lower()}.csv}}}}`{near}"
            )
        if others:
            found.append(f"the queries '{first}' and '{others[0]}' have different definitions of table '{name}'")
    if found:
        raise FileErrors(str(deployment.file), [(None, message) for message in found])


def _folders(plan: Plan) -> Iterator[str]:
    instances: dict[str, list[str]] = {}
    for query in plan.queries:
        instances.setdefault(query.name, []).append(query.instance)
    for group in in_one_folder(list(instances)):
        yield f"the queries {_quoted(group)} would be written to one folder; {_REASON}"
    for name, own in instances.items():
        for group in in_one_folder(own) if len(own) > 1 else ():
            yield f"the instances {_quoted(group)} of query '{name}' would be written to one folder; {_REASON}"


def _columns(plan: Plan) -> Iterator[str]:
    for event in plan.events:
        for group in in_one_folder([field.name for field in event.fields]):
            yield f"the fields {_quoted(group)} of event '{event.name}' would be one column; {_REASON}"
    for query in plan.queries:
        for group in in_one_folder([key.name for key in query.keys]) if len(query.keys) > 1 else ():
            yield f"the keys {_quoted(group)} of query '{query.title}' would be one column; {_REASON}"


_REASON = "some file systems, Spark and SQL do not tell them apart. Rename one of them"


def _quoted(names: Sequence[str]) -> str:
    return listed([f"'{name}'" for name in names])


# The statements of queries that write something, and events that are routed to nobody.

WrittenBy = Mapping[str, Sequence[Written]]
"""What each query writes, by its name."""


def lost_routes(written: WrittenBy, taken: Collection[str]) -> Iterator[str]:
    """A warning for each event type that a query routes and no query takes."""
    routed = {(name, item.event): None for name, items in written.items() for item in items}
    for name, event in routed:
        if event is not None and event not in taken:
            yield f"query {name}: routes {event!r}, which no query here takes"


def taken_events(plan: Plan) -> set[str]:
    """The event types that the queries take."""
    return set[str]().union(*map(taken_types, plan.queries))


def written_by(plan: Plan, texts: WrittenBy | None = None) -> dict[str, list[Written]]:
    """What each query of a plan writes.

    texts: the same as the texts say it, for plans that lack what depends on event types that
        nothing defines. They do not know values of parameters
    """
    found: dict[str, list[Written]] = {query.name: [] for query in plan.queries}
    for query in plan.queries:  # of each instance: values of parameters may be names of channels
        blocks = (query.block, *(action.body for action in query.actions))
        planned = [_written(item) for block in blocks for item in _writing(block)]
        written = () if texts is None else texts[query.name]
        found[query.name] += planned if len(planned) >= len(written) else written
    return found


def _writing(block: Sequence[Statement]) -> Iterator[Print | Log | Send | Emit | Route]:
    """The statements of a block that write, those within others too."""
    for statement in block:
        match statement:
            case If(then=then, otherwise=otherwise) | IfPresent(then=then, otherwise=otherwise):
                yield from _writing((*then, *otherwise))
            case While(body=body) | For(body=body):
                yield from _writing(body)
            case Print() | Log() | Send() | Emit() | Route():
                yield statement
            case _:  # the others write nothing
                pass


def _written(statement: Print | Log | Send | Emit | Route) -> Written:
    match statement:
        case Print():
            return Written("print")
        case Log():
            return Written("log")
        case Send(event=event, channel=Literal(value=str(name))) if name == QUERIES_CHANNEL:
            return Written("send", name, event=type_of(event).name)
        case Send(channel=channel):
            return _to_channel("send", channel)
        case Emit(channel=to):
            return Written("emit") if to is None else _to_channel("emit", to)
        case Route(event=event):
            return Written("route", event=type_of(event).name)


def _to_channel(word: str, channel: Expression) -> Written:
    match channel:
        case Literal(value=str(name)):
            return Written(word, name)
        case _:
            return Written(word, has_computed_channel=True)


# What is remarked of the queries of a job: before a start, and by `ensue check`.


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
    yield from unused_tables(plan, deployment)


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
    from runtime.reading import unused_source_time  # it loads NumPy

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


def refuse_unknown_fields(deployment: Deployment, plan: Plan) -> None:
    """Raise FileErrors for what `hide` names and no event type has: it would be shown."""
    known = {field.name for event in plan.events for field in event.fields}
    known |= {f"{event.name}.{field.name}" for event in plan.events for field in event.fields}
    missing = [name for name in deployment.hide if name not in known]
    messages = [f"hide: no event type has a field '{name}'{did_you_mean(name, sorted(known))}" for name in missing]
    if messages:
        raise FileErrors(str(deployment.file), [(None, message) for message in messages])


def unused_tables(plan: Plan, deployment: Deployment) -> Iterator[str]:
    """A warning for each table beside the stream that no query looks anything up in."""
    names = {table.name for query in plan.queries for table in query.tables}
    for name in deployment.tables:
        if name not in names:
            yield f"table '{name}': no query looks anything up in it{did_you_mean(name, sorted(names))}"
