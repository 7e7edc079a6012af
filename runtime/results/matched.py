"""Matches before they are a table: columns of times, and the numbers of the members' rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runtime.columns.arrivals import AT_THE_END
from runtime.results.match_order import match_order

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Matched:
    """Matches, one entry each; times in µs.

    latest: the row of its latest event
    members: (match, term), the rows of its members; -1 = unset
    time: the time of the match
    definitive: the watermark of the query and key when it was found
    emitted: the moment at which it was found
    waited: what its release waited for (`Waited`)
    step: the record that caused it, -1 = a timer
    rank: orders the matches of one step and key
    times: (match, term), when its members happened
    source_times: (match, term), the times that their sources gave them, as the query takes them
    arrivals: (match, term), when they arrived, by the clock
    reasons: (match, term), why the times of its members were adjusted; without terms if none can be
    selected: of a `find every`, a column per select
    """

    latest: Integers
    members: Integers
    time: Integers
    definitive: Integers
    emitted: Integers
    waited: NDArray[np.int8]
    step: Integers
    rank: Integers
    times: Integers
    source_times: Integers
    arrivals: Integers
    reasons: NDArray[np.int8]
    selected: tuple[pa.Array, ...] = ()

    _COLUMNS: ClassVar = (
        *("latest", "members", "time", "definitive", "emitted", "waited", "step", "rank"),
        *("times", "source_times", "arrivals", "reasons"),
    )

    @staticmethod
    def joined(parts: Sequence[Matched]) -> Matched:
        """The matches of all parts, of at least one."""
        if len(parts) == 1:
            return parts[0]
        columns = {
            name: np.concatenate([getattr(part, name).T for part in parts], axis=-1).T for name in Matched._COLUMNS
        }
        selected = zip(*(part.selected for part in parts), strict=True)
        return Matched(**columns, selected=tuple(pa.concat_arrays(columns) for columns in selected))

    def order(self, keys: Sequence[pa.Array]) -> Integers:
        """The matches' indexes in the order of `match_order`; `keys`: the key columns, by row."""
        return match_order(
            self.emitted, self.step, self.time, self.rank, lambda matches: taken(keys, self.latest[matches])
        )

    def by_step(self, keys: Sequence[pa.Array]) -> Matched:
        """The same in the order of `match_order`; `keys`: the key columns, by row."""
        order = self.order(keys)
        return self if (order[1:] > order[:-1]).all() else self.take(order)

    def take(self, matches: Integers) -> Matched:
        """The matches with these indexes, in this order."""
        columns = {name: _taken(getattr(self, name), matches) for name in self._COLUMNS}
        return Matched(**columns, selected=tuple(taken(self.selected, matches)))

    def part(self, matches: slice) -> Matched:
        """The matches of a range, without a copy."""
        columns = {name: getattr(self, name)[matches] for name in self._COLUMNS}
        return Matched(**columns, selected=tuple(column[matches] for column in self.selected))

    def with_rows(self, rows: Integers) -> Matched:
        """The same with other numbers of rows; `rows`: by row, its new number."""
        members = np.where(self.members < 0, -1, rows[self.members.T].T)
        return replace(self, latest=rows[self.latest], members=members)

    def from_row(self, first: int) -> Matched:
        """The same with numbers of rows that count from this one."""
        if not first:
            return self
        members = np.where(self.members.T < 0, -1, self.members.T - first).T
        return replace(self, latest=self.latest - first, members=members)

    def rows(self) -> tuple[int, int]:
        """The first row of a latest event or member, and the one behind the last; there is one."""
        members = self.members[self.members >= 0] if len(self.members) and self.members.min() < 0 else self.members
        first = min(self.latest.min(), members.min(initial=self.latest[0]))
        return int(first), int(max(self.latest.max(), members.max(initial=self.latest[0]))) + 1

    def with_steps(self, records: Integers, end: int) -> Matched:
        """The same with other numbers of steps.

        records: by record, its new number
        end: is added to the number of the end of the input
        """
        is_record = (self.step >= 0) & (self.step < AT_THE_END)
        moved = np.where(self.step < AT_THE_END, self.step, self.step + end)
        if len(records):
            moved = np.where(is_record, records[np.where(is_record, self.step, 0)], moved)
        return replace(self, step=moved)

    def __len__(self) -> int:
        return len(self.latest)


def taken(columns: Sequence[pa.Array], rows: Integers) -> list[pa.Array]:
    """These rows of all columns."""
    chosen = pa.array(rows)
    return [column.take(chosen) for column in columns]


def _taken(values: NDArray[Any], matches: Integers) -> NDArray[Any]:
    """The values of these matches; those of a term stay neighbours in memory."""
    if values.ndim == 1:
        return values.take(matches)
    return np.array([term.take(matches) for term in values.T], values.dtype).reshape(-1, len(matches)).T
