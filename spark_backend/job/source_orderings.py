"""The ordering policies of a deployment's sources, put into the plan: what does not fit the queries has its line in the file.

Takes a plan and the deployment; gives the plan. The settings themselves are read in `spark_backend.job.ordering_settings`. Needs
the language and the standard library only: `ensue check` does this too.
"""

from __future__ import annotations

from collections.abc import Collection

from querylang.errors import FileErrors
from querylang.plan.model import Plan
from runtime.policies.plan_policies import OrderingError, SourceOrdering, with_ordering
from spark_backend.job.settings import Deployment


def with_source_orderings(plan: Plan, deployment: Deployment, unseen: Collection[str] = ()) -> Plan:
    """The plan with the policies of its sources. `unseen`: event types whose fields only the data will tell. Raises FileErrors."""
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
