"""Selection: what each query makes of a record, an event of an input, a heartbeat or nothing, and
its source time.

It looks at one record at a time and needs neither state nor order. So it can run before records are
shipped; those that no query selects are only counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.plan.lookups import lookups_in
from querylang.plan.model import EventType, Plan, QueryPlan
from runtime.admission.filter_index import Filtered, Lookup, lookup_of, read_of
from runtime.admission.rules import ADMITTED, Outcome
from runtime.column_types import Integers, has_column, one_chunk
from runtime.columns import keys
from runtime.columns.arrivals import RecordKind, Shape, column_name
from runtime.columns.expressions import as_array
from runtime.columns.rows import is_any_of
from runtime.compiling.compiled import kernel
from runtime.input_policies import clock_inputs, is_by_substream, is_clocked, uses_source_time
from runtime.instants import NO_TIME
from runtime.interpreter import event_numbers
from runtime.timestamps import microseconds

_USED, _HEARTBEAT = int(Outcome.USED), int(Outcome.HEARTBEAT)
"""As plain integers, which numpy compares in a fraction of the time."""

_BY_KIND = {kind: Outcome[kind.name] for kind in RecordKind}
"""The outcome of records that are not events."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a query makes of records, by row.

    outcome: an `Outcome`; USED = an event of an input, which admission may still adjust or refuse
    input: the input of that event; -1 = none
    heartbeats: bits of the inputs that the record is a heartbeat of; empty if the query has no
        heartbeats
    time: source time, µs; NO_TIME = none
    """

    outcome: NDArray[np.int8]
    input: NDArray[np.int16]
    heartbeats: NDArray[np.int64]
    time: NDArray[np.int64]

    @property
    def is_selected(self) -> NDArray[np.bool_]:
        """By row, whether the record is an event of an input or a heartbeat."""
        return _is_selected(self.outcome)


class Selector:
    """What a plan's event types are in one query: inputs, heartbeats, sources of another input's
    time.

    plan: of the query
    time_from: the source times of event types, by number
    nulls_fail: as in `QueryPlan`
    has_clocks: whether inputs share a clock
    layers: those of all layers (`runtime.columns.keys`), of which this is the first
    """

    def __init__(self, plan: Plan, query: QueryPlan, layer: int = 0) -> None:
        self.plan = self._plan = plan
        self._query, self._layer = query, layer
        self._inputs = keys.inputs_of_layer(query, layer)
        further = () if layer else keys.layers(query)[1:]
        self.layers: tuple[Selector, ...] = (self, *(Selector(plan, query, number) for number in further))
        numbers, self.nulls_fail = event_numbers(plan), query.nulls_fail
        self.time_from = tuple((numbers[event], source) for event, source in query.time_sources())
        clocks = clock_inputs(query)
        self.has_clocks = bool(clocks)
        self._substreams = [inputs for inputs in clocks if is_by_substream(query, inputs)]
        # by kind of record; kinds that are not events are negative, and index from the end
        kinds = len(plan.events) + len(_BY_KIND)
        self._outcome = np.full(kinds, Outcome.UNRELATED, np.int8)
        self._input = np.full(kinds, -1, np.int16)
        self._heartbeats = np.zeros(kinds, np.int64)
        self._keyed = np.zeros(kinds, np.bool_)
        self._needs_time = np.zeros(kinds, np.bool_)
        self._exports = np.zeros(kinds, np.bool_)
        for other, meaning in _BY_KIND.items():
            self._outcome[other] = meaning
        self._roles = [numbers[event] for event in self._event_types() if event in numbers]
        for event in self._event_types():
            if event in numbers:
                self._add_role(numbers[event], event)
        self._has_heartbeats, self._asks_time = bool(self._heartbeats.any()), bool(self._needs_time.any())

    def _event_types(self) -> set[str]:
        """Those that have a role: a plan may have ten thousand others."""
        found = set(keys.key_sources(self._query, self._layer))
        for item in (self._query.inputs[index] for index in self._inputs):
            found.add(item.event)
            if item.policy is not None and item.policy.imports is not None:
                found.add(item.policy.imports)
            if item.heartbeat is not None:
                found.add(item.heartbeat.event)
        return found

    def _add_role(self, kind: int, event: str) -> None:
        for index, item in enumerate(self._query.inputs):
            if item.event == event and index in self._inputs:
                self._input[kind] = index
                self._needs_time[kind] |= uses_source_time(item)
            if self._layer:
                continue
            if item.policy is not None and item.policy.imports == event:
                self._exports[kind] = True
                self._needs_time[kind] = True
            if item.heartbeat is not None and item.heartbeat.event == event:
                self._heartbeats[kind] |= 1 << index
                self._needs_time[kind] = True
        self._keyed[kind] = bool(keys.key_sources(self._query, self._layer).get(event))
        if self._input[kind] >= 0:
            self._outcome[kind] = Outcome.USED
        elif self._heartbeats[kind] or self._exports[kind]:
            self._outcome[kind] = Outcome.HEARTBEAT

    @cached_property
    def _lookups(self) -> dict[int, Lookup]:
        """By input with a filter, how its records are found.

        A filter that looks something up depends on the arrival that the clock gives, so all are. So
        are those of a type that is several inputs.
        """
        shared = self._query.shared_types
        inputs = enumerate(self._query.inputs)
        filters = {index: item.filter for index, item in inputs if item.event not in shared}
        return {
            index: lookup_of(filter_)
            for index, filter_ in filters.items()
            if filter_ is not None and not (self._query.tables and any(lookups_in(filter_)))
        }

    @cached_property
    def wanted(self) -> list[Filtered]:
        """The event types that have a role, with how their records are found."""
        selected = (Outcome.USED, Outcome.HEARTBEAT)
        kinds = sorted(kind for kind in self._roles if self._outcome[kind] in selected)
        return [Filtered(kind, self._lookups.get(int(self._input[kind])), self._query) for kind in kinds]

    @cached_property
    def outcome_unseen(self) -> NDArray[np.int8]:
        """By kind of record, the outcome of those that are not found by `wanted`."""
        outcome = self._outcome.copy()
        for index in self._lookups:
            outcome[self._input == index] = Outcome.FILTERED
        return outcome

    @cached_property
    def looks_at_more(self) -> bool:
        """Whether filters exclude some of the records that are found by `wanted`."""
        return not all(lookup.is_whole for lookup in self._lookups.values())

    def passes(self, table: pa.Table, rows: NDArray[np.int64], kinds: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the records that `wanted` finds no filter excludes; `rows`: theirs, in order."""
        outcome = self._outcome.take(kinds)
        filters = [item.filter for item in self._query.inputs if item.filter is not None]
        self._filter(read_of(table, rows, filters), self._input.take(kinds), outcome, is_found=True)
        return outcome != Outcome.FILTERED

    def select(
        self,
        table: pa.Table,
        kinds: NDArray[np.int64],
        heartbeats_of: Mapping[int, tuple[str, int]] = MappingProxyType({}),
        *,
        is_found: bool = False,
    ) -> Selection:
        """What records are as events of the inputs of this layer, before any rule of time.

        heartbeats_of: control events that are heartbeats, by row: event type and time, µs
        is_found: whether they have been found by `wanted`
        """
        outcome, input_of = self._outcome.take(kinds), self._input.take(kinds)
        self._filter(table, input_of, outcome, is_found=is_found)
        time = self.source_times(table, kinds)
        for column in keys.keys_of_layer(table, kinds, self._plan, self._query, self._layer):
            if column.null_count:
                missing = column.is_null().to_numpy(zero_copy_only=False)
                outcome[_is_selected(outcome) & self._keyed[kinds] & missing] = Outcome.NULL_KEY
        for inputs in self._substreams:
            columns = keys.substream_columns(table, kinds, self._plan, self._query, inputs)
            for column in columns:
                if column.null_count:
                    missing = column.is_null().to_numpy(zero_copy_only=False)
                    outcome[is_any_of(input_of, inputs) & _is_selected(outcome) & missing] = Outcome.NULL_KEY
        if self._asks_time and len(time) and time.min() == NO_TIME:
            outcome[_is_selected(outcome) & self._needs_time[kinds] & (time == NO_TIME)] = Outcome.NULL_TIME
        input_of[outcome != _USED] = -1
        heartbeats = _NO_HEARTBEATS
        if self._has_heartbeats:
            heartbeats = np.where(_is_selected(outcome), self._heartbeats[kinds], 0)
        if heartbeats_of:
            heartbeats, time = self._with_heartbeats(heartbeats, time, heartbeats_of)
        return Selection(outcome, input_of, heartbeats, time)

    def _with_heartbeats(
        self, heartbeats: NDArray[np.int64], time: NDArray[np.int64], heartbeats_of: Mapping[int, tuple[str, int]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Adds control events as heartbeats of the inputs of their event type, except inputs with a
        shared clock, which processes them itself."""
        heartbeats, time = (heartbeats.copy() if len(heartbeats) else np.zeros(len(time), np.int64)), time.copy()
        for row, (event, moment) in heartbeats_of.items():
            time[row] = moment
            for index, item in enumerate(self._query.inputs):
                if item.event == event and not is_clocked(item):
                    heartbeats[row] |= 1 << index
        return heartbeats, time

    def input_of(self, kinds: NDArray[np.int64]) -> NDArray[np.int16]:
        """The input of each kind of record, whatever its filter says; -1 = none."""
        return self._input.take(kinds)

    def _filter(
        self, table: pa.Table, input_of: NDArray[np.int16], outcome: NDArray[np.int8], *, is_found: bool
    ) -> None:
        for index in self._inputs:
            item, lookup = self._query.inputs[index], self._lookups.get(index)
            if item.filter is not None and not (is_found and lookup is not None and lookup.is_whole):
                event = self._plan.event(item.event)
                passes = as_array(item.filter, table, self._plan, event, self._query).fill_null(False)
                outcome[(input_of == index) & ~passes.to_numpy(zero_copy_only=False)] = Outcome.FILTERED

    def outcomes(self, table: pa.Table, kinds: NDArray[np.int64]) -> NDArray[np.int8]:
        """The outcome of each record: that of the only input of its type, or of all of them."""
        return of_layers(np.array([each.select(table, kinds).outcome for each in self.layers]))

    def source_times(self, table: pa.Table, kinds: NDArray[np.int64]) -> NDArray[np.int64]:
        """The source times of records, µs; NO_TIME = none."""
        time: NDArray[np.int64] = table.column("_source_time").to_numpy()
        if not self.time_from:
            return time
        time = time.copy()
        for kind, source in self.time_from:
            rows = kinds == kind
            if rows.any():
                event = self._plan.events[kind]
                time[rows] = microseconds(as_array(source, table, self._plan, event, self._query))[rows]
        return time


def of_layers(outcomes: NDArray[np.int8]) -> NDArray[np.int8]:
    """By record its outcome, of those in all layers: used if it is in any, else that of the first
    which refuses it for more than its filter.

    outcomes: by layer and record; UNRELATED where a layer has no input of its type
    """
    found: NDArray[np.int8] = outcomes[0]
    for other in outcomes[1:]:
        found = np.where(_RANK.take(other) < _RANK.take(found), other, found)
    return found


_RANK = np.ones(len(Outcome) + 1, np.int8)
"""By outcome, before which others it counts: what is used, what is pending, refusals, filters."""
for _outcome in (*ADMITTED, Outcome.HEARTBEAT):
    _RANK[_outcome] = -1
_RANK[Outcome.PENDING] = 0
_RANK[Outcome.FILTERED], _RANK[Outcome.UNRELATED] = 2, 3


def selectors_of(plan: Plan) -> list[Selector]:
    """One per query."""
    return [Selector(plan, query) for query in plan.queries]


def shared_selectors(plan: Plan) -> tuple[Selector, ...]:
    """One per query; queries with equal inputs and keys, which select alike, have the same one."""
    kept = _SELECTORS.pop(id(plan.events), None)
    if kept is None or kept[0] is not plan.events or len(kept[1]) > max(_MOST_SELECTORS, 4 * len(plan.queries)):
        kept = plan.events, {}, {}
    _SELECTORS[id(plan.events)] = kept
    for key in list(_SELECTORS)[:-_MOST_EVENTS]:
        _SELECTORS.pop(key, None)
    _, known, alike = kept
    found = []
    for query in plan.queries:
        own = known.get(id(query))
        if own is None or own[0] is not query:
            text = repr((query.inputs, query.keys, query.nulls_fail)).encode("utf-8", "surrogatepass")
            digest = blake2b(text, digest_size=16).digest()
            if digest not in alike:
                alike[digest] = Selector(plan, query)
            own = known[id(query)] = query, alike[digest]
        found.append(own[1])
    return tuple(found)


_Kept = tuple[Sequence[EventType], dict[int, tuple[QueryPlan, Selector]], dict[bytes, Selector]]

_SELECTORS: dict[int, _Kept] = {}
"""By the identity of event types, which are kept beside: selectors by the identity of a query, and
by the hash of what decides what it selects. A change of a job's queries leaves most as they are."""

_MOST_EVENTS, _MOST_SELECTORS = 4, 20_000


def furthest_time(records: pa.Table, selectors: Iterable[Selector]) -> int:
    """The furthest source time of records, µs, as queries take it; NO_TIME = there is none."""
    if not len(records):
        return NO_TIME
    kinds = records.column("_kind").to_numpy().astype(np.int64)
    different = {(selector.time_from, selector.nulls_fail): selector for selector in selectors}
    times = [records.column("_source_time").to_numpy()]
    times += [selector.source_times(records, kinds) for selector in different.values()]
    return max(int(own.max()) for own in times)


_NO_HEARTBEATS = np.empty(0, np.int64)


def _is_selected(outcome: NDArray[np.int8]) -> NDArray[np.bool_]:
    """By row, whether the record is an event of an input or a heartbeat."""
    return (outcome == _USED) | (outcome == _HEARTBEAT)


# The end of an event whose start and end arrive as two records. A start edge and an end edge belong
# together if they agree in event type, start and payload. If several starts agree, an end edge
# closes the oldest open one.

_OF_EDGES = ("start", "end", "shape")
"""Fields that place an event in time: they differ between its two records."""


def interval_ends(
    table: pa.Table, plan: Plan, is_admitted: NDArray[np.bool_], released: Integers, first: int
) -> pa.Array:
    """The column `_end`, filled in where an admitted end edge closes a start edge that is held.

    table: rows in order of arrival
    is_admitted: by row, whether an end edge may close a start edge
    released: the step at which each event was released: its moment, µs, and the record, counted
        from `first`; NEVER = held
    first: the row of the call's first record
    """
    end = one_chunk(table.column("_end")).fill_null(NO_TIME)
    shape = one_chunk(table.column("_shape")).fill_null(int(Shape.POINT)).to_numpy()
    is_edge = (shape == Shape.START_EDGE) | ((shape == Shape.END_EDGE) & is_admitted)
    if not (shape[is_edge] == Shape.END_EDGE).any():
        return end
    moments = end.to_numpy().copy()
    kinds = table.column("_kind").to_numpy()
    for kind in np.unique(kinds[is_edge]):
        rows = np.flatnonzero(is_edge & (kinds == kind))
        numbers, count = keys.number_keys(_identity(table.take(pa.array(rows)), plan.events[kind]), len(rows))
        arrival = table.column("_arrival").to_numpy()
        is_end = shape[rows] == Shape.END_EDGE
        _close(rows, numbers, is_end, moments, released, arrival, first, np.full(count, -1, np.int64))
    return pa.array(moments)


def _identity(table: pa.Table, event: EventType) -> list[pa.Array]:
    """The columns in which both edges of an event agree; a null equals a null."""
    columns = [one_chunk(table.column("_source_time"))]
    if has_column(table, keys.INPUT.name):
        columns.append(one_chunk(table.column(keys.INPUT.name)))
    for field in event.fields:
        name = column_name(field.name, field.type)
        if field.name not in _OF_EDGES and has_column(table, name):
            column = one_chunk(table.column(name))
            if not pa.types.is_nested(column.type):
                columns += [column.is_null().cast(pa.int8()), _without_nulls(column)]
    return columns


def _without_nulls(column: pa.Array) -> pa.Array:
    if not column.null_count:
        return column
    codes = column.dictionary_encode().indices
    return codes.fill_null(-1).cast(pa.int64())


@kernel
def _close(
    rows: Integers,
    numbers: Integers,
    is_end: NDArray[np.bool_],
    end: Integers,
    released: Integers,
    arrival: Integers,
    first: int,
    oldest: Integers,
) -> None:
    """Stores each end with the oldest open start edge of its number.

    numbers: by entry of `rows`, the number of the edge's identity
    oldest: by number, the first entry of its queue of open start edges; -1 = empty
    """
    # The queues are linked lists over entries: `following` links an entry to the next, `newest` is
    # a queue's last.
    following = np.full(len(rows), -1, np.int64)
    newest = np.full(len(oldest), -1, np.int64)
    for at in range(len(rows)):
        number, row = numbers[at], rows[at]
        # A start edge goes to the end of its queue, unless an earlier call has closed it.
        if not is_end[at]:
            if end[row] != NO_TIME:
                continue
            if oldest[number] < 0:
                oldest[number] = at
            else:
                following[newest[number]] = at
            newest[number] = at
            continue
        # An end edge takes the first start edge that was still held when it arrived. Those before
        # it were released earlier, and later end edges arrive later still: so they can be dropped
        # from the queue for good.
        while oldest[number] >= 0:
            start = rows[oldest[number]]
            oldest[number] = following[oldest[number]]
            moment, cause = released[0, start], released[1, start]
            if moment > arrival[row] or (moment == arrival[row] and cause > row - first):
                end[start] = end[row]
                break
