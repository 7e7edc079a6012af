"""The rows of one call for one query: stored events, new records, members of pending matches.

`assemble` puts them into one table, numbers their keys, runs the shared clocks over new records,
and returns all that admission needs. A row has the same number in all columns. Stored events come
first, then new records in order of arrival, then members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.model import Plan
from runtime.admission import (
    BoundRule,
    ClocksRun,
    KeyedRows,
    Moves,
    NewRecords,
    Punctuation,
    Ready,
    Released,
    RowOrigin,
    Selection,
    Timelines,
    interval_ends,
    no_clocks_run,
    of_layers,
)
from runtime.column_types import Integers, has_column, one_chunk
from runtime.columns.arrivals import Shape
from runtime.columns.expressions import with_lookups
from runtime.columns.keys import INPUT, group_rows, key_columns, key_values, number_keys
from runtime.columns.rows import is_any_of, joined
from runtime.engine.event_marks import EVENT
from runtime.engine.forgetting import Lives, StoredLives, divide, stored_lives
from runtime.engine.query_state import CUT_OFF, QueryParts, QueryState
from runtime.input_policies import NO_WAIT, PolicyColumns
from runtime.instants import NEVER, NO_TIME
from runtime.reading import ControlEvents

_NONE = np.empty(0, np.int64)
_ALL_BY_INPUT = np.empty(0, np.int8)


@dataclass(frozen=True, slots=True)
class CallRecords:
    """The records of one call, in order of arrival.

    table: as in `runtime.columns.arrivals`
    kinds: by record, its event type or `_kind`
    arrival: by record, µs; never before the clock
    moves: which of them arrive later than they say
    controls: what its control events ask for
    now: the clock after all records and ticks, µs
    limit: timers run up to this moment, µs; NEVER = all
    is_last: no more records will come
    is_routed: which records queries have routed; None = none of them
    is_found: whether they are those of one admission (`runtime.engine.looking`)
    """

    table: pa.Table
    kinds: Integers
    arrival: Integers
    moves: Moves
    controls: ControlEvents
    now: int
    limit: int
    is_last: bool = False
    is_routed: NDArray[np.bool_] | None = None
    is_found: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a query makes of the records of a call, and those that concern it.

    A record is a row for each input that it is an event of.

    selection: by record; of a type that is several inputs, the outcome of all
    records: by row the number of its record; "new record" n of admission is row n
    new: the rows, with the query's columns
    input, heartbeats, time: by row, as in `Selection`
    rule: as in `runtime.admission.KeyedRows`
    layers: by layer and record, what selection makes of it; None = there is one layer
    """

    selection: Selection
    records: Integers
    new: pa.Table
    input: NDArray[np.int16]
    heartbeats: Integers
    time: Integers
    rule: NDArray[np.int8]
    layers: NDArray[np.int8] | None = None

    @property
    def is_again(self) -> NDArray[np.bool_]:
        """Whether a row has the same record as the one before it."""
        again = np.zeros(len(self.records), np.bool_)
        if self.layers is not None:
            again[1:] = self.records[1:] == self.records[:-1]
        return again


@dataclass(frozen=True, slots=True)
class CallRows:
    """The rows of one call for one query, and what admission needs of them.

    table: the events' columns, by row
    keys: the key columns, by row, then by stored bound
    numbers: the number of each of these keys; -1 = no key
    rows: as admission takes them, without the members of pending matches
    timelines: the keys' bounds before the call
    punctuation: heartbeats without a key, changes of leeway
    clocks: how the shared clocks went through the new records
    ready: when they reach each row's time
    lives: the lives of the keys; None = no key is forgotten
    """

    table: pa.Table
    keys: list[pa.Array]
    numbers: Integers
    rows: KeyedRows
    timelines: Timelines
    punctuation: Punctuation
    clocks: ClocksRun
    ready: Ready
    lives: Lives | None

    @property
    def key_count(self) -> int:
        """How many keys there are."""
        return len(self.timelines.bounds)

    def with_table(self, table: pa.Table) -> CallRows:
        """The same with other columns of events."""
        return self if table is self.table else replace(self, table=table)

    def with_ready(self, ready: Ready) -> CallRows:
        """The same with timers of which the shared clocks know."""
        return replace(self, ready=ready)


def wanted_records(parts: QueryParts, records: CallRecords, first_event: int) -> Wanted:
    """What the query makes of each record, and the records that concern it as rows.

    first_event: the number of the first record as an event
    """
    if len(parts.selector.layers) > 1:
        return _in_layers(parts, records, first_event)
    heartbeats = records.controls.heartbeats
    table = _at_their_arrival(parts, records)
    selection = parts.selector.select(table, records.kinds, heartbeats, is_found=records.is_found)
    concerns = selection.is_selected
    if heartbeats:
        concerns[list(heartbeats)] = True
    numbers = np.flatnonzero(concerns)
    table = _own_columns(parts.schema, records, selection)
    new = table if len(numbers) == len(table) else table.take(pa.array(numbers))
    if parts.query.tables:
        keys = key_values(parts.query, parts.keys_of(new))
        new = with_lookups(new, parts.plan, parts.query, keys)
    return Wanted(
        selection,
        numbers,
        new,
        input=_chosen(selection.input, numbers),
        heartbeats=_chosen(selection.heartbeats, numbers) if len(selection.heartbeats) else selection.heartbeats,
        time=_chosen(selection.time, numbers),
        rule=_bound_rules(parts, records, numbers),
    )


def _in_layers(parts: QueryParts, records: CallRecords, first_event: int) -> Wanted:
    """The same for a query of which a type is several inputs."""
    heartbeats = records.controls.heartbeats
    selections = [each.select(records.table, records.kinds, heartbeats) for each in parts.selector.layers]
    first = selections[0]
    concerns = np.stack([each.is_selected for each in selections], axis=1)
    concerns[list(heartbeats), 0] = True
    # By record, then by layer.
    numbers, layer = np.divmod(np.flatnonzero(concerns), len(selections))
    input_of = np.stack([each.input for each in selections], axis=1)[concerns]
    outcomes = np.array([each.outcome for each in selections])
    selection = replace(first, outcome=of_layers(outcomes))
    own, taken = _own_columns(parts.schema, records, selection), pa.array(numbers)
    made = {INPUT.name: pa.array(input_of), EVENT.name: pa.array(numbers + first_event)}
    columns = [made[name] if name in made else own.column(name).take(taken) for name in own.column_names]
    new = pa.table(columns, schema=parts.schema)
    if parts.query.tables:
        new = with_lookups(new, parts.plan, parts.query, key_values(parts.query, parts.keys_of(new)))
    own_heartbeats = first.heartbeats
    if len(own_heartbeats):
        own_heartbeats = np.where(layer == 0, own_heartbeats[numbers], 0)
    return Wanted(
        selection,
        numbers,
        new,
        input=input_of,
        heartbeats=own_heartbeats,
        time=selection.time[numbers],
        rule=_bound_rules(parts, records, numbers),
        layers=outcomes,
    )


def _at_their_arrival(parts: QueryParts, records: CallRecords) -> pa.Table:
    """The records; for filters that look something up, with the arrival that the clock gives."""
    table = records.table
    if not parts.query.tables:
        return table
    return table.set_column(table.schema.get_field_index("_arrival"), "_arrival", pa.array(records.arrival))


def _bound_rules(parts: QueryParts, records: CallRecords, numbers: Integers) -> NDArray[np.int8]:
    """What is known of routed records: those without a time of their own are in order."""
    if records.is_routed is None:
        return _ALL_BY_INPUT
    has_time = is_any_of(records.kinds[numbers], [kind for kind, _ in parts.selector.time_from])
    rule = np.where(has_time, np.int8(BoundRule.OUT_OF_ORDER), np.int8(BoundRule.IN_ORDER))
    return np.where(records.is_routed[numbers], rule, np.int8(BoundRule.BY_INPUT))


def _own_columns(schema: pa.Schema, records: CallRecords, selection: Selection) -> pa.Table:
    """All records with the query's columns, the clock's arrival and the query's source time."""
    source, columns = records.table, []
    places = {name: place for place, name in enumerate(source.column_names)}
    for place, name in enumerate(schema.names):
        if name == "_arrival":
            columns.append(pa.array(records.arrival))
        elif name == "_source_time":
            columns.append(pa.array(selection.time))
        elif name in places:
            columns.append(source.column(places[name]))
        else:
            columns.append(pa.nulls(len(source), schema.field(place).type))
    return pa.table(columns, schema=schema)


def assemble(parts: QueryParts, state: QueryState, records: CallRecords, wanted: Wanted) -> CallRows:
    """The rows of a call; advances the shared clocks of `state`, and changes nothing else of it."""
    stored, bounds, waiting = state.keys.events, state.keys.bounds, state.waits.members
    tables = [part for part in (stored, wanted.new, waiting) if len(part)] or [wanted.new]
    table = joined([part.select(parts.schema.names) for part in tables])
    kinds = table.column("_kind").to_numpy()
    keys = key_columns(table, kinds, parts.plan, parts.query)
    if len(bounds):
        own = [one_chunk(bounds.column(f"key{place}")) for place in range(len(keys))]
        keys = [pa.concat_arrays(both) for both in zip(keys, own, strict=True)]
    numbers, count = number_keys(keys, len(table) + len(bounds))
    rows = _keyed_rows(parts, state, wanted, table, numbers, count)
    punctuation = _punctuation(parts.policies, records, rows, numbers, wanted.records)
    clocks = _run_clocks(state, records, wanted, rows, kinds, keys, numbers)
    rows = _with_clocks(rows, clocks, wanted.new, parts.policies)
    judged, lives = len(rows.key), None
    if parts.forgetting.is_on:
        known = _stored_lives(state, numbers, count, judged, len(table))
        divided = divide(rows, numbers, clocks, parts.policies, known, parts.forgetting)
        lives, numbers, rows, clocks = divided.lives, divided.numbers, divided.rows, divided.clocks
        count = len(lives.owner)
    return CallRows(
        table=_with_adjusted(table, stored, clocks, waiting),
        keys=keys,
        numbers=numbers,
        rows=rows,
        timelines=_timelines(state, numbers[len(table) :], count),
        punctuation=punctuation,
        clocks=clocks,
        ready=Ready(*clocks.ready(numbers[:judged], rows.time[:judged]), _NONE, _NONE),
        lives=lives,
    )


def _stored_lives(state: QueryState, numbers: Integers, count: int, judged: int, rows: int) -> StoredLives:
    """What stored events and bounds, and members of pending matches, say of their keys' lives."""
    events, bounds, waiting = state.keys.events, state.keys.bounds, state.waits.members
    # A key of which only a pending match is left is held by it.
    began = state.waits.began()
    unknown = np.full(len(waiting), NO_TIME, np.int64)
    last = [events.column("_last").to_numpy(), unknown, bounds.column("_last").to_numpy()]
    latest = [events.column("_latest").to_numpy(), began, bounds.column("_latest").to_numpy()]
    own = np.concatenate([numbers[: len(events)], numbers[judged:rows], numbers[rows:]])
    return stored_lives(count, own, np.concatenate(last), np.concatenate(latest))


def _keyed_rows(
    parts: QueryParts,
    state: QueryState,
    wanted: Wanted,
    table: pa.Table,
    numbers: Integers,
    count: int,
) -> KeyedRows:
    """All rows as columns: in each, stored events, new records, members of pending matches."""
    stored, waiting = state.keys.events, state.waits.members
    first_new, fresh = len(stored), len(wanted.records)
    judged = first_new + fresh
    start, key_rows = group_rows(numbers[:judged], count)
    is_pending = stored.column("_pending").to_numpy(zero_copy_only=False)
    origin = np.full(judged, RowOrigin.NEW, np.int8)
    origin[:first_new] = np.where(is_pending, np.int8(RowOrigin.PENDING), np.int8(RowOrigin.WINDOW))
    heartbeats = wanted.heartbeats
    if len(heartbeats):
        heartbeats = np.concatenate([np.zeros(first_new, np.int64), heartbeats])
    input_of = parts.inputs_of
    no_buffer = np.full(len(table) - first_new, NO_TIME, np.int64)
    return KeyedRows(
        start=start,
        key_rows=key_rows,
        key=numbers[:judged],
        origin=origin,
        input=np.concatenate([input_of(stored), wanted.input, input_of(waiting)]),
        heartbeats=heartbeats,
        time=np.concatenate(
            [
                stored.column("_time").to_numpy(),
                wanted.time,
                waiting.column("_time").to_numpy(),
            ]
        ),
        arrival=table.column("_arrival").to_numpy(),
        buffer_end=np.concatenate([stored.column("_ripe").to_numpy(), no_buffer]),
        first_new=first_new,
        rule=wanted.rule,
    )


def _chosen(values: NDArray[Any], rows: Integers) -> NDArray[Any]:
    """The values of these rows; `values` itself if these are all."""
    return values if len(rows) == len(values) else values[rows]


def _timelines(state: QueryState, numbers: Integers, count: int) -> Timelines:
    """Stored bounds by key and input; `numbers`: the key of each stored bound."""
    table = state.keys.bounds
    bounds = np.full((count, len(state.everywhere)), NO_TIME, np.int64)
    if len(table):
        item, bound = table.column("input").to_numpy(), table.column("bound").to_numpy()
        is_time = item >= 0
        bounds[numbers[is_time], item[is_time]] = bound[is_time]
    return Timelines(bounds, state.everywhere)


def cut_off_blocks(state: QueryState, rows: CallRows) -> Integers:
    """By key number, how many blocks in a row were cut off before the call."""
    table, counts = state.keys.bounds, np.zeros(rows.key_count, np.int64)
    if not len(table):
        return counts
    is_count = table.column("input").to_numpy() == CUT_OFF
    counts[rows.numbers[len(rows.table) :][is_count]] = table.column("bound").to_numpy()[is_count]
    return counts


def _run_clocks(
    state: QueryState,
    records: CallRecords,
    wanted: Wanted,
    rows: KeyedRows,
    kinds: Integers,
    keys: list[pa.Array],
    numbers: Integers,
) -> ClocksRun:
    """Runs the shared clocks over the new records."""
    first = rows.first_new
    mine = slice(first, first + len(wanted.records))
    if not state.clocks.has_clocks:
        return no_clocks_run(rows.time[mine])
    heartbeats = records.controls.heartbeats.items()
    return state.clocks.run(
        NewRecords(
            table=wanted.new,
            kinds=kinds[mine],
            input=rows.input[mine],
            time=rows.time[mine],
            arrival=rows.arrival[mine],
            heartbeats={int(np.searchsorted(wanted.records, record)): event for record, (event, _) in heartbeats},
            keys=keys,
            numbers=numbers,
            key_count=len(rows.start) - 1,
            is_again=wanted.is_again,
            first=first,
            now=records.now,
            limit=records.limit,
            is_over=records.is_last,
        )
    )


def _with_clocks(rows: KeyedRows, clocks: ClocksRun, new: pa.Table, policies: PolicyColumns) -> KeyedRows:
    """The rows with the times that shared clocks give to new records, and without end edges.

    Events of inputs without wait happen at their arrival. An end edge only completes its event.
    """
    mine = slice(rows.first_new, rows.first_new + len(new))
    if clocks.runs:
        time = rows.time.copy()
        is_at_arrival = np.isin(rows.input[mine], np.flatnonzero(policies.delay == NO_WAIT))
        time[mine] = np.where(is_at_arrival, rows.arrival[mine], clocks.verdicts.time)
        rows = rows._replace(time=time)
    if has_column(new, "_shape"):
        is_end = pc.equal(new.column("_shape"), int(Shape.END_EDGE)).fill_null(False).to_numpy()
        input_of = rows.input.copy()
        input_of[mine][is_end] = -1
        rows = rows._replace(input=input_of)
    return rows


def _with_adjusted(table: pa.Table, stored: pa.Table, clocks: ClocksRun, waiting: pa.Table) -> pa.Table:
    """The rows with the reason why their time was adjusted."""
    if not has_column(table, "_adjusted"):
        return table
    before, behind = stored.column("_adjusted"), waiting.column("_adjusted")
    adjusted = pa.chunked_array([*before.chunks, pa.array(clocks.verdicts.adjusted), *behind.chunks], pa.int8())
    place = table.schema.get_field_index("_adjusted")
    return table.set_column(place, "_adjusted", adjusted.combine_chunks())


def _punctuation(
    policies: PolicyColumns, records: CallRecords, rows: KeyedRows, numbers: Integers, wanted: Integers
) -> Punctuation:
    """Heartbeats without a key, and changes of leeway, by row."""
    first, keyless = rows.first_new, _NONE
    if len(rows.heartbeats):
        mine = slice(first, first + len(wanted))
        keyless = first + np.flatnonzero((rows.heartbeats[mine] != 0) & (numbers[mine] < 0))
    changes = records.controls.leeways
    return Punctuation(
        heartbeat_row=keyless,
        heartbeat_mask=rows.heartbeats[keyless],
        heartbeat_time=rows.time[keyless],
        heartbeat_arrival=rows.arrival[keyless],
        leeway_row=np.array([first + int(np.searchsorted(wanted, record)) for record, _ in changes], np.int64),
        leeway=_by_input([None if change is None else change.leeway for _, change in changes], policies.leeway),
        reorder=_by_input([None if change is None else change.reorder for _, change in changes], policies.reorder),
    )


def _by_input(lengths: Sequence[int | None], standard: Integers) -> Integers:
    """By change and input a length; None: what the inputs start with."""
    return np.array([standard if length is None else np.full_like(standard, length) for length in lengths])


def with_ends(table: pa.Table, plan: Plan, rows: KeyedRows, released: Released) -> pa.Table:
    """The rows with the ends that end edges have brought to events that were still pending."""
    if not has_column(table, "_end"):
        return table
    first = rows.first_new
    is_admitted = np.zeros(len(table), np.bool_)
    is_admitted[first : first + len(released.verdict)] = released.verdict == 0
    gone = np.full((2, len(table)), NEVER, np.int64)
    gone[0][:first] = np.where(rows.origin[:first] == RowOrigin.WINDOW, NO_TIME, NEVER)
    window = np.repeat(released.fresh, np.diff(released.start))
    fresh = np.flatnonzero(np.arange(len(window)) >= window)
    gone[:, released.order[fresh]] = released.emitted[fresh], released.record[fresh]
    place = table.schema.get_field_index("_end")
    return table.set_column(place, "_end", interval_ends(table, plan, is_admitted, gone, first))
