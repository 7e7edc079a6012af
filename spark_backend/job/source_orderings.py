"""Put the ordering policies of a deployment's sources into the plan.

Needs only the language and the standard library, because `ensue check` does it too.
"""

from __future__ import annotations

from collections.abc import Collection

from querylang.errors import FileErrors
from querylang.plan.model import Plan
from runtime.policies.plan_policies import OrderingError, SourceOrdering, with_ordering
from spark_backend.settings.deployment import Deployment


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
