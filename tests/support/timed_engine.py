"""A timed query and its stream as the engine takes them: a plan whose policies are bound into it, columns of arrivals.

The plan has one query an input, `find A as a` over all of them, so that each match is one event released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

import querylang
from querylang.plan.expression import Type
from querylang.plan.model import Input, Plan
from runtime.columns.arrivals import Arrivals, RecordKind, arrivals_schema, column_name
from runtime.instants import NO_TIME
from tests.support.scenario import leeway_text, place_of_source
from tests.support.timed import END_EDGE, INTERVAL, POINT, START_EDGE, Record, Timed, TimedInput

FIELDS = {"id": "integer", "k": "integer", "c": "string", "v": "integer"}
SHAPES = {POINT: 0, INTERVAL: 1, START_EDGE: 2, END_EDGE: 3}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def query_text(query: Timed, finds: Sequence[tuple[str, str]] = (), window: str = "retain 1") -> str:
    """Definitions, and the queries of these names and patterns; without any, one per input that finds each of its events."""
    fields = " ".join(f"{kind} {name};" for name, kind in FIELDS.items())
    lines = []
    for item in query.inputs:
        annotation = "@OutOfOrder() " if item.out_of_order else ""
        lines.append(f"{annotation}event {item.event} {{ {fields} }}")
        lines.append(f"event H{item.event} {{ integer k; string c; }}")
    lines.append("event H { }")
    inputs = " ".join(_input_text(item, query.keys, window) for item in query.inputs)
    named = finds or [(f"Of{item.event}", f"{item.event} as a") for item in query.inputs]
    return "\n".join([*lines, *(f"query {name} {{ inputs {{ {inputs} }} find {find}; }}" for name, find in named)])


def _input_text(item: TimedInput, keys: Sequence[str], window: str) -> str:
    text = f"{item.event}({'' if item.least is None else f'v >= {item.least}'})"
    text += f" key {', '.join(keys)}" if keys else ""
    text += f" {window}"
    if item.wait is not None:
        text += f" wait {item.wait / 1e6!r}" + ("" if item.heartbeat is None else f" or {item.heartbeat}")
    return text + ";"


def plan_of(query: Timed, finds: Sequence[tuple[str, str]] = (), window: str = "retain 1") -> Plan:
    """The plan of `query_text`, each input with its policy and its sources."""
    plan = querylang.compile_text(query_text(query, finds, window)).plan
    rules = {item.event: item for item in query.inputs}

    def bound(item: Input) -> Input:
        return replace(item, policy=rules[item.event].policy, sources=rules[item.event].sources)

    queries = [instance for one in plan.queries for instance in querylang.instances_of(one)]
    return replace(plan, queries=tuple(replace(one, inputs=tuple(map(bound, one.inputs))) for one in queries))


def arrivals_of(plan: Plan, numbered: Sequence[tuple[int, Record]]) -> Arrivals:
    """These records as columns, in this order; those of ends and shapes only if some record has them."""
    schema = arrivals_schema(plan)
    for name, kind in (("_end", pa.int64()), ("_shape", pa.int8())):
        if name not in schema.names and any(record.shape != POINT for _, record in numbered):
            schema = schema.append(pa.field(name, kind))
    kinds = {event.name: index for index, event in enumerate(plan.events)}
    rows = [_row(kinds, offset, record) for offset, record in numbered]
    found = [{name: row.get(name) for name in schema.names} for row in rows]
    return Arrivals(pa.Table.from_pylist(found, schema=schema))


def _row(kinds: dict[str, int], offset: int, record: Record) -> dict[str, Any]:
    text = control_text(record)
    special = RecordKind.CONTROL if text is not None else RecordKind.TICK
    number = offset if record.id is None else record.id
    values: dict[str, Any] = {"id": number, "k": record.k, "c": record.c, "v": record.v}
    if record.event is None:
        values = {}
    elif record.event.startswith("H"):
        values = {} if record.event == "H" else {"k": record.k, "c": record.c}
    fields = {column_name(name, Type.parse(FIELDS[name])): value for name, value in values.items()}
    return fields | {
        "_kind": int(special) if record.event is None else kinds[record.event],
        "_arrival": record.at,
        "_source": record.source,
        "_partition": record.partition,
        "_offset": offset,
        "_source_time": NO_TIME if record.time is None else record.time,
        "_text": text,
        "_place": place_of_source(record.source),
        "_end": NO_TIME if record.end is None else record.end,
        "_shape": SHAPES[record.shape],
    }


def control_text(record: Record) -> str | None:
    """The control event as users write it."""
    if record.leeway is not None:
        return leeway_text(*record.leeway)
    if record.punctuation is not None:
        event, time = record.punctuation
        return f'Heartbeat("{event}", "{iso_text(time)}")'
    return None


def iso_text(time: int) -> str:
    """A moment of the years 1 to 9999 to the microsecond."""
    return (_EPOCH + timedelta(microseconds=time)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def printed(query: Timed) -> str:
    """The inputs with their policies and the records, for people."""
    lines = [query_text(query), *(f"  {item}" for item in query.inputs)]
    return "\n".join([*lines, *(f"  {offset:3} {record}" for offset, record in query.ordered())])
