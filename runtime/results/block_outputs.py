"""Runs a query's block for each match: prints, sends, logs.

Each statement with an output becomes a row of `OUTPUT_SCHEMA`, in order; the channel of a `log` is
its level. A failure becomes a row of kind `error` with the reason: the rest of that match's block
is skipped, and the query continues. Each match has copies of its events, so a block cannot change
what others see.

A block that reaches a limit is cut off. After `MOST_CUT_OFF` in a row, later matches of the key get
the error row without running, because each such run takes long. The counts are part of the state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.expression import Type, type_of
from querylang.plan.model import EventType, Plan, QueryPlan
from runtime.columns.arrivals import event_of, from_cell
from runtime.interpreter.context import Context, Output, PlanWorld
from runtime.interpreter.statements import run_action
from runtime.interpreter.statements import run_block as run_statements
from runtime.interpreter.values import EvaluationError, Event, LimitError, Value, World
from runtime.results.json_objects import cells, plain_value
from runtime.results.no_rows import NO_OUTPUTS, rows_of
from runtime.results.schemas import OUTPUT_SCHEMA, term_event

Row = dict[str, Any]

MOST_CUT_OFF = 20
"""So many blocks in a row may be cut off before those of a key are not run any more."""

_MOST_ROWS = 50_000
"""Rows that are held as Python values before they become a table."""


def run_block(
    plan: Plan, query: QueryPlan, matches: pa.Table, keys: NDArray[np.int64], cut_off: NDArray[np.int64]
) -> pa.Table:
    """The outputs of a query's matches (`match_schema`).

    keys: by match, the number of its key
    cut_off: by key number, how many blocks in a row were cut off; it is updated
    """
    order = np.lexsort([matches.column(name).to_numpy() for name in ("_rank", "time", "_step", "emitted")])
    # A key's count depends on the order of its matches, so that has to be the same for every cut.
    if (np.diff(order) < 0).any():
        matches, keys = matches.take(pa.array(order)), keys[order]
    common = matches.select(["query", "instance", "time", "emitted", "match_id", "_step", "_rank"]).to_pylist()
    values = cells(matches.column("key"))
    tables, rows = list[pa.Table](), list[Row]()
    each = zip(common, values, keys.tolist(), _contexts(plan, query, matches), strict=True)
    for shared, value, key, context in each:
        shared["key"] = json.dumps(plain_value(value))
        own, cut_off[key] = _run(query, context, int(cut_off[key]))
        rows.extend({**shared, **row} for row in own)
        if len(rows) > _MOST_ROWS:
            tables.append(pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA))
            rows = []
    return rows_of(NO_OUTPUTS, [*tables, pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA)])


def _contexts(plan: Plan, query: QueryPlan, matches: pa.Table) -> Iterator[Context]:
    """The context of each match's block."""
    world = PlanWorld(plan, query)
    runs = [index for index, term in enumerate(query.terms) if term.group is not None]
    bound = [[]] * len(matches) if query.every is not None else zip(*_terms(plan, query, matches, world), strict=True)
    keys = _keys(query, matches, world)
    chosen = _selects(plan, query, matches, world) if query.selected else [()] * len(matches)
    for events, own_keys, own_selects in zip(bound, keys, chosen, strict=True):
        yield Context(
            events=events,
            is_block=True,
            keys=own_keys,
            selects=own_selects,
            runs={term: events[term] for term in runs},
            locals=[None] * query.slots,
            world=world,
            invoke=run_action,
        )


def _terms(plan: Plan, query: QueryPlan, matches: pa.Table, world: World) -> Iterable[Sequence[Any]]:
    """By term, its event in each match; None = unset. Of a run the list of its events."""
    members = matches.column("members").combine_chunks()
    for term in query.terms:
        yield _events_of(plan.event(query.inputs[term.input].event), members.field(term.name), world)


def _events_of(event: EventType, column: pa.Array, world: World) -> Sequence[Any]:
    """By match the event of a name, or the list of events of a run."""
    if pa.types.is_struct(column.type):
        return _events(event, column, world)
    events = _events(event, column.values, world)
    return [events[begin:end] for begin, end in pairwise(column.offsets.to_pylist())]


def _events(event: EventType, member: pa.StructArray, world: World) -> list[Event | None]:
    """A column of events (`member_struct`) as values."""
    times = pc.cast(member.field("time"), pa.int64()).to_pylist()
    each = zip(member.is_valid().to_pylist(), member.field("fields").to_pylist(), times, strict=True)
    return [event_of(event, fields, world, time) if is_set else None for is_set, fields, time in each]


def _selects(plan: Plan, query: QueryPlan, matches: pa.Table, world: World) -> Iterable[Sequence[Value]]:
    """What each match selects."""
    struct, terms = matches.column("selected").combine_chunks(), query.selected_events
    columns: list[Sequence[Value]] = []
    for item in query.selected:
        if item.name in terms:
            event = term_event(plan, query, terms[item.name])
            columns.append(_events_of(event, struct.field(item.name), world))
        else:
            columns.append(_cells(struct.field(item.name), type_of(item.value), world))
    return zip(*columns, strict=True)


def _keys(query: QueryPlan, matches: pa.Table, world: World) -> Iterable[Sequence[Value]]:
    """The values of the key, by match."""
    if not query.keys:
        return [()] * len(matches)
    struct = matches.column("key").combine_chunks()
    return zip(*(_cells(struct.field(key.name), key.type, world) for key in query.keys), strict=True)


def _cells(column: pa.Array, type_: Type, world: World) -> list[Value]:
    return [from_cell(cell, type_, world) for cell in column.to_pylist()]


def _run(query: QueryPlan, context: Context, cut_off: int) -> tuple[list[Row], int]:
    """The rows of one match, and the count of blocks that were cut off afterwards."""
    if cut_off >= MOST_CUT_OFF:
        return [{"kind": "error", "text": _NOT_RUN}], cut_off
    problem: list[Row] = []
    is_cut_off = False
    try:
        run_statements(query.block, context)
    except EvaluationError as error:
        problem.append({"kind": "error", "text": str(error)})
        is_cut_off = isinstance(error, LimitError)
    return [_row(output) for output in context.outputs] + problem, cut_off + 1 if is_cut_off else 0


_NOT_RUN = f"not run: the last {MOST_CUT_OFF} blocks of this key were cut off by a limit"


def _row(output: Output) -> Row:
    event = output.event
    return {
        "kind": output.kind,
        "channel": output.channel,
        "text": output.text,
        "event": None if event is None else json.dumps({"type": event.type.name, "fields": plain_value(event)}),
    }
