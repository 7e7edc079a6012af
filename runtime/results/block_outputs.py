"""Runs a query's block for each match: prints, sends, logs.

Each statement with an output becomes a row of `OUTPUT_SCHEMA`, in order; the channel of a `log` is
its level. A failure becomes a row of kind `error` with the reason: the rest of that match's block
is skipped, and the query continues. Each match has copies of its events, so a block cannot change
what others see.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from querylang.plan.model import Plan, QueryPlan
from querylang.plan.value_types import Type
from runtime.columns.cell_values import event_of, from_cell
from runtime.interpreter.context import Context, Output, PlanWorld
from runtime.interpreter.statements import run_action
from runtime.interpreter.statements import run_block as run_statements
from runtime.interpreter.values import EvaluationError, Event, Value, World, seconds
from runtime.results.json_objects import cells, plain_value
from runtime.results.schemas import OUTPUT_SCHEMA

Row = dict[str, Any]


def run_block(plan: Plan, query: QueryPlan, matches: pa.Table) -> pa.Table:
    """The outputs of a query's matches (`match_schema`)."""
    if not query.block:
        return OUTPUT_SCHEMA.empty_table()
    common = matches.select(["query", "instance", "time", "emitted", "match_id", "_step", "_rank"]).to_pylist()
    keys = cells(matches.column("key"))
    rows: list[Row] = []
    for shared, key, context in zip(common, keys, _contexts(plan, query, matches), strict=True):
        shared["key"] = json.dumps(plain_value(key))
        rows.extend({**shared, **row} for row in _run(query, context))
    return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA)


def _contexts(plan: Plan, query: QueryPlan, matches: pa.Table) -> Iterator[Context]:
    """The context of each match's block."""
    world = PlanWorld(plan, query)
    bound = [[]] * len(matches) if query.every is not None else zip(*_terms(plan, query, matches, world), strict=True)
    keys = _values(matches, "key", [(key.name, key.type) for key in query.keys], world)
    selects = [(item.name, item.value.type) for item in query.every.selects] if query.every is not None else []
    chosen = _values(matches, "selected", selects, world)
    for events, own_keys, own_selects in zip(bound, keys, chosen, strict=True):
        yield Context(
            events=events,
            is_block=True,
            keys=own_keys,
            selects=own_selects,
            locals=[None] * query.slots,
            world=world,
            invoke=run_action,
        )


def _terms(plan: Plan, query: QueryPlan, matches: pa.Table, world: World) -> Iterable[list[Event | None]]:
    """By term, its event in each match; None = unset."""
    members = matches.column("members").combine_chunks()
    for term in query.terms:
        event = plan.event(query.inputs[term.input].event)
        member = members.field(term.name)
        times = pc.cast(member.field("time"), pa.int64()).to_pylist()
        yield [
            event_of(event, fields, world, seconds(time)) if is_set else None
            for is_set, fields, time in zip(
                member.is_valid().to_pylist(), member.field("fields").to_pylist(), times, strict=True
            )
        ]


def _values(
    matches: pa.Table, column: str, fields: Sequence[tuple[str, Type | None]], world: World
) -> Iterable[Sequence[Value]]:
    """The values of a struct column's fields, by match."""
    if not fields:
        return [()] * len(matches)
    struct = matches.column(column).combine_chunks()
    lists = [
        [from_cell(cell, type_, world) for cell in struct.field(name).to_pylist()]
        for name, type_ in fields
        if type_ is not None
    ]
    return zip(*lists, strict=True)


def _run(query: QueryPlan, context: Context) -> list[Row]:
    problem: list[Row] = []
    try:
        run_statements(query.block, context)
    except EvaluationError as error:
        problem.append({"kind": "error", "text": str(error)})
    return [_row(output) for output in context.outputs] + problem


def _row(output: Output) -> Row:
    event = output.event
    return {
        "kind": output.kind,
        "channel": output.channel,
        "text": output.text,
        "event": None if event is None else json.dumps({"type": event.type.name, "fields": plain_value(event)}),
    }
