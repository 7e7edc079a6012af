"""A plan made by hand and records for it: `A as a -> B as b where b.v > a.v within 30 seconds`, keyed, wait 10 seconds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from querylang.plan.automaton import ACCEPT, Automaton, State, Transition
from querylang.plan.expression import Binary, FieldOf, Literal, Type
from querylang.plan.model import EventType, Field, Input, Key, Plan, Print, QueryPlan, Term, Where
from runtime.columns.arrivals import Arrivals, arrivals_schema

SECOND = 1_000_000

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
        "_partition": np.zeros(count, np.int32),
        "_offset": np.arange(1, count + 1),
        "_source_time": np.full(count, np.iinfo(np.int64).min),
        "_text": pa.nulls(count, pa.string()),
        "k:string": pa.array([f"k{number}" for number in random.integers(0, keys, count)]),
        "v:float": random.random(count),
        "ts:float": at / SECOND - random.random(count) * 5,
    }
    return Arrivals(pa.table(columns, schema=arrivals_schema(plan)))
