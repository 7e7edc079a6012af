"""Rows of outputs and discards: no record, and nothing that a block does, disappears.

Outputs are prints, sends and logs of blocks, errors, and what became of changes of the queries.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.plan.expression import Kind, Type, type_of
from querylang.plan.model import EventType, Plan, QueryPlan, Stopped
from querylang.plan.routing import QUERIES_CHANNEL
from querylang.plan.routing import Outcome as ChangeOutcome
from runtime.admission import Outcome, reason_words
from runtime.column_types import Integers, arrow_type, has_column, one_chunk
from runtime.columns.arrivals import RecordKind, event_of, field_columns, from_cell, looked_up_in, to_cell
from runtime.columns.keys import key_values
from runtime.instants import NO_TIME, micros_of
from runtime.interpreter import Context, EvaluationError, Event, LimitError, Output, PlanWorld, Value, World, run_action
from runtime.interpreter import run_block as run_statements
from runtime.matching.interface import columns_of
from runtime.results.for_users import column_cells, plain_value
from runtime.results.plain_blocks import Put, plain_block, put_out
from runtime.results.schemas import (
    NO_OUTPUTS,
    OUTPUT_SCHEMA,
    TIMESTAMP,
    TOLD,
    discard_schema,
    key_struct,
    moments,
    no_discards,
    rows_of,
    term_event,
    told_cells,
    told_columns,
)
from runtime.timestamps import format_time

# Outputs of blocks. Each statement with an output becomes a row of `OUTPUT_SCHEMA`, in order; the
# channel of a `log` is its level. A failure becomes a row of kind `error` with the reason: the rest
# of that match's block is skipped, and the query continues. Each match has copies of its events, so
# a block cannot change what others see.
#
# A block that reaches a limit is cut off. After `MOST_CUT_OFF` in a row, later matches of the key
# get the error row without running, because each such run takes long. The counts are part of the
# state.

Row = dict[str, Any]

MOST_CUT_OFF = 20
"""So many blocks in a row may be cut off before those of a key are not run any more."""

LEAST_IN_COLUMNS = 20
"""Matches: fewer of them are faster one by one, however plain their block is."""

_MOST_ROWS = 50_000
"""Rows that are held as Python values before they become a table."""


@dataclass(frozen=True, slots=True)
class Routed:
    """Events of one type that blocks have routed to queries, in columns.

    match: the number of an event's match among those of the call, in order
    output: its number among the outputs of the block
    step: as in `runtime.results.matched.Matched`
    emitted: µs
    identity: of its match
    key: the number of its match's key among `keys`
    keys: by name
    fields: the cells of each field
    """

    type: EventType
    match: Integers
    output: Integers
    step: Integers
    emitted: Integers
    identity: list[str]
    key: Integers
    keys: Sequence[Mapping[str, Any]]
    fields: Sequence[pa.Array | list[Any]]


class LookedUp(NamedTuple):
    """What blocks know of tables.

    table: the events' columns, by row
    members: by (match, column), a row; negative = none
    widths: as in `runtime.matching.interface.Found`
    arrivals: by match, when its latest event has arrived, µs
    """

    table: pa.Table
    members: Integers
    widths: Sequence[int]
    arrivals: Integers

    def take(self, order: NDArray[np.int64]) -> LookedUp:
        """The same of these matches, in their order."""
        return self._replace(members=self.members[order], arrivals=self.arrivals[order])

    def give(self, term: int, terms: int, events: Sequence[Any]) -> None:
        """Give the events of a term in each match what was stored with them."""
        members = self.members[:, columns_of(self.widths, terms)[term]]
        rows, place = np.unique(members, return_inverse=True)
        taken = self.table.take(pa.array(np.maximum(rows, 0)))
        arrivals = taken.column("_arrival").to_pylist()
        stored = looked_up_in(taken) or [{}] * len(rows)
        places = place.reshape(members.shape)
        for own, at_rows, found in zip(members, places, events, strict=True):
            there = at_rows[own >= 0].tolist()
            for event, at in zip(found if isinstance(found, list) else [found], there, strict=False):
                event.arrival, event.looked_up = arrivals[at], stored[at]


def block_outputs(
    plan: Plan,
    query: QueryPlan,
    matches: pa.Table,
    keys: NDArray[np.int64],
    cut_off: NDArray[np.int64],
    feeds: Collection[str] = (),
    looked_up: LookedUp | None = None,
) -> tuple[pa.Table, list[Routed]]:
    """The outputs of a query's matches (`match_schema`), and what other queries take of them.

    keys: by match, the number of its key
    cut_off: by key number, how many blocks in a row were cut off; it is updated
    feeds: the event types that are routed to queries
    looked_up: by these matches; None = the query looks nothing up
    """
    order = np.lexsort([matches.column(name).to_numpy() for name in ("_rank", "time", "_step", "emitted")])
    # A key's count depends on the order of its matches, so that has to be the same for every cut.
    if (np.diff(order) < 0).any():
        matches, keys = matches.take(pa.array(order)), keys[order]
        looked_up = None if looked_up is None else looked_up.take(order)
    else:
        order = np.arange(len(matches))
    sent = plain_block(plan, query) if len(matches) >= LEAST_IN_COLUMNS else None
    if sent is None:
        rows, _, routed = _run_each(plan, query, matches, keys, cut_off, feeds, looked_up, order)
        return rows, routed
    is_known, is_long, put = put_out(sent, plan, query, matches)
    # A match that may be cut off counts for those of its key that follow.
    is_plain = is_known & ~np.isin(keys, keys[is_long | (cut_off[keys] > 0)])
    if not is_plain.all():
        put = [item.only(is_plain[is_known & ~is_long]) for item in put]
    chosen, others = np.flatnonzero(is_plain), np.flatnonzero(~is_plain)
    own, routed = _rows_put_out(query, matches, keys, put, chosen, order, feeds)
    if not len(others):
        return own, routed
    rest = matches.take(pa.array(others))
    rows, places, more = _run_each(plan, query, rest, keys[others], cut_off, feeds, None, order[others])
    both = np.argsort(np.concatenate([np.repeat(chosen, len(put)), others[places]]), kind="stable")
    table = pa.concat_tables([own, rows]).take(pa.array(both)).combine_chunks()
    return table, [*routed, *more]


def _rows_put_out(
    query: QueryPlan,
    matches: pa.Table,
    keys: NDArray[np.int64],
    put: Sequence[Put],
    chosen: NDArray[np.int64],
    order: NDArray[np.int64],
    feeds: Collection[str],
) -> tuple[pa.Table, list[Routed]]:
    """The rows of a plain block in the chosen matches, and what other queries take of them.

    keys, order: as in `_run_each`
    """
    count, statements = len(chosen), len(put)
    rows = pa.array(np.repeat(chosen, statements))
    _, first, number = np.unique(keys[chosen], return_index=True, return_inverse=True)
    values = column_cells(matches.column("key").take(pa.array(chosen[first])))
    texts = pa.array([json.dumps(plain_value(value)) for value in values], pa.string())
    columns: dict[str, pa.Array] = {
        "kind": _in_turn([pa.repeat(item.sent.kind, count) for item in put]),
        "channel": _in_turn([pa.repeat(pa.scalar(item.sent.channel, pa.string()), count) for item in put]),
        "text": _in_turn([pa.array(item.texts, pa.string()) for item in put]),
        "event": _in_turn(
            [
                pa.nulls(count, pa.string()) if item.events is None else pa.array(item.events, pa.string())
                for item in put
            ]
        ),
        "key": texts.take(pa.array(np.repeat(number, statements))),
        **told_columns(query, count * statements),
    }
    for field in OUTPUT_SCHEMA:
        if field.name in TOLD:
            columns.setdefault(field.name, pa.nulls(len(rows), field.type))
        elif field.name not in columns:
            columns[field.name] = one_chunk(matches.column(field.name)).take(rows)
    table = pa.table({name: columns[name] for name in OUTPUT_SCHEMA.names}, schema=OUTPUT_SCHEMA)
    return table, list(_routed(matches, put, chosen, order, number, values, feeds))


def _in_turn(columns: Sequence[pa.Array]) -> pa.Array:
    """The first cells of all columns, then the second ones, and so on."""
    if len(columns) == 1:
        return columns[0]
    count = len(columns[0])
    return pa.concat_arrays(columns).take(
        pa.array(np.arange(count * len(columns)).reshape(len(columns), count).T.ravel())
    )


def _routed(
    matches: pa.Table,
    put: Sequence[Put],
    chosen: NDArray[np.int64],
    order: NDArray[np.int64],
    key: Integers,
    keys: Sequence[Mapping[str, Any]],
    feeds: Collection[str],
) -> Iterator[Routed]:
    """What other queries take, by statement; key: by chosen match, its number among `keys`."""
    taken = [(place, item) for place, item in enumerate(put) if item.sent.is_routed and item.sent.event_name in feeds]
    if not taken:
        return
    rows = pa.array(chosen)
    identities, steps = (one_chunk(matches.column(name)).take(rows) for name in ("match_id", "_step"))
    emitted = pc.cast(one_chunk(matches.column("emitted")), pa.int64()).take(rows).to_numpy()
    shared = order[chosen], steps.to_numpy(), emitted, identities.to_pylist()
    for place, item in taken:
        assert item.sent.event is not None, "only events are routed"
        number, step, moment, identity = shared
        outputs = np.full(len(chosen), place)
        yield Routed(item.sent.event, number, outputs, step, moment, identity, key, keys, item.values)


def _of_events(routed: Sequence[tuple[int, int, int, int, str, Mapping[str, Any], Event]]) -> Iterator[Routed]:
    """The same of events as values: each with its match, output, step, moment, identity and key."""
    for type_ in {one[-1].type.name: one[-1].type for one in routed}.values():
        number, output, step, emitted, identity, key, events = map(
            list, zip(*(one for one in routed if one[-1].type.name == type_.name), strict=True)
        )
        keys = {id(one): one for one in key}
        places = {one: place for place, one in enumerate(keys)}
        key_of = np.array([places[id(one)] for one in key], np.int64)
        fields = [[to_cell(event.values.get(item.name)) for event in events] for item in type_.fields]
        match_of, output_of, steps, moments = (np.array(column, np.int64) for column in (number, output, step, emitted))
        yield Routed(type_, match_of, output_of, steps, moments, identity, key_of, list(keys.values()), fields)


def _run_each(
    plan: Plan,
    query: QueryPlan,
    matches: pa.Table,
    keys: NDArray[np.int64],
    cut_off: NDArray[np.int64],
    feeds: Collection[str],
    looked_up: LookedUp | None,
    order: NDArray[np.int64],
) -> tuple[pa.Table, Integers, list[Routed]]:
    """The outputs of matches, whose blocks run one by one; by row, the place of its match among
    these; and what other queries take.

    order: by match, its number among those of the call; the others as of `block_outputs`
    """
    routed: list[tuple[int, int, int, int, str, Mapping[str, Any], Event]] = []
    common = matches.select(["query", "instance", "time", "emitted", "match_id", "_step", "_rank"]).to_pylist()
    values = column_cells(matches.column("key"))
    told = told_cells(query)
    tables, rows, counts = list[pa.Table](), list[Row](), list[int]()
    each = zip(common, values, keys.tolist(), order.tolist(), _contexts(plan, query, matches, looked_up), strict=True)
    for shared, value, key, number, context in each:
        shared["key"] = json.dumps(plain_value(value))
        shared.update(told)
        own, cut_off[key] = _run(query, context, int(cut_off[key]))
        if feeds:
            for place, event in _fed(context.outputs):
                problem = _problem(event, query.routes)
                if problem is not None:
                    own[place] = {"kind": "error", "text": f"not routed: {problem}"}
                elif event.type.name in feeds:
                    emitted = micros_of(shared["emitted"])
                    identity, step = shared["match_id"], shared["_step"]
                    routed.append((number, place, step, emitted, identity, value, event))
        counts.append(len(own))
        rows.extend({**shared, **row} for row in own)
        if len(rows) > _MOST_ROWS:
            tables.append(pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA))
            rows = []
    table = rows_of(NO_OUTPUTS, [*tables, pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA)])
    return table, np.repeat(np.arange(len(counts)), counts), list(_of_events(routed))


def _fed(outputs: Sequence[Output]) -> Iterator[tuple[int, Event]]:
    """What is routed to queries, with its number among the outputs of the block."""
    for place, output in enumerate(outputs):
        is_routed = output.kind == "route" or (output.kind == "send" and output.channel == QUERIES_CHANNEL)
        if is_routed and output.event is not None:
            yield place, output.event


def _problem(event: Event, routes: Collection[str]) -> str | None:
    """Why an event cannot be routed; None = it can.

    routes: the event types that the text routes
    """
    if event.type.name not in routes:
        return f"the channel is an expression; write it as a text, {json.dumps(QUERIES_CHANNEL)}"
    missing = _missing_field(event)
    return None if missing is None else f"{missing!r} of {event.type.name} has no value"


def _missing_field(event: Event) -> str | None:
    """A field without a value that is not optional; of an event in a field, too."""
    for item in event.type.fields:
        value = event.values.get(item.name)
        if value is None and item.type.kind is not Kind.OPTIONAL:
            return item.name
        if isinstance(value, Event) and (inner := _missing_field(value)) is not None:
            return f"{item.name}.{inner}"
    return None


def _contexts(plan: Plan, query: QueryPlan, matches: pa.Table, looked_up: LookedUp | None) -> Iterator[Context]:
    """The context of each match's block."""
    world = PlanWorld(plan, query)
    runs = [index for index, term in enumerate(query.terms) if term.group is not None]
    terms = [] if query.every is not None else list(_terms(plan, query, matches, world))
    if looked_up is not None:
        for term, events in enumerate(terms):
            looked_up.give(term, len(terms), events)
    bound = [[]] * len(matches) if query.every is not None else zip(*terms, strict=True)
    moments = [None] * len(matches) if looked_up is None else looked_up.arrivals.tolist()
    keys = _keys(query, matches, world)
    chosen = _selects(plan, query, matches, world) if query.selected else [()] * len(matches)
    for events, own_keys, own_selects, moment in zip(bound, keys, chosen, moments, strict=True):
        yield Context(
            events=events,
            is_block=True,
            keys=own_keys,
            selects=own_selects,
            runs={term: events[term] for term in runs},
            locals=[None] * query.slots,
            world=world,
            as_of=moment,
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


class Moments(NamedTuple):
    """When rows of results happened, and where they stand: columns of `Matched`."""

    time: Integers
    emitted: Integers
    step: Integers
    rank: Integers


def error_outputs(
    plan: Plan,
    query: QueryPlan,
    keys: Sequence[pa.Array],
    at: Moments,
    texts: Sequence[str],
    ids: pa.Array | None = None,
) -> pa.Table:
    """One row (OUTPUT_SCHEMA) per text.

    keys: by key of the query its values, by row
    at: by row
    ids: the identities of the matches; None = the rows belong to no single match
    """
    if not texts:
        return NO_OUTPUTS
    count = len(texts)
    fields = list(key_struct(plan, query))
    struct = pa.StructArray.from_arrays(key_values(query, keys), fields=fields) if keys else None
    values = [{}] * count if struct is None else column_cells(pa.chunked_array([struct]))
    columns = {
        "kind": pa.repeat("error", count),
        "channel": pa.nulls(count, pa.string()),
        "text": pa.array(texts, pa.string()),
        "event": pa.nulls(count, pa.string()),
        "query": pa.repeat(query.name, count),
        "instance": pa.repeat(query.instance, count),
        "key": pa.array([json.dumps(plain_value(value)) for value in values], pa.string()),
        "time": moments(at.time),
        "emitted": moments(at.emitted),
        "match_id": pa.nulls(count, pa.string()) if ids is None else ids,
        **{name: pa.nulls(count, type_) for name, type_ in TOLD.items()},
        **told_columns(query, count),
        "_step": pa.array(at.step, pa.int64()),
        "_rank": pa.array(at.rank, pa.int64()),
    }
    return pa.table(columns, schema=OUTPUT_SCHEMA)


def control_errors(errors: Iterable[tuple[int, str]], arrival: NDArray[np.int64]) -> pa.Table:
    """One row (OUTPUT_SCHEMA) per wrong control event, at its arrival; `errors`: record numbers and
    messages."""
    rows = []
    for record, text in errors:
        moment = pa.scalar(int(arrival[record]), pa.int64()).cast(TIMESTAMP)
        rows.append(
            {"kind": "error", "text": text, "query": "", "instance": "", "key": "{}"}
            | {"time": moment, "emitted": moment, "match_id": None, "_step": record, "_rank": 0}
        )
    return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA) if rows else NO_OUTPUTS


def stopped_instances(stopped: Iterable[Stopped]) -> pa.Table:
    """One row (OUTPUT_SCHEMA) per instance that does not run; it has no moment."""
    rows = [
        {"kind": "error", "text": item.reason, "query": item.query, "instance": item.instance}
        | {"key": "{}", "_step": -1, "_rank": 0}
        for item in stopped
    ]
    return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA) if rows else NO_OUTPUTS


_TIMES = ("handover",)
"""The details that are times, µs."""


def change_rows(outcomes: Sequence[ChangeOutcome], place: int, step: int = -1) -> pa.Table:
    """One row (OUTPUT_SCHEMA) per outcome.

    place: where in the order of arrival, µs
    step: the record that brought them; -1 = none
    """
    moment = pa.scalar(place, pa.int64()).cast(TIMESTAMP)
    rows = [
        {"kind": item.kind, "text": item.text, "query": item.query, "instance": item.instance, "key": "{}"}
        | {"event": json.dumps(_plain(item)) if item.details else None}
        | {"time": moment, "emitted": moment, "_step": step, "_rank": 0}
        for item in outcomes
    ]
    return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA) if rows else NO_OUTPUTS


def _plain(outcome: ChangeOutcome) -> dict[str, object]:
    return {name: format_time(value) if name in _TIMES else value for name, value in outcome.details.items()}


def refused_at_source(plan: Plan, table: pa.Table, kinds: NDArray[np.int64], arrival: NDArray[np.int64]) -> pa.Table:
    """Rows for records that no query can read: malformed ones, and those of an unknown type."""
    if not len(kinds) or kinds.min() >= 0:  # the usual case: all are events
        return no_discards(plan)
    rows = np.flatnonzero((kinds == RecordKind.MALFORMED) | (kinds == RecordKind.UNKNOWN_TYPE))
    if not len(rows):
        return no_discards(plan)
    is_malformed = kinds[rows] == RecordKind.MALFORMED
    reason = np.where(is_malformed, np.int8(Outcome.MALFORMED), np.int8(Outcome.UNKNOWN_TYPE))
    times = table.column("_source_time").to_numpy()[rows]
    bounds = np.full(len(rows), NO_TIME, np.int64)
    return refused_records(plan, "", table, Refused(rows, reason, arrival[rows], times, bounds))


def refused_file(plan: Plan, source: str, reason: str) -> pa.Table:
    """One row for a file that is not a table; `source`: its name."""
    row = {"query": "", "reason": Outcome.MALFORMED_FILE.word, "source": source, "text": reason, "_step": 0}
    return pa.Table.from_pylist([row], schema=discard_schema(plan))


def _names_with_roles(names: pa.Array, roles: Sequence[str | None]) -> pa.Array:
    """Event types with the roles that have refused their events: `Process as child`."""
    pairs = zip(names.to_pylist(), roles, strict=True)
    return pa.array([name if role is None else f"{name}{AS_ROLE}{role}" for name, role in pairs], pa.string())


AS_ROLE = " as "
"""Between an event type and a role, in rows of discarded records."""


class Refused(NamedTuple):
    """Records that are discarded, one entry each.

    rows: their rows in the table of records
    reason: the `Outcome`
    arrival: when they arrived, µs
    source_time: the times that their sources gave them, µs; NO_TIME = none
    bound: what they were measured against, µs; NO_TIME = none
    """

    rows: Integers
    reason: NDArray[np.int8]
    arrival: Integers
    source_time: Integers
    bound: Integers

    def only(self, chosen: Integers) -> Refused:
        """Some of them."""
        rows, reason, arrival, source_time, bound = self
        return Refused(rows[chosen], reason[chosen], arrival[chosen], source_time[chosen], bound[chosen])


def refused_records(
    plan: Plan, query: str, table: pa.Table, refused: Refused, roles: Sequence[str | None] | None = None
) -> pa.Table:
    """Rows for discarded records.

    query: the title of the query that refused them
    table: the records of the call
    roles: by discarded record, the role that refused it, of several; None = there is one
    """
    rows = refused.rows
    if not len(rows):
        return no_discards(plan)
    schema = no_discards(plan).schema
    index = None if roles is None and len(rows) == len(table) else pa.array(rows)

    def taken(name: str, type_: pa.DataType) -> pa.Array:
        if not has_column(table, name):
            return pa.nulls(len(rows), type_)
        column = one_chunk(table.column(name))
        return column if index is None else column.take(index)

    kinds = taken("_kind", pa.int16()).to_numpy()
    payload = [taken(name, arrow_type(type_, plan)) for name, type_ in field_columns(plan.events).items()]
    fields = schema.field("fields").type
    columns = [
        pa.repeat(pa.scalar(query), len(rows)),
        reason_words(refused.reason),
        _event_names(plan, kinds) if roles is None else _names_with_roles(_event_names(plan, kinds), roles),
        taken("_source", pa.string()).dictionary_decode(),
        taken("_partition", pa.int64()),
        taken("_offset", pa.int64()),
        moments(refused.source_time),
        moments(refused.arrival),
        moments(refused.bound),
        taken("_text", pa.string()),
        pa.StructArray.from_arrays(payload, fields=list(fields)) if payload else pa.array([{}] * len(rows), fields),
        pa.array(rows),
    ]
    return pa.table(columns, schema=schema)


def _event_names(plan: Plan, kinds: NDArray[np.int16]) -> pa.Array:
    """By record, its event type; null for one that is not an event of the plan."""
    is_other = kinds < 0
    if is_other.all():
        return pa.nulls(len(kinds), pa.string())
    return pa.array([event.name for event in plan.events]).take(pa.array(kinds, mask=is_other))
