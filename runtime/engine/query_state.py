"""One query at work: the fixed parts that its plan gives, and its state between calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.lookups import stored_lookups
from querylang.plan.model import EventType, Plan, QueryPlan
from runtime import input_policies
from runtime.admission import QueryClocks, Selector
from runtime.column_types import Integers, arrow_type, has_column, one_chunk
from runtime.columns.arrivals import SYSTEM_FIELDS, field_columns
from runtime.columns.expressions import lookup_fields
from runtime.columns.keys import INPUT, hash_keys, is_of_key, key_columns, key_identity
from runtime.columns.rows import ColdRows, Hashes, is_small, joined
from runtime.engine.event_marks import EVENT, NUMBER, RoleRecords, are_numbered
from runtime.engine.forgetting import LIFE_FIELDS, Forgetting, forgetting_of
from runtime.engine.snapshot import fitted, integer, refuse_nulls, refuse_other_waits, refuse_outside
from runtime.engine.stored_values import VALUES_VERSION, StoredValues, given_times, seen_values
from runtime.instants import NEVER, NO_TIME
from runtime.matching.choose import choose_matcher
from runtime.matching.interface import Matcher
from runtime.matching.trailing_waits import PendingWaits
from runtime.matching.windows import WindowColumns, window_columns


@dataclass(frozen=True, slots=True)
class QueryParts:
    """One query of a plan.

    selector: what the query makes of a record
    policies: the inputs' settings of time
    windows: the inputs' windows
    matcher: finds the query's pattern
    schema: the columns of events
    forgetting: when keys are forgotten
    admission: equal for queries that make the same of every record, and keep nothing beside it
    """

    plan: Plan
    query: QueryPlan
    selector: Selector
    policies: input_policies.PolicyColumns
    windows: WindowColumns
    matcher: Matcher
    schema: pa.Schema
    forgetting: Forgetting
    admission: str

    def keys_of(self, table: pa.Table) -> list[pa.Array]:
        """The key columns of events."""
        return key_columns(table, table.column("_kind").to_numpy(), self.plan, self.query)

    def inputs_of(self, table: pa.Table) -> NDArray[np.int16]:
        """By row of events that are stored, its input."""
        if has_column(table, INPUT.name):
            found: NDArray[np.int16] = table.column(INPUT.name).to_numpy()
            return found
        return self.selector.input_of(table.column("_kind").to_numpy())


def query_parts(plan: Plan, query: QueryPlan, matcher: str, admission: str | None = None) -> QueryParts:
    """The parts of a query; see `runtime.engine.engine.Engine` for `matcher`.

    admission: of `QueryParts`; None = it is made here
    """
    policies = input_policies.policy_columns(query)
    return QueryParts(
        plan=plan,
        query=query,
        selector=Selector(plan, query),
        policies=policies,
        windows=window_columns(query),
        matcher=choose_matcher(plan, query, matcher),
        schema=_event_schema(plan, query),
        forgetting=forgetting_of(query, policies),
        admission=_admission(query, plan.events) if admission is None else admission,
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was made for plans with these event types.

    parts: by the identity of their query, which they hold
    """

    events: tuple[EventType, ...]
    parts: dict[int, QueryParts]


_KEPT: dict[tuple[int, str], _Kept] = {}
"""By the identity of the event types, and the matcher that was wanted; the last used are the last.

Parts never change. A job makes an engine per bucket and micro-batch, and a change of its queries
leaves most of them as they are.
"""

_MOST_EVENTS, _MOST_PARTS = 4, 20_000


def all_parts(plan: Plan, matcher: str) -> list[QueryParts]:
    """The parts of all queries; what queries with the same admission have alike is made once."""
    kept = _KEPT.pop((id(plan.events), matcher), None)
    most = max(_MOST_PARTS, 2 * len(plan.queries))
    if kept is None or kept.events is not plan.events or len(kept.parts) > most:
        kept = _Kept(plan.events, {})
    _KEPT[id(plan.events), matcher] = kept
    for key in list(_KEPT)[:-_MOST_EVENTS]:
        _KEPT.pop(key, None)
    found = [kept.parts.get(id(query)) for query in plan.queries]
    if len(found) > 1:
        found = [_comparable(parts, kept) for parts in found]
    first = {parts.admission: parts for parts in reversed(found) if parts is not None}
    return [
        parts or _new_parts(plan, query, matcher, first, kept) for query, parts in zip(plan.queries, found, strict=True)
    ]


_UNKNOWN = ""
"""The admission of a query that has only been alone so far."""


def _comparable(parts: QueryParts | None, kept: _Kept) -> QueryParts | None:
    """The same parts, with an admission that can be compared with those of others."""
    if parts is None or parts.admission != _UNKNOWN:
        return parts
    kept.parts[id(parts.query)] = replace(parts, admission=_admission(parts.query, kept.events))
    return kept.parts[id(parts.query)]


def _new_parts(plan: Plan, query: QueryPlan, matcher: str, first: dict[str, QueryParts], kept: _Kept) -> QueryParts:
    """The parts of a query; `first`: by admission those of the first query that has it."""
    is_alone = len(plan.queries) == 1  # then none is compared with it: text of long lists is long
    admission = _UNKNOWN if is_alone else _admission(query, plan.events)
    like = first.get(admission)
    if like is None:
        parts = query_parts(plan, query, matcher, admission)
        first[parts.admission] = parts
    else:
        own = choose_matcher(plan, query, matcher)
        parts = replace(like, query=query, windows=window_columns(query), matcher=own)
    kept.parts[id(query)] = parts
    return parts


def _admission(query: QueryPlan, events: Sequence[EventType]) -> str:
    # Waits, skipped events and times of matches are stored with the events.
    has_own = query.trailing is not None or query.skip is not None or query.at_most is not None
    own = query.title if has_own else ""
    looks_up = (stored_lookups(query, events), query.tables) if query.tables else ()
    return repr((query.inputs, query.keys, query.forget_keys, query.nulls_fail, are_numbered(query), own, looks_up))


_OF_CALLS = ("_text", "_place")
"""System columns that mean nothing once the records of a call are in order."""


def _event_schema(plan: Plan, query: QueryPlan) -> pa.Schema:
    """System columns, and the fields of the event types that the query reads."""
    used = {item.event for item in query.inputs}
    used |= {item.heartbeat.event for item in query.inputs if item.heartbeat is not None}
    system = [field for field in SYSTEM_FIELDS if field.name not in _OF_CALLS]
    system += [pa.field("_adjusted", pa.int8())] if input_policies.adjusts(query) else []
    system += [pa.field("_skipped", pa.bool_())] if query.skip is not None else []
    system += [pa.field("_shape", pa.int8()), pa.field("_end", pa.int64())] if input_policies.has_ends(query) else []
    system += [NUMBER] if are_numbered(query) else []
    system += [INPUT, EVENT] if query.shared_types else []
    return pa.schema([*system, *_fields_of(plan, plan.events, frozenset(used)), *lookup_fields(plan, query)])


_FIELDS: dict[tuple[int, frozenset[str]], tuple[Sequence[EventType], list[pa.Field]]] = {}
"""By the identity of event types, which are kept beside, and names of some: their columns."""

_MOST_FIELDS = 512


def _fields_of(plan: Plan, events: Sequence[EventType], names: frozenset[str]) -> list[pa.Field]:
    """The columns of these event types, which most of a thousand queries share with others."""
    known = _FIELDS.get((id(events), names))
    if known is None:
        if len(_FIELDS) >= _MOST_FIELDS:
            _FIELDS.clear()
        columns = field_columns(event for event in events if event.name in names)
        known = events, [pa.field(name, arrow_type(type_, plan)) for name, type_ in columns.items()]
        _FIELDS[id(events), names] = known
    return known[1]


# Key state of one query between calls: stored events and bounds, split into hot keys and cold
# keys. If a batch is small relative to the state, only its keys are loaded from the cold store
# (`runtime.columns.rows`), and those with an expired timer. Such a batch costs what its own keys
# cost.

COUNTED = 4096
"""Rows. Keys of more than these are estimated from a sample."""

SAMPLE = 16
"""Of so many keys one is counted."""


class KeyState:
    """Events and bounds of all keys.

    events: of hot keys, released and pending ones
    bounds: of hot keys, the timelines that are ahead of the clock
    no_bounds: the same table without rows
    """

    def __init__(
        self, events: pa.Table, bounds: pa.Table, keys_of: Callable[[pa.Table], list[pa.Array]], *, has_cold_keys: bool
    ) -> None:
        """State without keys.

        events, bounds: empty tables
        keys_of: gives the key columns of events
        has_cold_keys: whether keys may be cold
        """
        self.events, self.bounds, self.no_bounds = events, bounds, bounds
        self._timers = self._bound_timers = np.empty(0, np.int64)
        self._cold_events, self._cold_bounds = ColdRows(events), ColdRows(bounds)
        self._keys_of, self._has_cold_keys = keys_of, has_cold_keys
        self._most = 0

    def load(self, new: pa.Table, limit: int, *, everything: bool = False) -> None:
        """Loads the keys of the new records and those with a timer up to `limit`.

        The other keys become cold, but not if the batch is large, if a record has no key and so
        concerns all keys, or if all timers run. Only hot keys are evicted. So all keys are also
        loaded once the state has doubled; this limits how many expired events are stored.
        """
        hot, cold = len(self.events), len(self._cold_events)
        stored = hot + cold
        if everything or not self._has_cold_keys or limit >= NEVER or not is_small(len(new), stored):
            self._load_all()
            return
        keys = self._keys_of(new)
        if not cold:
            self._most = 2 * stored
        if stored > self._most or any(column.null_count for column in keys):
            self._load_all()
            return
        if hot:
            self._cold_events.add(self.events, hash_keys(self._keys_of(self.events)), self._timers)
        if len(self.bounds):
            self._cold_bounds.add(self.bounds, self._hashes(self.bounds), self._bound_timers)
        expired = self._cold_events.expired_keys(limit), self._cold_bounds.expired_keys(limit)
        wanted = np.unique(np.concatenate([hash_keys(keys), *expired]))
        self.events, self.bounds = self._cold_events.take(wanted), self._cold_bounds.take(wanted)

    def _load_all(self) -> None:
        if self.has_cold:
            self.events = joined([self.events, self._cold_events.take_all()])
            self.bounds = joined([self.bounds, self._cold_bounds.take_all()])

    def _hashes(self, bounds: pa.Table) -> Hashes:
        keys = [name for name in bounds.column_names if name.startswith("key")]
        return hash_keys([bounds.column(name).combine_chunks() for name in keys])

    def store(self, events: pa.Table, bounds: pa.Table, timers: Integers, bound_timers: Integers) -> None:
        """Replaces the state of the hot keys.

        timers: by row of `events`, when arrival time alone does something to its key, µs; NEVER =
            it does not
        bound_timers: the same by row of `bounds`
        """
        self.events, self.bounds = events, bounds
        self._timers, self._bound_timers = timers, bound_timers

    def hot(self) -> tuple[pa.Table, pa.Table, Integers, Integers]:
        """What `store` gets, of the hot keys."""
        return self.events, self.bounds, self._timers, self._bound_timers

    def whole(self) -> tuple[pa.Table, pa.Table]:
        """Events and bounds of all keys, for `restore`."""
        self._load_all()
        return self.events, self.bounds

    def add(self, events: pa.Table, bounds: pa.Table) -> None:
        """Adds other keys. Each is taken to have an expired timer."""
        timers = np.append(self._timers, np.full(len(events), NO_TIME))
        bound_timers = np.append(self._bound_timers, np.full(len(bounds), NO_TIME))
        self.store(joined([self.events, events]), joined([self.bounds, bounds]), timers, bound_timers)

    def restore(self, events: pa.Table, bounds: pa.Table) -> None:
        """Replaces the whole state by a saved one. Timers are not saved: each key is taken to have
        an expired one."""
        self.store(events, bounds, np.full(len(events), NO_TIME), np.full(len(bounds), NO_TIME))

    def numbers_of(self, column: str) -> Integers:
        """The values of a column of integers, of the events of all keys."""
        return np.concatenate([self.events.column(column).to_numpy(), *self._cold_events.numbers_of(column)])

    @property
    def has_cold(self) -> bool:
        """Whether some keys are cold."""
        return len(self._cold_events) > 0 or len(self._cold_bounds) > 0

    @property
    def has_bounds(self) -> bool:
        """Whether some key has a bound."""
        return len(self.bounds) > 0 or len(self._cold_bounds) > 0

    @property
    def next_cold_timer(self) -> int:
        """The earliest timer of cold keys, µs; NEVER if there is none."""
        return min(self._cold_events.next_timer, self._cold_bounds.next_timer)

    def bounds_of(self, key: Sequence[Any]) -> pa.Table:
        """Bounds of hot keys and of this one."""
        if not len(self._cold_bounds):
            return self.bounds
        types = [field.type for field in self.bounds.schema if field.name.startswith("key")]
        wanted = hash_keys([pa.array([value], type_) for value, type_ in zip(key, types, strict=True)])[0]
        return joined([self.bounds, self._cold_bounds.rows_of(wanted)])

    def keys(self) -> int:
        """The number of hot keys; of many rows it is estimated, so that counting costs little."""
        tables = [table for table in (self.events, self.bounds) if len(table)]
        if not tables or not self._keys_of(self.events):
            return min(1, len(tables))
        hashes = [self._hashes(self.bounds)] if len(self.bounds) else []
        if len(self.events):
            hashes.append(hash_keys(self._keys_of(self.events)))
        found = np.concatenate(hashes)
        if len(found) <= COUNTED:
            return len(np.unique(found))
        # hashes are spread evenly, so those that end alike have an equal share of the keys
        return len(np.unique(found[found % np.uint64(SAMPLE) == 0])) * SAMPLE

    def __len__(self) -> int:
        return len(self.events) + len(self._cold_events)


STATE_FIELDS = (pa.field("_time", pa.int64()), pa.field("_ripe", pa.int64()), pa.field("_pending", pa.bool_()))
"""Columns that stored events have beside their own.

_time: when the event happened, µs
_ripe: when the reorder buffer of a delayed event ends, µs; NO_TIME = not delayed
_pending: whether it is pending
"""


CUT_OFF = -1
"""In place of an input, in the bounds of a key: the bound is how many blocks in a row were cut
off."""

ALIVE = -2
"""In place of an input, in the bounds of a key: the key is stored although it has no events."""


SEEN = "seen"
"""Begins the names of the tables of `QueryState.seen`; the number of the input follows."""

GIVEN = "given"
"""The name of the table of `QueryState.given`."""

RECORDS = "records"
"""The name of the table of `QueryState.roles`."""

_MAY_BE_NULL = ("_text", "_adjusted", "_skipped", "_number", "_shape", "_end")


_BOUND_FIELDS = (pa.field("input", pa.int32()), pa.field("bound", pa.int64()))


@lru_cache(maxsize=256)
def _empty(fields: tuple[pa.Field, ...]) -> pa.Table:
    """A table without rows; most queries of a program have the same fields."""
    return pa.schema(fields).empty_table()


class QueryState:
    """What is kept of one query.

    keys: events and bounds per key
    everywhere: by input, the bound by heartbeats for every key, µs
    waits: pending matches
    clocks: the clocks that keys share
    seen: by input with `new by`, the values of its events
    given: the times of matches that were given (`at most`); None = all are
    roles: records that are events of several inputs, of which not all rows are used yet
    hot_timer: the earliest timer of hot keys, µs; NEVER = none
    hot_release: the earliest one that releases something
    """

    def __init__(self, parts: QueryParts) -> None:
        query = parts.query
        lives = LIFE_FIELDS if parts.forgetting.is_on else ()
        events = _empty((*parts.schema, *STATE_FIELDS, *lives))
        keys = [pa.field(f"key{place}", key.type) for place, key in enumerate(parts.keys_of(events))]
        bounds = _empty((*keys, *_BOUND_FIELDS, *lives))
        has_cold_keys = bool(query.keys) and query.trailing is None and not input_policies.shares_clock(query)
        self._parts = parts
        self.keys = KeyState(events, bounds, parts.keys_of, has_cold_keys=has_cold_keys)
        self.everywhere = np.full(len(query.inputs), NO_TIME, np.int64)
        self.waits = PendingWaits(query, parts.schema)
        self.clocks = QueryClocks(parts.plan, query)
        self.seen = seen_values(parts.plan, query)
        self.given = given_times(parts.plan, query)
        self.roles = RoleRecords()
        self.hot_timer = self.hot_release = NEVER

    @property
    def next_timer(self) -> int:
        """The earliest timer of all keys, µs; NEVER = none."""
        return min(self.hot_timer, self.keys.next_cold_timer)

    @property
    def stored_events(self) -> int:
        """How many events are stored; those of cold keys may have expired."""
        return len(self.keys) + len(self.waits)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that could expire: no event, no bound of a key, no wait."""
        return not len(self.keys) and not len(self.keys.bounds) and not self.keys.has_cold and not len(self.waits)

    @property
    def has_cut_off(self) -> bool:
        """Whether blocks of some hot key were cut off by a limit."""
        return CUT_OFF in self.keys.bounds.column("input").to_pylist()

    @property
    def is_moved_everywhere(self) -> bool:
        """Whether a heartbeat for every key has advanced an input."""
        return bool((self.everywhere != NO_TIME).any())

    def definitive(self, key: Sequence[Any], clock: int) -> int:
        """The query's definitive time for a key at `clock`."""
        bounds = np.full((1, len(self._parts.query.inputs)), NO_TIME, np.int64)
        own = self.keys.bounds_of(key)
        if len(own) and len(key):
            columns = [one_chunk(own.column(f"key{place}")) for place in range(len(key))]
            values = [pa.scalar(value, column.type) for value, column in zip(key, columns, strict=True)]
            own = own.filter(pa.array(is_of_key(columns, values)))
        if len(own):
            own = own.filter(pc.greater_equal(own.column("input"), 0))
            bounds[0, own.column("input").to_numpy()] = own.column("bound").to_numpy()
        by_key = input_policies.definitive_times(bounds, self.everywhere, self._parts.policies.delay, clock)
        return min(int(by_key[0]), self.clocks.definitive_of(key, clock))

    def evict_values(self, clock: int, *, everything: bool = False) -> None:
        """Removes values that have expired at `clock`, µs, as `StoredValues.evict` does."""
        for values in self.values().values():
            values.evict(lambda: self._reached(clock), everything=everything)

    def _reached(self, clock: int) -> int:
        """The moment before which no event of any key can be released any more, µs."""
        query = self._parts.query
        if clock == NO_TIME:
            return NO_TIME
        bounds = np.full((1, len(query.inputs)), NO_TIME, np.int64)
        least = int(input_policies.definitive_times(bounds, self.everywhere, self._parts.policies.delay, clock)[0])
        if not input_policies.clock_inputs(query):
            return least
        if all(input_policies.key_places(query, inputs) is None for inputs in input_policies.clock_inputs(query)):
            return min(least, self.clocks.definitive_of((None,) * len(query.keys), clock))
        # A substream that is not stored begins as far behind the clock as it may be, or where
        # heartbeats for all of them have reached.
        delays = [
            item.policy.max_delay
            for item in query.inputs
            if input_policies.is_clocked(item) and item.policy is not None
        ]
        if None not in delays:
            return min(least, clock - max(delay for delay in delays if delay is not None))
        bounds_known = self.clocks.timelines().column("bound").fill_null(NO_TIME).to_numpy()
        common = [int(header["common"]) for header in self.clocks.header()]
        return min([least, int(bounds_known.min(initial=NEVER)), *(bound for bound in common if bound != NO_TIME)])

    def values(self) -> dict[str, StoredValues]:
        """By the name of its table in a snapshot, what clauses store of values."""
        seen = {f"{SEEN}{index}": values for index, values in self.seen.items()}
        return seen if self.given is None else seen | {GIVEN: self.given}

    def snapshot(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Plain data, and tables by name; cold keys have to be loaded before."""
        assert not self.keys.has_cold, "a snapshot holds all keys"
        waits = {} if self._parts.query.trailing is None else {"waits": self.waits.members}
        tables = {"kept": self.keys.events, "bounds": self.keys.bounds} | waits | self.clocks.tables()
        tables |= {name: values.table() for name, values in self.values().items()}
        header = {
            **identity_of(self._parts),
            "everywhere": self.everywhere.tolist(),
            "next_due": self.next_timer,
            "next_release": self.hot_release,
            "clocks": self.clocks.header(),
        }
        if self._parts.query.remembers:
            header["values"] = VALUES_VERSION
        if self._parts.query.shared_types:
            header["events"] = self.roles.first
            tables[RECORDS] = self.roles.table()
        return header, tables

    def restore(self, header: Mapping[str, Any], tables: dict[str, pa.Table]) -> None:
        """Replaces the state by a snapshot; raises ValueError if its inputs or keys are others."""
        query, everywhere = self._parts.query, fitting_header(self._parts, header)
        self.keys.restore(*self.fitting(tables["kept"], tables["bounds"]))
        if query.trailing is not None:
            waits = self._events(tables["waits"], self.waits.members.schema, "waits")
            refuse_other_waits(waits, len(query.terms))
            self.waits.restore(waits)
        self.clocks.restore(header.get("clocks", []), tables)  # older states have none
        if header.get("values", VALUES_VERSION) != VALUES_VERSION:
            raise ValueError(f"values of version {header['values']}; this release reads {VALUES_VERSION}")
        for name, values in self.values().items():
            values.restore(tables[name], name)
        if query.shared_types:
            self.roles.restore(header["events"], tables[RECORDS])
        self.everywhere = everywhere
        self.hot_timer, self.hot_release = saved_timers(header)

    def fitting(self, kept: pa.Table, bounds: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Saved events and bounds, of any number of queries that are alike; ValueError for what
        cannot be."""
        bounds = fitted(bounds, self.keys.bounds.schema, "bounds")
        own = [field.name for field in bounds.schema if not field.name.startswith("key")]
        refuse_nulls(bounds, own, "bounds")
        refuse_outside(bounds, "input", ALIVE, len(self._parts.query.inputs) - 1, "bounds")
        return self._events(kept, self.keys.events.schema, "kept"), bounds

    def _events(self, table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
        """A saved table of events, with no number that the kernels could not bear."""
        events = fitted(table, schema, name)
        own = [field.name for field in schema if field.name.startswith("_") and field.name not in _MAY_BE_NULL]
        refuse_nulls(events, own, name)
        refuse_outside(events, "_kind", 0, len(self._parts.plan.events) - 1, name)
        if has_column(events, INPUT.name):
            refuse_outside(events, INPUT.name, 0, len(self._parts.query.inputs) - 1, name)
        if (self._parts.inputs_of(events) < 0).any():
            raise ValueError(f"'{name}' has an event that is not of an input")
        if any(key.null_count for key in self._parts.keys_of(events)):
            raise ValueError(f"'{name}' has an event without a key")
        return events


def identity_of(parts: QueryParts) -> dict[str, Any]:
    """What a snapshot and a query have to agree in."""
    query = parts.query
    forgets = {"forget_keys": query.forget_keys} if parts.forgetting.is_on else {}
    shared = query.shared_types
    names = [f"{item.event} as {item.role}" if item.event in shared else item.event for item in query.inputs]
    return {"keys": key_identity(query), "inputs": names, **forgets}


def fitting_header(parts: QueryParts, header: Mapping[str, Any]) -> NDArray[np.int64]:
    """`QueryState.everywhere` of a snapshot; ValueError if its inputs or keys are others."""
    for part, now in identity_of(parts).items():
        if header.get(part) != now:
            raise ValueError(f"query {parts.query.title!r} had the {part} {header.get(part)}, now {now}")
    everywhere = np.array(header["everywhere"], np.int64)
    if everywhere.shape != (len(parts.query.inputs),):
        raise ValueError(
            f"query {parts.query.title!r} has {everywhere.size} bounds of {len(parts.query.inputs)} inputs"
        )
    return everywhere


def saved_timers(header: Mapping[str, Any]) -> tuple[int, int]:
    """`QueryState.hot_timer` and `hot_release` of a snapshot."""
    timer = integer(header["next_due"])
    return timer, integer(header.get("next_release", timer))


def has_events_only(query: QueryPlan) -> bool:
    """Whether nothing is kept of a query but events and bounds, by key."""
    is_more = query.trailing is not None or query.remembers or query.shared_types
    return not is_more and not input_policies.clock_inputs(query)


@dataclass(frozen=True, slots=True)
class Saved:
    """The state of a query as plain data: what `QueryState.snapshot` gives."""

    header: Mapping[str, Any]
    tables: dict[str, pa.Table]

    def is_like(self, other: Saved) -> bool:
        """Whether both have the same content."""
        if self is other:
            return True
        own, others = self.tables, other.tables
        return (
            self.header == other.header
            and own.keys() == others.keys()
            and all(map(_are_equal, own.values(), others.values()))
        )

    @property
    def is_private(self) -> bool:
        """Whether it has more than what admission stores: blocks that were cut off."""
        bounds = self.tables["bounds"]
        return bool(len(bounds) and pc.any(pc.equal(bounds.column("input"), CUT_OFF)).as_py())


def _are_equal(one: pa.Table, other: pa.Table) -> bool:
    return len(one) == len(other) and one.equals(other)
