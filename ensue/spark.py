"""Queries on Spark: what `ensue.match`, `ensue.stream` and `ensue match` run.

The queries are compiled for the columns of DataFrames or files; `spark_backend.frames` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_type

from ensue.data_options import DataOptions
from ensue.parameters import read_parameters
from ensue.plans import plan_for
from ensue.queries import Queries, load
from querylang.errors import InputError
from querylang.plan.expression import Type
from querylang.plan.model import Plan
from runtime.policies.durations import parse_duration
from runtime.policies.forget_keys import parse_forget_keys, with_forget_keys
from runtime.policies.plan_policies import SourceOrdering, parse_orderings, policy_of, with_ordering
from runtime.reading.column_names import PLACES, ColumnNames
from runtime.reading.schema_inference import type_of_kind
from runtime.replay.loading import plan_for_files, refuse_unknown
from spark_backend.frames import bounded, streaming
from spark_backend.session import get_session
from spark_backend.sources.reading import Reading
from spark_backend.wire.clock import Clock
from spark_backend.wire.clock_sources import Idle
from spark_backend.wire.decode import matches_frame

Frames = DataFrame | Mapping[str, DataFrame]


def match(frames: Frames, queries: Queries | str | Path, options: DataOptions) -> DataFrame:
    """See `ensue.match`."""
    plan = _plan_for_frames(load(queries), frames, options)
    source = "table" if isinstance(frames, DataFrame) else None
    columns = options.columns
    return bounded.match(frames, plan, reading=None if columns == ColumnNames() else _reading(columns, source))


def stream(
    frames: Frames,
    queries: Queries | str | Path,
    options: DataOptions,
    *,
    control: DataFrame | None,
    clock: str,
    idle: str | None,
) -> DataFrame:
    """See `ensue.stream`."""
    given = _idle(clock, idle)
    plan = _plan_for_frames(load(queries), frames, options)
    reading = {name: _reading(options.columns, name) for name in _by_name(frames)}
    return streaming.stream(
        frames,
        plan,
        control=control,
        clock=clock,
        idle=given,
        orderings=parse_orderings(options.ordering),
        reading=reading,
    )


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
    columns = options.columns
    compiled = plan_for(queries, paths, columns, read_parameters(options.parameters))
    plan = plan_for_files(paths, compiled, columns, parse_orderings(options.ordering))
    plan = with_forget_keys(plan, parse_forget_keys(options.forget_keys))
    session = get_session("ensue match")
    tagged = bounded.match_files(session, paths, plan, reading=_reading(columns, None))
    return matches_frame(tagged, plan)


def _reading(columns: ColumnNames, source: str | None) -> Reading:
    return Reading(None, columns.type, columns.source_time, columns.arrival, source, max_record=columns.max_record)


def _by_name(frames: Frames) -> Mapping[str, DataFrame]:
    return {"table": frames} if isinstance(frames, DataFrame) else frames


def _plan_for_frames(queries: Queries, frames: Frames, options: DataOptions) -> Plan:
    """The plan for these DataFrames, with the policies of their sources."""
    named = _by_name(frames)
    parameters = read_parameters(options.parameters)
    schemas = dict.fromkeys(queries.open_types, _fields_of(named, options.columns)) if queries.open_types else None
    plan = _with_orderings(queries.plan(schemas, parameters), named, options)
    return with_forget_keys(plan, parse_forget_keys(options.forget_keys))


def _fields_of(frames: Mapping[str, DataFrame], columns: ColumnNames) -> dict[str, Type]:
    """The columns of all DataFrames that can be fields, with their types."""
    standard = {"at": columns.arrival, "event": columns.type, "ts": columns.source_time}
    reserved = {name for name, other in standard.items() if other is None} | set(PLACES)
    fields: dict[str, Type] = {}
    for frame in frames.values():
        for column in frame.schema.fields:
            type_ = type_of_column(column.dataType)
            if type_ is not None and column.name not in reserved:
                fields[column.name] = type_
    return fields


def _with_orderings(plan: Plan, frames: Mapping[str, DataFrame], options: DataOptions) -> Plan:
    """The plan with the policies of its sources.

    A source is a DataFrame, or what the column `source` of a DataFrame names.
    """
    orderings = parse_orderings(options.ordering)
    if not orderings:
        return plan
    refuse_unknown(orderings, list(frames))
    inputs = dict.fromkeys(item.event for query in plan.queries for item in query.inputs)
    chosen = []
    for name, frame in frames.items():
        has_types = (options.type or "event") in frame.columns
        source = None if "source" in frame.columns else name
        events = None if has_types or len(inputs) > 1 else tuple(inputs)
        chosen.append(SourceOrdering(source, policy_of(orderings, name), events))
    return with_ordering(plan, chosen)


def type_of_column(type_: spark_types.DataType) -> Type | None:
    """The type of the same column in an Arrow table; None = the language has no such type."""
    try:
        return type_of_kind(to_arrow_type(type_, timezone="UTC"))
    except PySparkTypeError:  # Arrow has no such column either
        return None
