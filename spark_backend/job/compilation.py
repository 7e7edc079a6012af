"""Compile a deployment's queries; event types without a definition are inferred from the data.

Inferred types are kept beside the checkpoint, so that later files cannot change what a field is.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

import querylang
from querylang.changes.running import Hidden
from querylang.errors import FileErrors, QueryErrors
from querylang.formatter.definition_text import definitions
from querylang.logger import warn
from querylang.parameters.instances import hidden_values, with_instances
from querylang.plan.model import Plan, QueryPlan
from runtime.policies.forget_keys import with_forget_keys
from runtime.reading.column_names import STANDARD, ColumnNames
from runtime.reading.inference.remarks import truncating_divisions
from runtime.reading.inference.schema import infer
from runtime.reading.inference.types import Fields, joined_fields, with_nested
from spark_backend.job.checkpoint_record import Schemas
from spark_backend.job.listed_sources import listed_source, of_files
from spark_backend.job.source_orderings import with_source_orderings
from spark_backend.settings.deployment import Deployment, Source
from spark_backend.sources.formats import source_format


@dataclass(frozen=True, slots=True)
class Compiled:
    """A deployment's plan.

    plan: of all query instances
    schemas: event types that were inferred from data
    idle: queries without an instance, because their parameters have no values
    template, instances: the queries of the files, and their instances as the files have them
    hidden: as of `Running.of`
    """

    plan: Plan
    schemas: Schemas
    idle: tuple[QueryPlan, ...]
    template: Plan
    instances: Plan
    hidden: Mapping[str, Hidden]

    def with_failing_nulls(self, names: Container[str] | None = None) -> Compiled:
        """As `Plan.with_failing_nulls`."""
        plan, template, instances = (
            part.with_failing_nulls(names) for part in (self.plan, self.template, self.instances)
        )
        idle = {query.name for query in self.idle}
        return replace(
            self,
            plan=plan,
            idle=tuple(query for query in template.queries if query.name in idle),
            template=template,
            instances=instances,
        )


def compile_deployment(deployment: Deployment, kept: Schemas | None) -> Compiled:
    """Compile what the deployment runs; raises QueryErrors or InputError.

    kept: the event types that the checkpoint was made with; None = a new checkpoint
    """
    template, schemas = _compiled(deployment, kept)
    instances = with_instances(template, deployment.parameters)
    plan = with_source_orderings(instances, deployment)
    plan = with_forget_keys(plan, deployment.forget_keys)
    running = {query.name for query in plan.queries}
    idle = tuple(query for query in template.queries if query.name not in running)
    hidden = hidden_values(template, deployment.parameters)
    return Compiled(plan, schemas, idle, template, instances, hidden)


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
    plan = querylang.compile_paths(deployment.queries, schemas).plan
    for remark in truncating_divisions(plan, schemas):
        warn(remark)
    return plan, schemas


def _columns(source: Source) -> ColumnNames:
    return ColumnNames(
        source.arrival,
        source.type_field,
        source.source_time,
        source.max_record or STANDARD.max_record,
        source.csv,
        source.times,
    )


_UNTYPED = ("csv", "json")
"""Formats whose files do not say the types of their columns."""


def schemas_from_data(deployment: Deployment) -> Schemas:
    """The fields of the open event types in a sample of each source.

    Raises FileErrors for a source whose files do not say the types, unless it may infer them.
    """
    checked = querylang.check_paths(deployment.queries)
    open_types = [event.name for event in checked.events if not event.fields]
    read = {item.event for query in checked.queries for item in query.inputs}
    only = next(iter(read)) if len(read) == 1 else ""
    found: dict[str, Fields] = {}
    refused: list[tuple[int | None, str]] = []
    for source in of_files(deployment.sources):
        sample = source_format(source.format).sample(listed_source(source))
        if not sample:
            continue
        inferred = infer(*sample, names=_columns(source), event=source.event or only)
        own = with_nested(inferred.schemas, open_types)
        if source.format in _UNTYPED and not source.infers and any(own.values()):
            refused.append((None, _refusal(source, own)))
        for remark in inferred.remarks:
            warn(remark)
        for name, fields in own.items():
            found[name] = joined_fields(found.get(name, {}), fields, name, source.name)
    if refused:
        raise FileErrors(str(deployment.file), refused)
    return found


def _refusal(source: Source, schemas: Schemas) -> str:
    return (
        f"the files of '{source.name}' do not say the types of their columns, and no definition does;"
        f" add this one to the queries and correct its types, or set `infer: true` to take the types of the first files:"
        f" {definitions(schemas)}"
    )
