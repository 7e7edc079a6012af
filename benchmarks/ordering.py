"""What it costs to put records in order: the share of admission, streams in which everything is late, idle timelines.

The engine alone, columns in memory. Streams are compared in turns, batch by batch, so that a busy machine is busy for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

import querylang
from benchmarks import events
from benchmarks.embedded import significant
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine import query_runner, shared_admission
from runtime.engine.engine import Engine
from runtime.policies.plan_policies import SourceOrdering, parse_ordering, with_ordering

IN_ORDER = events.QUERY.replace("@OutOfOrder() ", "")
NO_WAIT = IN_ORDER.replace(" wait 10 seconds", "")
LATENESS = 36_000_000_000
"""How old every record of a late stream is when it arrives, µs: older than the whole stream is long."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A query, the policy of its source, and what becomes of the records' times."""

    name: str
    query: str
    ordering: str | None = None
    is_late: bool = False


PAIRS = (
    (Stream("wait, @OutOfOrder", events.QUERY), Stream("the same, all late", events.QUERY, is_late=True)),
    (Stream("wait, in order", IN_ORDER), Stream("the same, all late", IN_ORDER, is_late=True)),
    (
        Stream("stream_analytics, adjust", NO_WAIT, "stream_analytics late=10s out_of_order=5s"),
        Stream("the same, all late", NO_WAIT, "stream_analytics late=10s out_of_order=5s", is_late=True),
    ),
    (
        Stream("streaminsight", NO_WAIT, "streaminsight delay=5s"),
        Stream("the same, all late but the first", NO_WAIT, "streaminsight delay=5s", is_late=True),
    ),
)
"""An orderly stream, and one of which every event is late."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Milliseconds per batch, medians: `orderly` and `late`; `share`: of admission and ordering in the time to matches of the first."""

    name: str
    events: int
    orderly_ms: float
    late_ms: float
    ratio: float
    share: float


@dataclass(frozen=True, slots=True)
class ColdKeys:
    """A batch that concerns `active` of `timelines`, against one without the others: `extra_ns` per idle timeline."""

    timelines: int
    active: int
    batch_ms: float
    alone_ms: float
    extra_ns: float


def measure(count: int, keys: int, batches: int) -> list[Ordered]:
    """All pairs of streams, `count` events per batch; the first batch of a late one is on time and advances the clock."""
    return [_pair(orderly, late, count, keys, batches) for orderly, late in PAIRS]


def _plan(stream: Stream) -> Plan:
    plan = querylang.compile_text(stream.query).plan
    if stream.ordering is None:
        return plan
    return with_ordering(plan, [SourceOrdering(None, parse_ordering(stream.ordering))])


def _pair(orderly: Stream, late: Stream, count: int, keys: int, batches: int) -> Ordered:
    engines = {stream: Engine(_plan(stream)) for stream in (orderly, late)}
    times: dict[Stream, list[float]] = {stream: [] for stream in engines}
    shares = []
    for batch in range(batches):
        for stream, engine in engines.items():
            age = LATENESS if stream.is_late and batch else 1_000
            arrivals = _aged(events.arrivals(engine.plan, count, keys, batch * count), age)
            spent = _spent(engine, arrivals)
            times[stream].append(spent["all"])
            if stream is orderly:
                shares.append(spent["admit"] / (spent["all"] - spent["gather_table"]))
    first, second = (median(times[stream][2:]) * 1000 for stream in (orderly, late))
    return Ordered(orderly.name, count, first, second, significant(second / first), significant(median(shares[2:])))


def _aged(arrivals: Arrivals, age: int) -> Arrivals:
    """Every record so old when it arrives."""
    moments = pa.array(arrivals.system("arrival") - age)
    place = arrivals.table.schema.get_field_index("_source_time")
    return Arrivals(arrivals.table.set_column(place, arrivals.table.schema.field(place), moments))


def _spent(engine: Engine, arrivals: Arrivals) -> Mapping[str, float]:
    """Seconds of a call, in all and in two of its functions, which stopwatches are put around."""
    modules: Mapping[str, Any] = {"admit": shared_admission, "gather_table": query_runner}
    spent = dict.fromkeys((*modules, "all"), 0.0)
    functions = {name: getattr(module, name) for name, module in modules.items()}

    def watched(name: str) -> Any:
        def call(*arguments: Any) -> Any:
            started = perf_counter()
            result = functions[name](*arguments)
            spent[name] += perf_counter() - started
            return result

        return call

    try:
        for name, module in modules.items():
            setattr(module, name, watched(name))
        started = perf_counter()
        engine.process(arrivals)
        spent["all"] = perf_counter() - started
    finally:
        for name, function in functions.items():
            setattr(modules[name], name, function)
    return spent


COLD = """
event A { integer k; float v; }
event B { integer k; float v; }
query Rising {
    inputs { A() key k within 1 hour wait 10 minutes; B() key k within 1 hour wait 10 minutes; }
    find A as a -> B as b where b.v > a.v
}
"""


def measure_cold(timelines: int, batches: int) -> ColdKeys:
    """One in a hundred of the timelines is active in each batch; every one of them remembers an event."""
    active = max(1, timelines // 100)
    plan = querylang.compile_text(COLD).plan
    random = np.random.default_rng(1)
    engines = {"all": Engine(plan), "alone": Engine(plan)}
    times: dict[str, list[float]] = {name: [] for name in engines}
    engines["all"].process(_batch(plan, np.arange(timelines), 0, 0))
    engines["alone"].process(_batch(plan, np.arange(active), 0, 0))
    for batch in range(1, batches + 1):
        chosen = {"all": random.choice(timelines, active, replace=False), "alone": np.arange(active)}
        for name, engine in engines.items():
            arrivals = _batch(plan, chosen[name], batch, batch * timelines)
            started = perf_counter()
            engine.process(arrivals)
            times[name].append(perf_counter() - started)
    whole, alone = (median(times[name][2:]) for name in ("all", "alone"))
    return ColdKeys(timelines, active, whole * 1000, alone * 1000, significant((whole - alone) / timelines * 1e9))


def _batch(plan: Plan, keys: Any, batch: int, first: int) -> Arrivals:
    """An A or B for each of these keys, a second after the last batch."""
    made = events.arrivals(plan, len(keys), 1, first).table
    moments = np.int64(batch * 1_000_000) + np.arange(len(keys)) // 1000
    columns = {"_arrival": moments, "_source_time": moments - 1000, "k:integer": np.asarray(keys, np.int64)}
    for name, values in columns.items():
        place = made.schema.get_field_index(name)
        made = made.set_column(place, made.schema.field(place), pa.array(values))
    return Arrivals(made)
