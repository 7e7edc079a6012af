"""The state of one query between calls: key state, pending matches, shared clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runtime.admission.shared_clock import QueryClocks
from runtime.arrow_types import one_chunk
from runtime.columns.keys import key_identity, plain_columns
from runtime.engine.forgetting import LIFE_FIELDS
from runtime.engine.key_state import KeyState
from runtime.engine.query_parts import QueryParts
from runtime.engine.state_checks import fitted, integer, refuse_nulls, refuse_other_waits, refuse_outside
from runtime.instants import NEVER, NO_TIME
from runtime.matching.trailing_waits import PendingWaits
from runtime.policies.per_input import definitive_times, shares_clock

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


_MAY_BE_NULL = ("_text", "_adjusted", "_skipped", "_number", "_shape", "_end")


class QueryState:
    """What is kept of one query.

    keys: events and bounds per key
    everywhere: by input, the bound by heartbeats for every key, µs
    waits: pending matches
    clocks: the clocks that keys share
    hot_timer: the earliest timer of hot keys, µs; NEVER = none
    hot_release: the earliest one that releases something
    """

    def __init__(self, parts: QueryParts) -> None:
        query = parts.query
        lives = LIFE_FIELDS if parts.forgetting.is_on else ()
        events = pa.schema([*parts.schema, *STATE_FIELDS, *lives]).empty_table()
        own = {f"key{place}": key for place, key in enumerate(parts.keys_of(events))}
        own |= {"input": pa.array([], pa.int32()), "bound": pa.array([], pa.int64())}
        bounds = pa.table(own | {field.name: pa.array([], field.type) for field in lives})
        has_cold_keys = bool(query.keys) and query.trailing is None and not shares_clock(query)
        self._parts = parts
        self.keys = KeyState(events, bounds, parts.keys_of, has_cold_keys=has_cold_keys)
        self.everywhere = np.full(len(query.inputs), NO_TIME, np.int64)
        self.waits = PendingWaits(query, parts.schema)
        self.clocks = QueryClocks(parts.plan, query)
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
        for place, value in enumerate(key):
            column = one_chunk(own.column(f"key{place}"))
            sides = plain_columns([column]), plain_columns([pa.repeat(pa.scalar(value, column.type), len(column))])
            own = own.filter(reduce(pc.and_, map(pc.equal, *sides)))
        own = own.filter(pc.greater_equal(own.column("input"), 0))
        bounds[0, own.column("input").to_numpy()] = own.column("bound").to_numpy()
        by_key = definitive_times(bounds, self.everywhere, self._parts.policies.delay, clock)
        return min(int(by_key[0]), self.clocks.definitive_of(key, clock))

    def snapshot(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Plain data, and tables by name; cold keys have to be loaded before."""
        assert not self.keys.has_cold, "a snapshot holds all keys"
        waits = {} if self._parts.query.trailing is None else {"waits": self.waits.members}
        tables = {"kept": self.keys.events, "bounds": self.keys.bounds} | waits | self.clocks.tables()
        header = {
            **self._identity(),
            "everywhere": self.everywhere.tolist(),
            "next_due": self.next_timer,
            "next_release": self.hot_release,
            "clocks": self.clocks.header(),
        }
        return header, tables

    def restore(self, header: Mapping[str, Any], tables: dict[str, pa.Table]) -> None:
        """Replaces the state by a snapshot; raises ValueError if its inputs or keys are others."""
        for part, now in self._identity().items():
            if header.get(part) != now:
                raise ValueError(f"query {self._parts.query.title!r} had the {part} {header.get(part)}, now {now}")
        query = self._parts.query
        everywhere = np.array(header["everywhere"], np.int64)
        if everywhere.shape != self.everywhere.shape:
            raise ValueError(f"query {query.title!r} has {everywhere.size} bounds of {len(query.inputs)} inputs")
        bounds = fitted(tables["bounds"], self.keys.bounds.schema, "bounds")
        own = [field.name for field in bounds.schema if not field.name.startswith("key")]
        refuse_nulls(bounds, own, "bounds")
        refuse_outside(bounds, "input", ALIVE, len(query.inputs) - 1, "bounds")
        self.keys.restore(self._events(tables["kept"], self.keys.events.schema, "kept"), bounds)
        if query.trailing is not None:
            waits = self._events(tables["waits"], self.waits.members.schema, "waits")
            refuse_other_waits(waits, len(query.terms))
            self.waits.restore(waits)
        self.clocks.restore(header.get("clocks", []), tables)  # older states have none
        self.everywhere = everywhere
        self.hot_timer = integer(header["next_due"])
        self.hot_release = integer(header.get("next_release", self.hot_timer))

    def _events(self, table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
        """A saved table of events, with no number that the kernels could not bear."""
        events = fitted(table, schema, name)
        own = [field.name for field in schema if field.name.startswith("_") and field.name not in _MAY_BE_NULL]
        refuse_nulls(events, own, name)
        refuse_outside(events, "_kind", 0, len(self._parts.plan.events) - 1, name)
        kinds = np.unique(events.column("_kind").to_numpy()).astype(np.int64)
        if (self._parts.selector.input_of(kinds) < 0).any():
            raise ValueError(f"'{name}' has an event that is not of an input")
        if any(key.null_count for key in self._parts.keys_of(events)):
            raise ValueError(f"'{name}' has an event without a key")
        return events

    def _identity(self) -> dict[str, Any]:
        """What a snapshot and the query have to agree in."""
        query = self._parts.query
        forgets = {"forget_keys": query.forget_keys} if self._parts.forgetting.is_on else {}
        return {"keys": key_identity(query), "inputs": [item.event for item in query.inputs], **forgets}
