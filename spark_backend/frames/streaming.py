"""Match streaming DataFrames of events, as a streaming DataFrame of tagged rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame

from job_engine.settings.deployment_file import DEFAULT_BUCKETS
from job_engine.sources.reading import Reading
from job_engine.wire.clock_sources import Clock, Idle, clock_source
from job_engine.wire.packed_rows import CONTROL
from job_engine.wire.program import NullRule, Program
from querylang.plan.model import Plan
from runtime.columns.arrivals import place_of
from runtime.policies.plan_policies import Orderings, policy_of
from spark_backend.frames.frames import columns_of_all, packed_frame, refuse_unreadable_types
from spark_backend.session import with_package_path
from spark_backend.stream.spark_operator import tagged_user_stream

NO_ORDERINGS: Orderings = {}


def union_by_name(parts: Mapping[str, DataFrame]) -> DataFrame:
    """The union of all sources, in the order of their names.

    Spark tells the sources of a checkpoint apart by position only: after a swap it would read
    every file again.
    """
    return reduce(DataFrame.union, [parts[name] for name in sorted(parts)])


def stream(
    frames: DataFrame | Mapping[str, DataFrame],
    plan: Plan,
    *,
    control: DataFrame | None = None,
    clock: str = "arrival",
    idle: Idle | None = None,
    orderings: Orderings = NO_ORDERINGS,
    buckets: int = DEFAULT_BUCKETS,
    reading: Reading | Mapping[str, Reading] | None = None,
    apply: bool = False,
) -> tuple[DataFrame, Program]:
    """A streaming DataFrame of tagged rows (TAGGED_DDL), and the program that makes them.

    Write it with the output mode `append`; `frames.decode.decode` makes typed DataFrames of it.

    frames: streaming DataFrames by source name, or one; columns as in an event table (`at`,
        `event`, `ts`, fields)
    control: rows with `at` and `event`, a control event as text; None = there is no control stream
    clock: `arrival` or `processing`
    idle: how long a source is silent before time advances without it; None = as its policy says
    orderings: the ordering policies that were chosen, by source
    buckets: number of parts that the keys are spread over
    reading: names of columns, for all sources or by source name; None = the usual ones
    apply: whether a checkpoint of an earlier version goes by the rule for nulls of today
    """
    named = {"table": frames} if isinstance(frames, DataFrame) else dict(frames)
    sources = [clock_source(name, None, idle, policy_of(orderings, name)) for name in sorted(named)]
    nulls = NullRule.APPLIED if apply else NullRule.STATE
    program = Program.of(plan, buckets=buckets, clock=Clock(clock), sources=sources, nulls=nulls)
    readings = {
        name: replace(
            _reading(reading, name), rank=rank, place=place_of(rank), is_mixed=True, elsewhere=columns_of_all(named)
        )
        for rank, name in enumerate(sorted(named))
    }
    refuse_unreadable_types(named, plan, readings)
    parts = {name: packed_frame(named[name], program, readings[name]) for name in readings}
    if control is not None:
        rank = len(named)
        last = Reading(source=CONTROL, rank=rank, place=place_of(rank), is_control=True)
        parts[CONTROL] = packed_frame(control, program, last)
    with_package_path(next(iter(named.values())).sparkSession)
    return tagged_user_stream(union_by_name(parts), program), program


def _reading(reading: Reading | Mapping[str, Reading] | None, name: str) -> Reading:
    if isinstance(reading, Reading):
        return reading
    return (reading or {}).get(name, Reading(source=name))
