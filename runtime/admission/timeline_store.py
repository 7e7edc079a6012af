"""The stored timelines of a shared clock, one row each; those of cold keys are in a cold store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.admission.shared_clock_kernel import Timelines
from runtime.admission.timeline_kinds import NewRecords
from runtime.arrow_types import one_chunk
from runtime.columns.keys import hash_keys, is_of_key
from runtime.columns.rows import ColdRows, is_small, joined
from runtime.instants import NEVER

COLUMNS = {
    "newest": "newest",
    "bound": "bound",
    "counted": "counted",
    "since": "since",
    "last_arrival": "heard",
}
"""What is stored of a timeline: the field of `Timelines`, and its column in saved state."""


class TimelineStore:
    """Timelines that the latest call concerned are in `hot`, the others in a cold store.

    places: where the fields of substreams are among the keys of the query; empty = nothing is ever
    cold
    """

    def __init__(self, fields: Sequence[tuple[str, pa.DataType]], places: tuple[int, ...]) -> None:
        self._parts, self._places = [pa.field(name, type_) for name, type_ in fields[1:]], places
        columns = [*fields, *((name, pa.int64()) for name in COLUMNS.values())]
        self.hot = pa.schema(columns).empty_table()
        self._cold, self._most = ColdRows(self.hot), 0

    def load(self, new: NewRecords) -> None:
        """Makes the timelines of the call's keys hot; all of them if the call is large."""
        if not self._places:
            return
        total = len(self.hot) + len(self._cold)
        if not len(self._cold):
            self._most = 2 * total
        # Only hot timelines are evicted. Once their number has doubled, all are loaded, so that
        # none stays for good.
        if not is_small(len(new.time), total) or total > self._most:
            self.load_all()
            return
        hashes = hash_keys([one_chunk(self.hot.column(part.name)) for part in self._parts])
        self._cold.add(self.hot, hashes, np.full(len(hashes), NEVER))
        self.hot = self._cold.take(np.unique(hash_keys([new.keys[place] for place in self._places])))

    def load_all(self) -> pa.Table:
        """Loads all timelines, and returns them."""
        if len(self._cold):
            self.hot = joined([self.hot, self._cold.take_all()])
        return self.hot

    def near(self, key: Sequence[Any]) -> pa.Table:
        """The timelines among which are all that a key depends on; none is loaded."""
        if not self._places or not len(self._cold):
            return self.hot
        values = [pa.array([key[place]], part.type) for place, part in zip(self._places, self._parts, strict=True)]
        return joined([self.hot, self._cold.rows_of(hash_keys(values)[0])])

    def save(self, identities: pa.Table, timelines: Timelines) -> None:
        """Stores the timelines of a call as `hot`."""
        self.hot = identities
        for field, name in COLUMNS.items():
            self.hot = self.hot.append_column(name, pa.array(getattr(timelines, field)))

    def forget(self, key: Sequence[pa.Scalar]) -> None:
        """Removes the timelines that only this key has: those of a substream of all its parts."""
        if set(self._places) != set(range(len(key))):
            return
        timelines = self.load_all()
        columns = [one_chunk(timelines.column(part.name)) for part in self._parts]
        if len(timelines):
            is_own = is_of_key(columns, [key[place] for place in self._places])
            self.hot = timelines.filter(pa.array(~is_own))

    def evict(self, until: int) -> None:
        """Removes hot timelines whose bound is at most `until`, µs."""
        is_ahead = self.hot.column("bound").to_numpy() > until
        if not is_ahead.all():
            self.hot = self.hot.filter(pa.array(is_ahead))

    def restore(self, table: pa.Table) -> None:
        """Replaces all timelines by those of saved state; ValueError if they cannot be."""
        restored = table.cast(self.hot.schema)
        own = [name for name in restored.column_names if name not in COLUMNS.values()]
        if any(column.null_count for column in restored.columns):
            raise ValueError("a timeline has no source, no key or no time")
        if own and len(restored.group_by(own).aggregate([])) < len(restored):
            raise ValueError("there are two timelines of one source and key")
        self.hot = restored
