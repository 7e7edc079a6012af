"""Key state of one query between calls: stored events and bounds, split into hot keys and cold
keys.

If a batch is small relative to the state, only its keys are loaded from the cold store
(`runtime.columns.rows`), and those with an expired timer. Such a batch costs what its own keys
cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.columns.keys import hash_keys
from runtime.columns.rows import ColdRows, Hashes, is_small, joined
from runtime.instants import NEVER, NO_TIME
from runtime.number_arrays import Integers

COUNTED = 4096
"""Rows. Keys of more than these are estimated from a sample."""

SAMPLE = 16
"""Of so many keys one is counted."""


class KeyState:
    """Events and bounds of all keys.

    events: of hot keys, released and pending ones
    bounds: of hot keys, the timelines that are ahead of the clock
    """

    def __init__(
        self, events: pa.Table, bounds: pa.Table, keys_of: Callable[[pa.Table], list[pa.Array]], *, has_cold_keys: bool
    ) -> None:
        """State without keys.

        events, bounds: empty tables
        keys_of: gives the key columns of events
        has_cold_keys: whether keys may be cold
        """
        self.events, self.bounds = events, bounds
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

    def restore(self, events: pa.Table, bounds: pa.Table) -> None:
        """Replaces the whole state by a saved one. Timers are not saved: each key is taken to have
        an expired one."""
        self.store(events, bounds, np.full(len(events), NO_TIME), np.full(len(bounds), NO_TIME))

    @property
    def has_cold(self) -> bool:
        """Whether some keys are cold."""
        return len(self._cold_events) > 0 or len(self._cold_bounds) > 0

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
