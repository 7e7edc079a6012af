"""What a job adds to plans and tells their clocks, and what it refuses of plans.

Needs only the language and the standard library, but for changed queries, because `ensue check`
looks at plans, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from job_engine.settings.deployment import Deployment
from job_engine.sinks.path_names import in_one_folder
from job_engine.sources.kinds import kind_of
from job_engine.wire.clock_sources import ClockSource, clock_source
from querylang.errors import FileErrors, InputError, did_you_mean, listed
from querylang.plan.model import Plan
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


def finishing(deployment: Deployment) -> Finish:
    """What makes the plan of changed queries fit to run in a job, as `finished`."""
    return partial(finished, deployment=deployment)


def finished(plan: Plan, deployment: Deployment) -> Plan:
    """The plan of changed queries with the settings of the job.

    Raises InputError for one that cannot run here.
    """
    from job_engine.sinks.bucket_results import refuse_unwritable  # slow to import

    types = {source.event for source in deployment.sources}
    if None not in types:
        wanted = dict.fromkeys(item.event for query in plan.queries for item in query.inputs)
        missing = [name for name in wanted if name not in types]
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
    for name, sink in deployment.sinks.items():
        refuse_unwritable(name, sink, complete)
    return complete


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
    """Raise FileErrors if two names give one folder or one column; `file`: the deployment."""
    found = [*_folders(plan), *_columns(plan)]
    if found:
        raise FileErrors(str(file), [(None, message) for message in found])


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
