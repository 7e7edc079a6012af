"""Compile a deployment's queries; event types without a definition are inferred from the data.

Inferred types are kept beside the checkpoint, so that later files cannot change what a field is.
"""

from __future__ import annotations

from dataclasses import dataclass

import querylang
from querylang.errors import QueryErrors
from querylang.parameters.instances import with_instances
from querylang.plan.model import Plan, QueryPlan
from runtime.policies.forget_keys import with_forget_keys
from runtime.reading.column_names import ColumnNames
from runtime.reading.schema_inference import infer_schemas
from spark_backend.job.checkpoint_record import Schemas
from spark_backend.job.file_sources.listed_sources import listed_source
from spark_backend.job.settings import Deployment
from spark_backend.job.source_orderings import with_source_orderings
from spark_backend.sources.formats import source_format


@dataclass(frozen=True, slots=True)
class Compiled:
    """A deployment's plan.

    plan: of all query instances
    schemas: event types that were inferred from data
    idle: queries without an instance, because their parameters have no values
    """

    plan: Plan
    schemas: Schemas
    idle: tuple[QueryPlan, ...]


def compile_deployment(deployment: Deployment, kept: Schemas | None) -> Compiled:
    """Compile what the deployment runs; raises QueryErrors or InputError.

    kept: the event types that the checkpoint was made with; None = a new checkpoint
    """
    template, schemas = _compiled(deployment, kept)
    plan = with_source_orderings(with_instances(template, deployment.parameters), deployment)
    plan = with_forget_keys(plan, deployment.forget_keys)
    running = {query.name for query in plan.queries}
    return Compiled(plan, schemas, tuple(query for query in template.queries if query.name not in running))


def _compiled(deployment: Deployment, kept: Schemas | None) -> tuple[Plan, Schemas]:
    if kept is not None:
        return querylang.compile_paths(deployment.queries, kept or None).plan, kept
    try:
        plan = querylang.compile_paths(deployment.queries).plan
        if all(event.fields for event in plan.events):
            return plan, {}
    except QueryErrors:
        schemas = schemas_from_data(deployment)
        if not schemas:
            raise
    else:
        schemas = schemas_from_data(deployment)
        if not schemas:
            return plan, {}
    return querylang.compile_paths(deployment.queries, schemas).plan, schemas


def schemas_from_data(deployment: Deployment) -> Schemas:
    """The fields of the event types in a sample of each source."""
    found: dict[str, dict[str, object]] = {}
    for source in deployment.sources:
        sample = source_format(source.format).sample(listed_source(source))
        if sample is not None:
            inferred = infer_schemas(
                sample,
                names=ColumnNames(source.arrival, source.type_field, source.source_time),
                event=source.event or "",
            )
            for name, fields in inferred.items():
                found.setdefault(name, {}).update(fields)
    return found  # type: ignore[return-value] # filled from Schemas only
