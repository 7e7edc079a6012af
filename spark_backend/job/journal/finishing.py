"""Give the plan of changed queries the settings of the job, and refuse one that cannot run here."""

from __future__ import annotations

from querylang.errors import InputError, did_you_mean, listed
from querylang.plan.model import Plan
from runtime.policies.forget_keys import with_forget_keys
from spark_backend.job.checks.name_conflicts import refuse_name_conflicts
from spark_backend.job.source_orderings import with_source_orderings
from spark_backend.settings.deployment import Deployment
from spark_backend.sinks.bucket_results import refuse_unwritable


def finished(plan: Plan, deployment: Deployment) -> Plan:
    """A plan with the settings of the job; raises InputError for one that cannot run here."""
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
