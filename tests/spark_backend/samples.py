"""Plans made by hand and records for them: `A as a -> B as b where b.v > a.v within 30 seconds`, keyed, wait 10 seconds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pyarrow as pa

from querylang.plan.expression import Binary, FieldOf, Literal, Type
from querylang.plan.model import (
    ACCEPT,
    Automaton,
    EventType,
    Field,
    Input,
    Key,
    Plan,
    Print,
    QueryPlan,
    State,
    Term,
    TimePolicy,
    Transition,
    Where,
)
from runtime.columns.arrivals import Arrivals, RecordKind, arrivals_schema
from runtime.policies.plan_policies import SourceOrdering, with_ordering
from runtime.policies.presets import stream_analytics, streaminsight

SECOND = 1_000_000
BEGIN = 1_000_000 * SECOND

FIELDS = (Field("k", Type.STRING), Field("v", Type.FLOAT), Field("ts", Type.FLOAT))


def input_of(event: str, keys: tuple[str, ...], *, filter_above: float | None = None) -> Input:
    above = None if filter_above is None else Literal(Type.FLOAT, filter_above)
    return Input(
        event=event,
        keys=tuple(FieldOf(Type.STRING, 0, key) for key in keys),
        filter=None if above is None else Binary(Type.BOOLEAN, ">", FieldOf(Type.FLOAT, 0, "v"), above),
        within=30 * SECOND,
        retain=None,
        unique=(),
        wait=10 * SECOND,
        time_from=FieldOf(Type.FLOAT, 0, "ts"),
        out_of_order=True,
        heartbeat=None,
    )


def query_of(name: str, keys: tuple[str, ...] = ("k",), *, filter_above: float | None = None) -> QueryPlan:
    rises = Binary(Type.BOOLEAN, ">", FieldOf(Type.FLOAT, 1, "v"), FieldOf(Type.FLOAT, 0, "v"))
    return QueryPlan(
        name=name,
        keys=tuple(Key(key, Type.STRING) for key in keys),
        inputs=(input_of("A", keys, filter_above=filter_above), input_of("B", keys)),
        terms=(Term("a", 0), Term("b", 1)),
        automaton=Automaton((State((Transition(1, (1,), (), 1),)), State((Transition(0, (0,), (0,), ACCEPT),)))),
        conditions=(Where(rises, (0, 1)),),
        block=(Print(FieldOf(Type.STRING, 1, "k")),),
    )


EVENTS = (EventType("A", FIELDS), EventType("B", FIELDS), EventType("C", FIELDS))
PLAN = Plan(EVENTS, (query_of("Rise"),))
SEVERAL = Plan(EVENTS, (query_of("Rise"), query_of("High", filter_above=0.5), query_of("All", ())))


def arrivals_of(count: int, *, keys: int = 20, seed: int = 1, plan: Plan = PLAN, source: str = "s") -> Arrivals:
    """Events out of order by up to 5 s, 0.1 s apart; every 50th is of a type that no query takes."""
    random = np.random.default_rng(seed)
    at = 1_000_000 * SECOND + np.arange(count) * SECOND // 10
    kind = random.integers(0, 2, count).astype(np.int16)
    kind[::50] = 2
    columns = {
        "_kind": kind,
        "_arrival": at,
        "_source": pa.repeat(source, count),
        "_partition": np.zeros(count, np.int64),
        "_offset": np.arange(1, count + 1),
        "_source_time": np.full(count, np.iinfo(np.int64).min),
        "_text": pa.nulls(count, pa.string()),
        "_place": np.zeros(count, np.int64),
        "k:string": pa.array([f"k{number}" for number in random.integers(0, keys, count)]),
        "v:float": random.random(count),
        "ts:float": at / SECOND - random.random(count) * 5,
    }
    return Arrivals(pa.table(columns, schema=arrivals_schema(plan)))


def with_system_rows(arrivals: Arrivals) -> Arrivals:
    """Some rows become control events (one of them wrong), ticks and unreadable records."""
    kinds = arrivals.system("kind").copy()
    text = [None] * len(arrivals)
    for row, kind, words in [
        (10, RecordKind.CONTROL, "SetDelayedEventsLeeway(2.0, 3.0)"),
        (40, RecordKind.CONTROL, "SetDelayedEventsLeeway(nonsense)"),
        (60, RecordKind.TICK, None),
        (70, RecordKind.MALFORMED, "line 70: wrong"),
        (71, RecordKind.UNKNOWN_TYPE, "Zebra"),
    ]:
        kinds[row], text[row] = kind, words  # type: ignore[call-overload]
    table = arrivals.table.set_column(0, "_kind", [kinds]).set_column(6, "_text", [text])
    return Arrivals(table.cast(arrivals.table.schema))


def places(count: int, partitions: int = 2, seed: int = 3) -> Arrivals:
    """Records of sources `a` and `b` with two partitions each, many at the same moments; offsets count by partition."""
    arrivals, random = arrivals_of(count, plan=SEVERAL), np.random.default_rng(seed)
    at = BEGIN + np.sort(random.integers(0, count // 8, count)) * SECOND // 4
    partition = random.integers(0, partitions, count).astype(np.int64)
    source = random.choice(["a", "b"], count)
    table = arrivals.table
    for name, values in [
        ("_arrival", pa.array(at)),
        ("_source", pa.array(source).dictionary_encode()),
        ("_place", pa.array(np.where(source == "b", 1, 0))),
        ("_partition", pa.array(partition)),
        ("ts:float", pa.array(at / SECOND - random.random(count) * 5)),
    ]:
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), values)
    return Arrivals(table)


POLICIES = {
    "by source partition": stream_analytics(late=3 * SECOND, out_of_order=SECOND),
    "by source partition, of which some are never heard of": stream_analytics(late=3 * SECOND, partitions=3),
    "what is late is dropped": stream_analytics(late=2 * SECOND, out_of_order=SECOND, action="drop"),
    "by substreams that are no keys": stream_analytics(late=3 * SECOND, over=("v",)),
    "by substreams inside the key": stream_analytics(late=3 * SECOND, out_of_order=SECOND, over=("k",)),
    "by event type": streaminsight(every=5, delay=SECOND, final=True),
    "by event type, after quiet": streaminsight(every=timedelta(seconds=2), idle=SECOND),
}


def ordered(policy: TimePolicy, plan: Plan = SEVERAL, sources: tuple[str, ...] = ("a", "b")) -> Plan:
    """The plan with a policy for each source; its inputs say nothing of their own."""
    queries = [
        replace(query, inputs=tuple(replace(item, wait=None, out_of_order=False) for item in query.inputs))
        for query in plan.queries
    ]
    given = [SourceOrdering(name, policy, ("A", "B")) for name in sources]
    return with_ordering(replace(plan, queries=tuple(queries)), given)
