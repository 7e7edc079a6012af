"""What a query remembers of its keys between calls: events, and how far timelines have come.

Takes what a call leaves; gives, at the next one, what belongs to the keys that it concerns. A call that is small beside all that is
remembered finds its keys by a hash and leaves the others alone on a shelf of sorted runs: it costs what its own
keys cost, and a scan of a nanosecond an event when time may have done something to one. Two keys of one hash are only fetched together; nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.columns.cold_rows import Hashes, Integers, Shelf, is_small, joined
from runtime.columns.keys import hash_keys
from runtime.instants import NEVER, NO_TIME


class Remembered:
    """`kept`: events, `bounds`: timelines that are ahead of the clock, of the keys at hand; their columns are those of the empty tables
    given. `keys_of`: the key columns of events; `may_rest`: whether keys can be left alone at all."""

    def __init__(
        self, kept: pa.Table, bounds: pa.Table, keys_of: Callable[[pa.Table], list[pa.Array]], *, may_rest: bool
    ) -> None:
        self.kept, self.bounds = kept, bounds
        self._due = np.empty(0, np.int64)
        self._events, self._timelines = Shelf(kept), Shelf(bounds)
        self._keys_of, self._may_rest = keys_of, may_rest
        self._most = 0

    def recall(self, new: pa.Table, limit: int, *, everything: bool = False) -> None:
        """Brings to hand what is remembered of the keys of `new`, and of those to which time does something until `limit`; or everything.

        A record without a key concerns all keys; so does the end of time.
        """
        at_hand, resting = len(self.kept), len(self._events)
        total = at_hand + resting
        if everything or not self._may_rest or limit >= NEVER or not is_small(len(new), total):
            self._recall_all()
            return
        keys = self._keys_of(new)
        if not resting:
            self._most = 2 * total
        if total > self._most or any(column.null_count for column in keys):
            self._recall_all()
            return
        if at_hand:
            self._events.put(self.kept, hash_keys(self._keys_of(self.kept)), self._due)
        if len(self.bounds):
            self._timelines.put(self.bounds, self._hashes(self.bounds), np.full(len(self.bounds), NEVER))
        wanted = np.unique(np.concatenate([hash_keys(keys), self._events.due(limit)]))
        self.kept, self.bounds = self._events.fetch(wanted), self._timelines.fetch(wanted)

    def _recall_all(self) -> None:
        """Brings everything to hand."""
        if self.is_resting:
            self.kept = joined([self.kept, self._events.fetch_all()])
            self.bounds = joined([self.bounds, self._timelines.fetch_all()])

    def _hashes(self, bounds: pa.Table) -> Hashes:
        keys = [name for name in bounds.column_names if name.startswith("key")]
        return hash_keys([bounds.column(name).combine_chunks() for name in keys])

    def remember(self, kept: pa.Table, bounds: pa.Table, due: Integers) -> None:
        """What is left of the keys at hand; `due`, by row of `kept`: when time does something to its key."""
        self.kept, self.bounds, self._due = kept, bounds, due

    @property
    def is_resting(self) -> bool:
        """Whether anything is not at hand."""
        return len(self._events) > 0 or len(self._timelines) > 0

    @property
    def next_due(self) -> int:
        """When time does something to a key that is not at hand."""
        return self._events.next_due

    def restore(self, kept: pa.Table, bounds: pa.Table) -> None:
        """Goes on from these."""
        self.remember(kept, bounds, np.full(len(kept), NO_TIME))

    def bounds_of(self, key: Sequence[Any]) -> pa.Table:
        """Timelines among which all of the key are."""
        if not len(self._timelines):
            return self.bounds
        types = [field.type for field in self.bounds.schema if field.name.startswith("key")]
        wanted = hash_keys([pa.array([value], type_) for value, type_ in zip(key, types, strict=True)])[0]
        return joined([self.bounds, self._timelines.of(wanted)])

    def __len__(self) -> int:
        return len(self.kept) + len(self._events)
