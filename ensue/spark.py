"""Queries on Spark: what `ensue.match`, `ensue.stream` and the command line hand over to `spark_backend`.

Takes DataFrames or files with queries; compiles the queries for the columns that the data has. The work is
`spark_backend`'s; this is the only way by which the rest of this package reaches it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_type

from ensue.parameters import Parameters, read_parameters
from ensue.queries import Queries, load
from ensue.result import plan_for
from querylang.errors import InputError
from querylang.plan.expression import Type
from querylang.plan.model import Plan
from runtime.policies.durations import parse_duration
from runtime.policies.plan_policies import GivenOrderings, SourceOrdering, parse_orderings, policy_of, with_ordering
from runtime.reading.schema_inference import PLACES, type_of_kind
from runtime.reading.tables import ColumnNames
from runtime.replay.loading import plan_for_files, refuse_unknown
from spark_backend.frames import bounded, streaming
from spark_backend.job.settings import Clock
from spark_backend.session import get_session
from spark_backend.sources.reading import Reading
from spark_backend.wire.decode import matches_frame

Frames = DataFrame | Mapping[str, DataFrame]


def match(
    frames: Frames,
    queries: Queries | str | Path,
    columns: ColumnNames,
    parameters: Parameters = None,
    ordering: GivenOrderings = None,
) -> DataFrame:
    """See `ensue.match`."""
    plan = _ordered(_plan_for_frames(load(queries), frames, columns, parameters), frames, columns, ordering)
    source = "table" if isinstance(frames, DataFrame) else None
    return bounded.match(frames, plan, reading=None if columns == ColumnNames() else _reading(columns, source))


def stream(
    frames: Frames,
    queries: Queries | str | Path,
    columns: ColumnNames,
    *,
    control: DataFrame | None,
    clock: str,
    idle: str | None,
    parameters: Parameters = None,
    ordering: GivenOrderings = None,
) -> DataFrame:
    """See `ensue.stream`."""
    silence = _silence(clock, idle)
    plan = _ordered(_plan_for_frames(load(queries), frames, columns, parameters), frames, columns, ordering)
    reading = {name: _reading(columns, name) for name in _named(frames)}
    return streaming.stream(frames, plan, control=control, clock=clock, idle=silence, reading=reading)


def _silence(clock: str, idle: str | None) -> int | None:
    """What `idle` says, microseconds; raises InputError, for a clock that there is not too."""
    if clock not in set(Clock):
        raise InputError(f"clock: {clock!r} is none; there are {' and '.join(Clock)}")
    if idle is None:
        return 0
    if clock == Clock.PROCESSING:
        raise InputError("idle: has no meaning with the clock 'processing', which never stands still")
    length = None if idle == "none" else parse_duration(idle)
    if length is None and idle != "none":
        raise InputError(f"idle: {idle!r} is no length of time; write one such as '1 second' or '500ms', or 'none'")
    return length


def match_files(
    queries: Queries,
    paths: Sequence[Path],
    columns: ColumnNames,
    parameters: Parameters = None,
    ordering: GivenOrderings = None,
) -> DataFrame:
    """The matches in files of events, in batch; workers read the files."""
    given = plan_for(queries, paths, columns, read_parameters(parameters))
    plan = plan_for_files(paths, given, columns, parse_orderings(ordering))
    session = get_session("ensue match")
    tagged = bounded.match_files(session, paths, plan, reading=_reading(columns, None))
    return matches_frame(tagged, plan)


def _reading(columns: ColumnNames, source: str | None) -> Reading:
    return Reading(None, columns.type, columns.source_time, columns.arrival, source)


def _named(frames: Frames) -> Mapping[str, DataFrame]:
    return {"table": frames} if isinstance(frames, DataFrame) else frames


def _ordered(plan: Plan, frames: Frames, columns: ColumnNames, ordering: GivenOrderings) -> Plan:
    """The plan with the policies of its sources: the DataFrames by their names, or what their column `source` will name."""
    orderings = parse_orderings(ordering)
    if not orderings:
        return plan
    named = _named(frames)
    refuse_unknown(orderings, list(named))
    inputs = dict.fromkeys(item.event for query in plan.queries for item in query.inputs)
    given = []
    for name, frame in named.items():
        is_typed = (columns.type or "event") in frame.columns
        source = None if "source" in frame.columns else name
        events = None if is_typed or len(inputs) > 1 else tuple(inputs)
        given.append(SourceOrdering(source, policy_of(orderings, name), events))
    return with_ordering(plan, given)


def _plan_for_frames(queries: Queries, frames: Frames, columns: ColumnNames, parameters: Parameters) -> Plan:
    """The plan; event types that nothing defines have the DataFrames' columns as fields."""
    given = read_parameters(parameters)
    if not queries.open_types:
        return queries.plan(None, given)
    named = {"at": columns.arrival, "event": columns.type, "ts": columns.source_time}
    declared = {standard for standard, other in named.items() if other is None} | set(PLACES)
    fields: dict[str, Type] = {}
    for frame in _named(frames).values():
        for column in frame.schema.fields:
            type_ = type_of_column(column.dataType)
            if type_ is not None and column.name not in declared:
                fields[column.name] = type_
    return queries.plan(dict.fromkeys(queries.open_types, fields), given)


def type_of_column(type_: spark_types.DataType) -> Type | None:
    """As the same column of an Arrow table; None for what no type of the language holds."""
    try:
        return type_of_kind(to_arrow_type(type_, timezone="UTC"))
    except PySparkTypeError:  # no column of Arrow either
        return None
