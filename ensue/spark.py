"""Queries on Spark: what `ensue.match`, `ensue.stream` and `ensue match` run.

The queries are compiled for the columns of DataFrames or files; `spark_backend.frames` runs them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as spark_types

from ensue.changing import Finish, InferredTypes, script_of_changes
from ensue.data_options import DataOptions, read_parameters
from ensue.plans import fitted
from ensue.queries import Queries, load_and_warn
from job_engine.sources.reading import Reading
from job_engine.wire.clock_sources import Clock, Idle
from job_engine.wire.program import Program
from querylang.changes import Infer
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, QueryErrors
from querylang.load import Schemas, check_text
from querylang.plan.expression import Type
from querylang.plan.model import Plan
from querylang.plan.routing import source_types
from querylang.printable import warn
from runtime.columns.arrivals import Arrivals
from runtime.lookup_tables import GivenTables, with_places
from runtime.matching.choose import warn_if_slow
from runtime.policies.plan_policies import SourceOrdering, parse_orderings, policy_of, with_ordering
from runtime.policies.settings_text import parse_duration, parse_forget_keys, with_forget_keys
from runtime.reading import (
    ARRIVAL,
    MOST_SOURCES,
    OFFSET,
    PLACES,
    SOURCE,
    STANDARD_NAMES,
    TYPE,
    ColumnNames,
    Decided,
    EventsOfStructs,
    Fields,
    decide_meanings,
    decide_places,
    fields_read,
    input_types,
    is_field,
    joined_fields,
    names_of_columns,
    nested_name,
    not_fields,
    rounded_column,
    truncating_divisions,
    unread_column,
    unused_source_time,
    without_unread,
)
from runtime.replay import about_rows_of, plan_for_files, refuse_unknown
from spark_backend import frame_matching
from spark_backend.batches import Batch, Streams, batch_of, counted
from spark_backend.frame_matching import BoundedSource, changes_of
from spark_backend.frames import arrow_type, matches_frame
from spark_backend.session import get_session
from spark_backend.versions import refuse_connect

_ENOUGH = 1_000

Frames = DataFrame | Mapping[str, DataFrame]


def match(frames: Frames, queries: Queries | str | Path, options: DataOptions, *, flat: bool) -> DataFrame:
    """See `ensue.match`."""
    tagged, plan = _bounded(frames, queries, options, logs_discards=True)
    return matches_frame(tagged, plan, is_flat=flat)


def batch(frames: Frames, queries: Queries | str | Path, options: DataOptions, *, flat: bool) -> Batch:
    """See `ensue.batch`."""
    return batch_of(*_bounded(frames, queries, options, logs_discards=False), is_flat=flat)


def _bounded(
    frames: Frames, queries: Queries | str | Path, options: DataOptions, *, logs_discards: bool
) -> tuple[DataFrame, Plan]:
    """The tagged rows of bounded DataFrames."""
    _refuse_kind(frames, is_stream=False)
    loaded, named = load_and_warn(queries), _by_name(frames)
    lookup_tables = options.lookup_tables
    plan, columns, schemas = _plan_for_frames(loaded, frames, options, lookup_tables)
    readings = {name: Reading.of_columns(columns[name], name) for name in named}

    def infer(text: str) -> Schemas:
        return _schemas_of(named, _open_types(text), columns)

    def finish(own: Plan) -> Plan:
        return _finished(own, named, options, columns, lookup_tables)

    sources = frame_matching.frame_sources(frames, readings)
    changing = _changing(loaded.template(schemas), plan, sources, infer, finish)
    plan = plan if changing is None else changing.script.plan
    warn_if_slow(plan, None)
    tagged = frame_matching.match_tagged(frames, plan, reading=readings, changing=changing, logs_discards=logs_discards)
    return tagged, plan


def _changing(
    template: Plan,
    instances: Plan,
    sources: Sequence[BoundedSource],
    infer: Infer,
    finish: Finish,
) -> frame_matching.Changing | None:
    """How control events among bounded records change the queries; None = they do not."""
    changes = changes_of(sources, instances)

    def furthest(record: int, plan: Plan) -> int:
        return max(source.furthest(plan, changes.slice(record, 1)) for source in sources)

    script = script_of_changes(template, instances, Arrivals(changes), finish, infer, furthest)
    return None if script is None else frame_matching.Changing(script, changes)


def _open_types(text: str) -> list[str]:
    """The event types of a text that nothing defines; none if it has mistakes."""
    try:
        checked = check_text(text)
    except QueryErrors:
        return []
    read = {item.event for query in checked.queries for item in query.inputs}
    return [event.name for event in checked.events if not event.fields and event.name in read]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How time advances in a stream, as users give it; see `ensue.stream`."""

    control: DataFrame | None
    clock: str
    idle: str | None
    apply: bool


def stream(
    frames: Frames, queries: Queries | str | Path, options: DataOptions, how: StreamOptions, *, flat: bool
) -> DataFrame:
    """See `ensue.stream`."""
    tagged, program = _streaming(frames, queries, options, how)
    return matches_frame(counted(tagged), program.plan(), is_flat=flat)


def streams(
    frames: Frames, queries: Queries | str | Path, options: DataOptions, how: StreamOptions, *, flat: bool
) -> Streams:
    """See `ensue.streams`."""
    tagged, program = _streaming(frames, queries, options, how)
    return Streams(tagged, program.plan(), not program.needs_timeouts, flat)


def _streaming(
    frames: Frames, queries: Queries | str | Path, options: DataOptions, how: StreamOptions
) -> tuple[DataFrame, Program]:
    """The tagged rows of streaming DataFrames."""
    given = _idle(how.clock, how.idle)
    _refuse_kind(frames, is_stream=True)
    plan, columns, _ = _plan_for_frames(load_and_warn(queries), frames, options, options.lookup_tables)
    warn_if_slow(plan, None)
    reading = {name: Reading.of_columns(columns[name], name) for name in _by_name(frames)}
    return frame_matching.stream(
        frames,
        plan,
        control=how.control,
        clock=how.clock,
        idle=given,
        orderings=parse_orderings(options.ordering),
        reading=reading,
        apply=how.apply,
    )


def _refuse_kind(frames: Frames, *, is_stream: bool) -> None:
    """Raise InputError for a bounded DataFrame in place of a streaming one, and the reverse."""
    if not _by_name(frames):
        raise InputError("there is no DataFrame; expected one, or a mapping of sources' names to DataFrames")
    for name, frame in _by_name(frames).items():
        refuse_connect(frame)
        _refuse_other(frame)
        if frame.isStreaming and not is_stream:
            raise InputError(f"DataFrame {name!r} is streaming: use `ensue.stream`, or `ensue.streams` for all results")
        if is_stream and not frame.isStreaming:
            raise InputError(
                f"DataFrame {name!r} is not streaming: use `ensue.match`, or `ensue.batch` for all results"
            )


def _refuse_other(frame: object) -> None:
    """Raise InputError for what is not a Spark DataFrame."""
    if not isinstance(frame, DataFrame):
        is_query = isinstance(frame, str | Path | Queries)
        way_out = "give DataFrames first, then queries" if is_query else "`ensue.replay` is for other tables"
        raise InputError(f"a {type(frame).__name__} is not a DataFrame of Spark; {way_out}")


def _idle(clock: str, idle: str | None) -> Idle | None:
    """What the user says of idle sources. Raises InputError for a wrong length or clock."""
    if clock not in set(Clock):
        raise InputError(f"clock: unknown clock {clock!r}; expected {' or '.join(Clock)}")
    if idle is None:
        return None
    if clock == Clock.PROCESSING:
        raise InputError("idle: has no effect with the clock 'processing', which always advances")
    length = None if idle == "none" else parse_duration(idle)
    if length is None and idle != "none":
        raise InputError(f"idle: {idle!r} is not a duration; expected one such as '1 second' or '500ms', or 'none'")
    return Idle(length)


def match_files(queries: Queries, paths: Sequence[Path], options: DataOptions) -> DataFrame:
    """The matches in files of events, in batch; workers read the files."""
    ready = fitted(queries, paths, options.columns)
    compiled, columns = ready.plan(read_parameters(options.parameters)), ready.columns
    orderings, forget_keys = parse_orderings(options.ordering), parse_forget_keys(options.forget_keys)
    lookup_tables = options.lookup_tables

    def finish(own: Plan) -> Plan:
        plan = with_forget_keys(plan_for_files(paths, own, columns, orderings), forget_keys)
        return with_places(lookup_tables.bound(plan))

    plan = finish(compiled)
    named = (names_of_columns(path) for path in paths[:1] if path.is_file())
    _warn_of_unused_time(plan, options.columns, named)
    fields = {field.name for name in input_types(plan) for field in plan.event(name).fields}
    session = get_session("ensue match")
    readings = [
        replace(
            Reading.of_columns(own, None), elsewhere=tuple(name for name in sorted(fields) if name in own.elsewhere)
        )
        for own in columns
    ]
    source = frame_matching.file_source(session, paths, readings)
    changing = _changing(ready.template, plan, [source], InferredTypes(paths, columns).of_text, finish)
    plan = plan if changing is None else changing.script.plan
    warn_if_slow(plan, about_rows_of(paths) or None)  # folders are not looked into
    return matches_frame(frame_matching.match_files(session, paths, plan, readings=readings, changing=changing), plan)


def _by_name(frames: Frames) -> Mapping[str, DataFrame]:
    return frames if isinstance(frames, Mapping) else {"table": frames}


def _plan_for_frames(
    queries: Queries, frames: Frames, options: DataOptions, lookup_tables: GivenTables
) -> tuple[Plan, Mapping[str, ColumnNames], Schemas]:
    """The plan for these DataFrames, with the policies of their sources; how each is read.

    And the fields of event types that nothing defines.
    """
    named = _by_name(frames)
    parameters = read_parameters(options.parameters)
    decided = _decided(named, queries, queries.columns(options.columns))
    words = queries.words(STANDARD_NAMES) if queries.open_types else frozenset()
    columns = dict(zip(named, decided.columns, strict=True))
    schemas = _schemas_of(named, queries.open_types, columns, words)
    compiled = queries.plan(schemas, parameters)
    if words:
        read = {name.casefold() for name in fields_read(compiled, queries.open_types)}
        schemas = without_unread(schemas, queries.open_types, read, words, decided.columns)
        compiled = queries.plan(schemas, parameters)
        whole = decided.with_read(read)
        for remark in whole.remarks[len(decided.remarks) :]:
            warn(remark)
        columns = dict(zip(named, whole.columns, strict=True))
    for remark in truncating_divisions(compiled, schemas):
        warn(remark)
    plan = _finished(compiled, named, options, columns, lookup_tables)
    _warn_of_unused_time(plan, options.columns, (frame.columns for frame in named.values()))
    return plan, columns, schemas


def _warn_of_unused_time(plan: Plan, columns: ColumnNames, tables: Iterable[Collection[str]]) -> None:
    """Tell of a column of source times that does nothing; `tables`: the names of their columns."""
    warning = unused_source_time(plan, columns.source_time)
    if warning is not None and any((columns.arrival or ARRIVAL) in names for names in tables):
        warn(warning)


def _decided(named: Mapping[str, DataFrame], queries: Queries, columns: ColumnNames) -> Decided:
    """Which columns of DataFrames are ours, by their types, and by definitions.

    Of bounded ones also by their values: Spark looks for one that is ours.
    """
    shown = [_Shown.of(frame, columns) for frame in named.values()]
    known, sources = queries.checked, [f"DataFrame {name!r}" for name in named]
    plan = Plan(known.events, known.queries)
    is_whole = not any(frame.isStreaming for frame in named.values())
    have_own_times = bool(list(plan.time_sources()))
    types = queries.known_types
    meanings = decide_meanings(
        [one.meanings(types) for one in shown],
        sources,
        columns,
        types,
        have_own_times=have_own_times,
        is_whole=is_whole,
    )
    decided = decide_places([one.places() for one in shown], sources, meanings.columns, plan)
    for remark in (*meanings.remarks, *decided.remarks):
        warn(remark)
    return decided


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a DataFrame shows of columns that could be ours.

    names: by role: the standard column, where users name no other
    kinds: by column: its Arrow type
    """

    frame: DataFrame
    names: Mapping[str, str]
    kinds: Mapping[str, pa.DataType]

    @staticmethod
    def of(frame: DataFrame, columns: ColumnNames) -> _Shown:
        """Its columns; nothing runs yet."""
        names = {name.casefold(): name for name in frame.columns}
        chosen = {role: names[role] for role in STANDARD_NAMES if columns.given(role) is None and role in names}
        kinds = {item.name: _kind(item.dataType) for item in frame.schema.fields if item.name in chosen.values()}
        return _Shown(frame, chosen, kinds)

    def meanings(self, types: Sequence[str]) -> pa.Table:
        """A table with a row whose cell is an event type, if a bounded DataFrame has one."""
        name, rows = self.names.get(TYPE), []
        if name is not None and not self.frame.isStreaming and pa.types.is_string(self.kinds[name]):
            rows = _some_type(self.frame, name, types)
        return pa.Table.from_pylist(rows, schema=pa.schema(list(self.kinds.items())))

    def places(self) -> pa.Table:
        """A table with two rows of one place, and more sources than can be, if there are such."""
        own = {role: self.names[role] for role in PLACES if role in self.names}
        rows: list[dict[str, Any]] = []
        if OFFSET in own and not self.frame.isStreaming:
            if pa.types.is_integer(self.kinds[own[OFFSET]]):
                rows += _repeated(self.frame, list(own.values()), own[OFFSET])
            else:
                rows += _some_rows(self.frame, list(own.values()), own[OFFSET])
        if SOURCE in own and not self.frame.isStreaming and pa.types.is_string(self.kinds[own[SOURCE]]):
            found = self.frame.select(self.frame[f"`{own[SOURCE]}`"]).distinct().limit(MOST_SOURCES + 1).collect()
            if len(found) > MOST_SOURCES:
                rows = [{own[SOURCE]: row[0]} for row in found]
        return pa.Table.from_pylist(rows, schema=pa.schema([(name, self.kinds[name]) for name in own.values()]))


def _kind(type_: spark_types.DataType) -> pa.DataType:
    """An Arrow type; of what Arrow has no type for, and of all that is nested, a struct."""
    try:
        kind = arrow_type(type_)
    except PySparkTypeError:
        return pa.struct([])
    return pa.struct([]) if pa.types.is_nested(kind) else kind


def _some_type(frame: DataFrame, name: str, types: Sequence[str]) -> list[dict[str, Any]]:
    """A row whose cell is an event type, an event or a control event; else any that has a cell."""
    column = f.trim(frame[f"`{name}`"])
    is_type = column.isin(list(types)) | column.contains("(") | column.startswith("{")
    for rows in (frame.where(is_type), frame.where(column != "")):
        found = rows.select(column.alias(name)).limit(1).collect()
        if found:
            return [{name: found[0][0]}]
    return []


def _some_rows(frame: DataFrame, places: Sequence[str], offset: str) -> list[dict[str, Any]]:
    """So many rows that they show what offsets are which are not integers."""
    columns = [frame[f"`{name}`"] for name in places]
    rows = frame.where(frame[f"`{offset}`"].isNotNull()).select(*columns).limit(_ENOUGH).collect()
    return [row.asDict(recursive=True) for row in rows]


def _repeated(frame: DataFrame, places: Sequence[str], offset: str) -> list[dict[str, Any]]:
    """Two rows of one place, if there are two."""
    columns = [frame[f"`{name}`"] for name in places]
    some = frame.where(frame[f"`{offset}`"].isNotNull()).groupBy(*columns).count().where("count > 1").limit(1)
    return [row.asDict() for row in some.drop("count").collect() for _ in range(2)]


def _finished(
    plan: Plan,
    named: Mapping[str, DataFrame],
    options: DataOptions,
    columns: Mapping[str, ColumnNames],
    lookup_tables: GivenTables,
) -> Plan:
    """The plan with the policies of its sources, when keys are forgotten, and what tables hold."""
    complete = with_forget_keys(_with_orderings(plan, named, options, columns), parse_forget_keys(options.forget_keys))
    return with_places(lookup_tables.bound(complete))


def _schemas_of(
    frames: Mapping[str, DataFrame],
    events: Sequence[str],
    columns: Mapping[str, ColumnNames],
    words: Collection[str] = (),
) -> Schemas:
    """By event type: the columns of all DataFrames that can be fields; and the types of structs.

    words: columns that are fields whatever else they are, in lower case

    Warns of columns that cannot.
    """
    if not events:
        return {}
    structs = EventsOfStructs()
    schemas: dict[str, Fields] = {event: {} for event in events}
    for name, frame in frames.items():
        reserved = not_fields(columns[name]) - set(words)
        for column in frame.schema.fields:
            if not is_field(column.name, reserved):
                continue
            for event in events:
                type_ = type_of_column(column.dataType, nested_name(event, column.name), structs)
                if type_ == Type.FLOAT and isinstance(column.dataType, spark_types.DecimalType) and event == events[0]:
                    warn(rounded_column(name, column.name, column.dataType.simpleString()))
                if type_ is not None:
                    schemas[event] = joined_fields(schemas[event], {column.name: type_}, event, name)
                elif event == events[0] and not isinstance(column.dataType, spark_types.NullType):
                    warn(unread_column(name, column.name, column.dataType.simpleString()))
    return {**schemas, **structs.found}


def _with_orderings(
    plan: Plan, frames: Mapping[str, DataFrame], options: DataOptions, columns: Mapping[str, ColumnNames]
) -> Plan:
    """The plan with the policies of its sources.

    A source is a DataFrame, or what the column `source` of a DataFrame names.
    """
    orderings = parse_orderings(options.ordering)
    if not orderings:
        return plan
    refuse_unknown(orderings, list(frames))
    inputs = source_types(plan.queries)
    chosen = []
    for name, frame in frames.items():
        has_types = columns[name].of(TYPE) in frame.columns
        source = None if columns[name].of(SOURCE) in frame.columns else name
        events = None if has_types or len(inputs) > 1 else tuple(inputs)
        chosen.append(SourceOrdering(source, policy_of(orderings, name), events))
    return with_ordering(plan, chosen)


def type_of_column(type_: spark_types.DataType, name: str, structs: EventsOfStructs) -> Type | None:
    """The type of the same column in an Arrow table; None = the language has no such type.

    name: of the event type that a struct becomes, one of `structs`
    """
    try:
        return structs.type_of(arrow_type(type_), name)
    except PySparkTypeError:  # Arrow has no such column either
        return None
