"""The queries of a deployment, compiled; event types that no text defines are read from the sources' data.

Takes a deployment and, on a checkpoint that exists, the event types it was made with; gives the plan, and those types:
they are kept beside the checkpoint, so that later files cannot change what a field is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import querylang
from querylang.errors import QueryErrors
from querylang.parameters.instances import with_instances
from querylang.plan.model import Plan, QueryPlan
from runtime.reading.schema_inference import infer_schemas
from spark_backend.job.checkpoint_record import Schemas
from spark_backend.job.settings import Deployment, Source
from spark_backend.job.source_orderings import with_source_orderings

_SUFFIXES = {"parquet": (".parquet",), "csv": (".csv",), "json": (".json", ".jsonl", ".ndjson")}


@dataclass(frozen=True, slots=True)
class Compiled:
    """The plan of all instances, the types that came from data, and the queries that have no instance."""

    plan: Plan
    schemas: Schemas
    idle: tuple[QueryPlan, ...]


def compile_deployment(deployment: Deployment, kept: Schemas | None) -> Compiled:
    """What the deployment runs; raises QueryErrors or InputError."""
    template, schemas = _compiled(deployment, kept)
    plan = with_source_orderings(with_instances(template, deployment.parameters), deployment)
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
    """The fields of the event types in the first file of each source."""
    found: dict[str, dict[str, object]] = {}
    for source in deployment.sources:
        first = _first_file(source)
        if first is not None:
            inferred = infer_schemas(
                first,
                arrival=source.arrival,
                type=source.type_field,
                source_time=source.source_time,
                event=source.event or "",
            )
            for name, fields in inferred.items():
                found.setdefault(name, {}).update(fields)
    return found  # type: ignore[return-value] # filled from Schemas only


def _first_file(source: Source) -> Path | None:
    """The oldest file, as Spark takes them."""
    files = [
        path for path in source.path.rglob("*") if path.suffix in _SUFFIXES[source.format] and path.name[0] not in "._"
    ]
    return min(files, key=lambda path: (path.stat().st_mtime_ns, path.name), default=None)
