"""Compile a deployment's queries; event types without a definition are inferred from the data.

Inferred types are kept beside the checkpoint, so that later files cannot change what a field is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any, TypedDict

import querylang
from job_engine.deployment import Deployment
from job_engine.durable_files import JobFile
from job_engine.errors import naming_settings
from job_engine.job.checkpoint.checkpoint_record import FILES_NAME, Record, Schemas, crosses
from job_engine.job.plan_rules import clock_sources, with_source_orderings, would_chain
from job_engine.local_path import temporary_folder
from job_engine.place import Place
from job_engine.sources.crash_marks import CRASHES, NO_MARKS, CrashMarks
from job_engine.sources.kinds import FirstTables, running_of
from job_engine.sources.listing.lister import RunSettings
from job_engine.sources.listing.manifests import ToldSource, reading_options
from job_engine.sources.reading import Reading, plain_csv
from job_engine.sources.source import Source
from job_engine.wire.plan_text import is_packed, load_written
from job_engine.wire.program import Program
from querylang.checker.checked import Checked
from querylang.dataclass import dataclass, replace
from querylang.errors import FileErrors, QueryErrors
from querylang.formatter.formatting import definitions
from querylang.load import compile_checked, texts_of, words_of
from querylang.parameters import hidden_values, with_instances
from querylang.plan.model import Plan, PlanVersionError, QueryPlan
from querylang.plan.routing import has_chains
from querylang.printable import warn
from querylang.running import Hidden, Running
from runtime import reading
from runtime.compiling.files import code_digest
from runtime.json_reader import DamagedJson
from runtime.policies.settings_text import with_forget_keys

_MOST_COPIED = 16 << 20
"""A larger file in a store is copied only where the types of fields come from it."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A deployment's plan.

    plan: of all query instances
    schemas: event types that were inferred from data
    fields: by source: the roles whose standard columns are fields, as in `Record`
    idle: queries without an instance, because their parameters have no values
    template, instances: the queries of the files, and their instances as the files have them
    hidden: as of `Running.of`
    feeds: as of `Program`
    record: of the checkpoint; None = a new one
    known: what the files say, where the plan was kept; None = it follows from the other parts
    """

    plan: Plan
    schemas: Schemas
    fields: Mapping[str, Sequence[str]]
    idle: tuple[QueryPlan, ...]
    template: Plan
    instances: Plan
    hidden: Mapping[str, Hidden]
    feeds: bool
    record: Record | None = None
    known: Running | None = None

    @property
    def running(self) -> Running:
        """What the files say: queries, instances and their values."""
        return self.known or Running.of(self.template, self.instances, self.hidden)

    def program(self, deployment: Deployment) -> Program:
        """What buckets run of it."""
        sources = clock_sources(deployment)
        can_cross = crosses(deployment.engine) if self.record is None else self.record.can_cross
        program = Program.of(
            self.plan, buckets=deployment.buckets, clock=deployment.clock, sources=sources, crosses=can_cross
        )
        program = replace(program, live=deployment.live, feeds=self.feeds)
        return program if self.record is None else replace(program, gathered=self.record.gathered_of(program))

    def by_rules_of(self, known: Mapping[str, QueryPlan]) -> Compiled:
        """As `Plan.by_rules_of`."""
        plan, template, instances = (part.by_rules_of(known) for part in (self.plan, self.template, self.instances))
        idle = {query.name for query in self.idle}
        return replace(
            self,
            plan=plan,
            idle=tuple(query for query in template.queries if query.name in idle),
            template=template,
            instances=instances,
        )


def compiled_as_kept(deployment: Deployment, record: Record | None, before: Running | None = None) -> Compiled:
    """As `compile_deployment`.

    record: of the checkpoint; None = a new one
    before: what the files said when they were last applied; None = what they say now
    """
    if record is None:
        return compile_deployment(deployment, None)
    found = None if before is None else kept_plan(deployment, record, before)
    if found is not None:
        return found
    feeds = record.chains or not (before is not None and would_chain(before.plan()))
    compiled = compile_deployment(deployment, record.types(), feeds=feeds)
    if before is None and not record.chains and has_chains(compiled.template.queries):
        compiled = compile_deployment(deployment, record.types(), feeds=False)
    return replace(compiled, record=record)


def compile_deployment(deployment: Deployment, kept: Schemas | None, *, feeds: bool = True) -> Compiled:
    """Compile what the deployment runs; raises QueryErrors or InputError.

    kept: the event types that the checkpoint was made with; None = a new checkpoint
    feeds: as of `Program`
    """
    with temporary_folder() as copies, naming_settings():
        template, schemas, fields = _compiled(deployment, kept, copies)
    template = template if feeds and has_chains(template.queries) else template.without_routes()
    instances = with_instances(template, deployment.parameters)
    plan = with_source_orderings(instances, deployment)
    plan = with_forget_keys(plan, deployment.forget_keys)
    running = {query.name for query in plan.queries}
    idle = tuple(query for query in template.queries if query.name not in running)
    hidden = hidden_values(template, deployment.parameters)
    return Compiled(plan, schemas, fields, idle, template, instances, hidden, feeds)


def _compiled(
    deployment: Deployment, kept: Schemas | None, copies: Path
) -> tuple[Plan, Schemas, Mapping[str, Sequence[str]]]:
    """The queries before they get their parameters, inferred types, and columns that are fields.

    copies: an empty folder for copies of files in stores

    What was decided when the checkpoint was new stays.
    """
    texts = texts_of(deployment.queries)
    if kept is not None:
        return querylang.compile_paths(texts, kept or None).plan, kept, {}
    checked = querylang.check_paths(texts)
    try:
        plan = compile_checked(checked) if checked.is_whole else querylang.compile_paths(texts).plan
    except QueryErrors:
        plan = None
    is_defined = plan is not None and all(event.fields for event in plan.events)
    most = _MOST_COPIED if is_defined else None
    samples = [
        Sample.of(source, checked, copies / str(number), most) for number, source in enumerate(deployment.sources)
    ]
    if plan is not None and is_defined:
        return plan, {}, told_fields(samples, ())
    named = words_of(texts) & set(reading.STANDARD_NAMES)
    whole = schemas_from_data(deployment, samples, checked, named)
    if not whole:
        plan = querylang.compile_paths(texts).plan if plan is None else plan
        return plan, {}, told_fields(samples, ())
    plan = querylang.compile_paths(texts, whole).plan
    open_types = [event.name for event in checked.events if not event.fields]
    read = {name.casefold() for name in reading.fields_read(plan, open_types)}
    columns = [own for sample in samples for own in sample.decided.columns]
    schemas = reading.without_unread(whole, open_types, read, named, columns)
    if schemas != whole:
        plan = querylang.compile_paths(texts, schemas).plan
    for remark in reading.truncating_divisions(plan, schemas):
        warn(remark)
    return plan, schemas, told_fields(samples, read)


def _columns(source: Source) -> reading.ColumnNames:
    return reading.ColumnNames(
        source.arrival,
        source.type_field if source.event is None else reading.NONE,
        source.source_time,
        source.max_record or reading.STANDARD.max_record,
        source.csv,
        source.times,
        source=source.source_column,
        partition=source.partition,
        offset=source.offset,
    )


@dataclass(frozen=True, slots=True)
class Sample:
    """What a source shows before a new job begins.

    tables: its first ones, such as files
    decided: what their columns are
    have_types: as in `FirstTables`
    """

    source: Source
    tables: Sequence[Any]
    decided: reading.Decided
    have_types: bool = True

    @staticmethod
    def of(source: Source, checked: Checked, copies: Path, most: int | None) -> Sample:
        """Look at the first tables of a source; the rest as of `SourceRunning.first_tables`."""
        names, plan = _columns(source), Plan(checked.events, checked.queries)
        shown = running_of(source).first_tables(source, names, copies, most) or FirstTables((), (), ())
        tables, own = shown.tables, shown.judged
        if not own:
            return Sample(source, tables, reading.Decided(()), shown.have_types)
        types = dict.fromkeys([*(event.name for event in checked.events), *reading.input_types(plan)])
        decide = partial(
            reading.decide_meanings,
            own,
            shown.labels,
            names,
            list(types),
            have_own_times=bool(list(plan.time_sources())),
        )
        meanings = decide()
        if not reading.leaves_types(own, meanings, plan, names):
            meanings = decide(has_all_types=False)  # more files follow, and no other column tells what a row is
        decided = reading.decide_places(own, shown.labels, meanings.columns, plan)
        return Sample(source, tables, replace(decided, remarks=(*meanings.remarks, *decided.remarks)), shown.have_types)


def told_fields(samples: Sequence[Sample], read: Collection[str]) -> Mapping[str, Sequence[str]]:
    """By source: the roles whose columns are fields; why they are is logged, once for each of them.

    read: names that queries read of events which nothing defines
    """
    fields: dict[str, Sequence[str]] = {}
    for sample in samples:
        decided, names = sample.decided.with_read(read), _columns(sample.source)
        found = [
            role
            for role in reading.STANDARD_NAMES
            if names.given(role) is None and any(own.of(role) is None for own in decided.columns)
        ]
        for role in found:
            told = next(remark for remark in decided.remarks if f": {role!r} is a field" in remark)
            warn(told.partition("; `--")[0])
        if found:
            fields[sample.source.name] = found
    return fields


def with_fields(deployment: Deployment, fields: Mapping[str, Sequence[str]]) -> Deployment:
    """The deployment, with sources whose columns of these roles are fields."""
    words = {
        reading.TYPE: "type_field",
        reading.ARRIVAL: "arrival",
        reading.SOURCE_TIME: "source_time",
        reading.SOURCE: "source_column",
    }
    sources = []
    for source in deployment.sources:
        changes: dict[str, Any] = {words.get(role, role): reading.NONE for role in fields.get(source.name, ())}
        if source.event is not None:
            changes.pop("type_field", None)  # it is not asked for
        sources.append(replace(source, **changes, is_typeless=changes.get("type_field") == reading.NONE))
    return replace(deployment, sources=tuple(sources))


def schemas_from_data(
    deployment: Deployment, samples: Sequence[Sample], checked: Checked, fields: Collection[str]
) -> Schemas:
    """The fields of the open event types in a sample of each source; `fields`: as of `infer`.

    Raises FileErrors for a source whose files do not say the types, unless it may infer them.
    """
    open_types = [event.name for event in checked.events if not event.fields]
    read = reading.input_types(Plan(checked.events, checked.queries))
    only = read[0] if len(read) == 1 else ""
    found: dict[str, reading.Fields] = {}
    refused: list[tuple[int | None, str]] = []
    for sample in samples:
        source = sample.source
        if not sample.tables:
            continue
        inferred = reading.infer(
            *sample.tables, names=sample.decided.columns, event=source.event or only, fields=fields
        )
        own = reading.with_nested(inferred.schemas, open_types)
        if not sample.have_types and not source.infers and any(own.values()):
            refused.append((None, _refusal(source, own)))
        for remark in inferred.remarks:
            warn(remark)
        for name, types in own.items():
            found[name] = reading.joined_fields(found.get(name, {}), types, name, source.name)
    if refused:
        raise FileErrors(str(deployment.file), refused)
    return found


def _refusal(source: Source, schemas: Schemas) -> str:
    return (
        f"the files of '{source.name}' do not say the types of their columns, and no definition does;"
        f" add this one to the queries and correct its types, or set `infer: true` to take the types of the first files:"
        f" {definitions(schemas)}"
    )


# The sources of a job as those who plan and read them have to know them.


def run_options(
    deployment: Deployment,
    program: Program,
    run: RunSettings,
    *,
    inferred: Iterable[str] = (),
    accepts_loss: bool = False,
    marks: CrashMarks = NO_MARKS,
) -> dict[str, str]:
    """What those who plan and read the micro-batches of a run have to know; all values are text.

    inferred: as in `Reading`
    accepts_loss: whether the run continues without what was removed or has changed since
    marks: of records that end a process
    """
    told, readings = told_sources(deployment), source_readings(deployment, inferred)
    options = reading_options(told, readings, program, accepts_loss=accepts_loss)
    return {**options, "run": run.to_text(), CRASHES: marks.to_text()}


def told_sources(deployment: Deployment) -> dict[str, ToldSource]:
    """The sources as the lister and workers have to know them, the control stream last."""
    return {source.name: ToldSource(source.format, source.own) for source in deployment.all_sources}


def source_readings(deployment: Deployment, inferred: Iterable[str] = ()) -> dict[str, Reading]:
    """How each source is read, by its name; ranks are by name, the control stream last.

    inferred: as in `Reading`
    """
    types = tuple(sorted(inferred))
    prefixes = file_prefixes(deployment.sources)
    return {
        source.name: Reading(
            source.event,
            source.type_field,
            source.source_time,
            source.arrival,
            prefix=prefixes.get(source.name, ""),
            name=source.name,
            rank=rank,
            is_control=source is deployment.control,
            max_record=source.max_record or reading.STANDARD.max_record,
            csv=plain_csv(source.csv),
            time_unit=source.times.unit,
            time_format=source.times.pattern,
            source_column=source.source_column,
            partition=source.partition,
            offset=source.offset,
            is_typeless=source.is_typeless,
            inferred=types,
        )
        for rank, source in enumerate(deployment.all_sources)
    }


def file_prefixes(sources: Sequence[Source]) -> dict[str, str]:
    """What is prepended to the names of each source's files: nothing, or the source's name.

    A record's coordinates start with its file's name. Two sources may have files of one name. If
    records are ordered by source, the prefix tells whose clock a file follows. The queries have no
    influence, so that identities of matches do not change with them.
    """
    is_plain = len(sources) == 1 and sources[0].ordering is None
    return {source.name: "" if is_plain else f"{source.name}/" for source in sources}


# The plan of a checkpoint, kept beside it, so that a start does not compile thousands of queries.
#
# It depends on the texts, on settings that change plans, on what the checkpoint was made for, and
# on the code that compiles. A digest of all that is kept with it. Under another digest, or where
# the file is damaged, the plan is made anew.

_PLAN_VERSION = 1


class _KeptPlan(TypedDict):
    """digest: of what the plan was made of, and of its text"""

    digest: str
    plan: str


def _plan_file(checkpoint: Place) -> JobFile[_KeptPlan]:
    return JobFile(checkpoint / "ensue" / "plan.json", _KeptPlan, versions=(_PLAN_VERSION,))


def kept_plan(deployment: Deployment, record: Record, before: Running) -> Compiled | None:
    """What `compiled_as_kept` gives, without compiling, by the rules of the checkpoint; None = the
    plan is not kept, or would be another one.

    before: what the files said when they were last applied, which they still say
    """
    found = _plan_file(deployment.checkpoint).readable()
    if found is None or not before.is_annotated or found["digest"] != _digest(deployment, record, found["plan"]):
        return None
    try:
        plan = load_written(found["plan"])
    except (DamagedJson, PlanVersionError):
        return None
    running = {query.name for query in plan.queries}
    texts = Plan(before.events, tuple(query.current.template for query in before.queries.values()), before.stopped)
    idle = tuple(query for query in texts.queries if query.name not in running)
    return Compiled(plan, record.types(), {}, idle, texts, plan, {}, feeds=True, record=record, known=before)


def keep_plan(deployment: Deployment, record: Record, program: Program) -> None:
    """Keep the plan of the files, which have been applied; that of few queries is made as fast.

    record: as the checkpoint has it now
    program: of the files
    """
    text, file = program.plans[0], _plan_file(deployment.checkpoint)
    is_needed = is_packed(text) and program.feeds and not deployment.parameters.hidden
    if not is_needed:
        return
    wanted = {"digest": _digest(deployment, record, text), "plan": text}
    if file.readable() != wanted:
        file.write({"version": _PLAN_VERSION, **wanted})


def _digest(deployment: Deployment, record: Record, plan: str) -> str:
    """Of all that decides what the plan of a checkpoint is, and of its text."""
    made_of = (
        metadata.version("ensue"),
        code_digest("querylang", "runtime.policies", "job_engine.job"),
        sorted((name, sorted(types.items())) for name, types in record.schemas.items()),
        record.chains,
        [(source.name, source.event, source.ordering) for source in deployment.sources],
        deployment.forget_keys,
        deployment.parameters.values,
        sorted(deployment.parameters.hidden),
        [(source.path, source.text) for source in texts_of(deployment.queries)],
        (deployment.checkpoint / "ensue" / FILES_NAME).read_bytes(),
    )
    digest = blake2b(digest_size=16)
    for part in (*made_of, plan):
        digest.update(blake2b(repr(part).encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()
