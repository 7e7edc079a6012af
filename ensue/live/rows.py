"""The rows that are sent to open queries, as records: numbered on through all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.dataclass import dataclass, field
from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals, in_arrival_order
from runtime.reading import OFFSET, TYPE, ColumnNames, TableRecords, read_following
from runtime.replay import source_names

MOST_UNREAD = 1_000
"""So many rows wait at most until they are read."""

_MOST_ROWS = 50
"""A longer list is read at once."""

_LEAST, _GREATEST = -(2**63), 2**63

Shape = tuple[Any, tuple[str, ...], tuple[type, ...]]
"""What decides whether a row can be read: event type, names, types of values."""


MOST_RANGES = 1_000
"""Ranges of offsets that are stored of a partition; of more, the least become one."""

Ranges = tuple[tuple[int, int], ...]
"""First and last offset of each, ascending; they do not touch."""


@dataclass(slots=True)
class SentOffsets:
    """The offsets of the events that were sent, as columns of theirs say them.

    ranges: by source and partition
    """

    ranges: dict[tuple[str, int], Ranges] = field(default_factory=dict)

    def copy(self) -> SentOffsets:
        """The same, to be added to."""
        return SentOffsets(dict(self.ranges))

    def add(self, part: TableRecords) -> None:
        """Add the offsets of events. Raises InputError for one that is there: it names a match."""
        arrivals = part.arrivals
        table = arrivals.table.select(["_source", "_partition", "_offset"])
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        new: dict[tuple[str, int], dict[int, int]] = {}
        for (source, partition, offset), number, kind in zip(
            rows, part.numbers.tolist(), arrivals.system("kind").tolist(), strict=True
        ):
            if kind < 0:
                continue
            numbers_by_offset = new.setdefault((source, partition), {})
            before = f"row {numbers_by_offset[offset]}" if offset in numbers_by_offset else "an earlier row"
            if offset in numbers_by_offset or _has(self.ranges.get((source, partition), ()), offset):
                raise InputError(
                    f"row {number} of {source!r} has the place of {before}, offset {offset}; for its row in place of it,"
                    " open the queries with `--offset-column none`"
                )
            numbers_by_offset[offset] = number
        for place, offsets in new.items():
            self.ranges[place] = _joined(self.ranges.get(place, ()), offsets)


def _has(ranges: Ranges, offset: int) -> bool:
    at = bisect_right(ranges, offset, key=lambda item: item[0])
    return at > 0 and offset <= ranges[at - 1][1]


def _joined(ranges: Ranges, offsets: Iterable[int]) -> Ranges:
    """The ranges together with these offsets."""
    found: list[tuple[int, int]] = []
    for first, last in sorted([*ranges, *((offset, offset) for offset in offsets)]):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    over = len(found) - MOST_RANGES
    return tuple([(found[0][0], found[over][1]), *found[over + 1 :]] if over > 0 else found)


@dataclass(slots=True)
class RowReader:
    """Reads what is sent.

    A table that cannot be read changes nothing here.

    rows: by source, how many rows it has sent
    places: how many rows there were of all sources
    names: the columns that rows in Python have had
    offsets: that columns have said
    """

    plan: Plan
    columns: ColumnNames
    rows: dict[str, int] = field(default_factory=dict)
    places: int = 0
    names: dict[str, None] = field(default_factory=dict)
    offsets: SentOffsets = field(default_factory=SentOffsets)

    def read(self, tables: Sequence[Any], before: int) -> Arrivals:
        """The records of the tables of one call, in order of arrival. Raises InputError.

        before: arrival, µs, of the record before them; NO_TIME = there is none
        """
        rows, places, parts = dict(self.rows), self.places, [Arrivals.empty(self.plan)]
        names, sent = dict(self.names), self.offsets.copy()
        for table, source in zip(tables, source_names(tables), strict=True):
            first = rows.get(source, 0) + 1
            whole = self._with_known_columns(table, names)
            part = read_following(whole, self.plan, self.columns, source, first, before)
            if part.has_offsets:
                sent.add(part)
            parts.append(_placed(part.arrivals, places + part.numbers - first))
            count = int(part.numbers.max()) - first + 1 if len(part.numbers) else 0
            rows[source] = first - 1 + count
            places += count
        table = in_arrival_order(Arrivals.concat(parts).table)
        self.rows, self.places, self.names, self.offsets = rows, places, names, sent
        return Arrivals(table)

    def _with_known_columns(self, table: Any, names: dict[str, None]) -> Any:
        """Rows in Python with the columns that earlier ones had, as if all were one table."""
        if not isinstance(table, list) or not table or not all(isinstance(row, Mapping) for row in table):
            return table
        own = dict.fromkeys(name for row in table for name in row)
        missing = [name for name in names if name not in own]
        names |= own
        return [dict.fromkeys(missing) | dict(table[0]), *table[1:]] if missing else table


def _placed(arrivals: Arrivals, places: np.ndarray[Any, Any]) -> Arrivals:
    """The records in the order in which they were sent, where they arrive together."""
    table = arrivals.table
    position = table.schema.get_field_index("_place")
    return Arrivals(table.set_column(position, table.schema.field(position), pa.array(places)))


@dataclass(slots=True)
class UnreadRows:
    """Rows of calls that can be read together later, because rows like them were read before.

    calls: the rows of each call
    type_column: the column of event types; None = there is none
    types: event types that the column `event` does not have, because it is a field
    offset_column: rows that have it are read at once: they may be refused; None = there is none
    """

    type_column: str | None = TYPE
    types: Collection[str] = ()
    offset_column: str | None = OFFSET
    calls: list[list[Mapping[str, Any]]] = field(default_factory=list)
    _known: set[Shape] = field(default_factory=set)
    _types: dict[str, type] = field(default_factory=dict)
    _count: int = 0

    def note(self, rows: Any) -> None:
        """These rows were read, so others like them can be."""
        if isinstance(rows, list) and len(rows) <= _MOST_ROWS:
            self._known.update(shape for row in rows if (shape := self._shape(row)) is not None)

    @property
    def is_full(self) -> bool:
        """Whether its rows have to be read before it takes more."""
        return self._count >= MOST_UNREAD

    def takes(self, rows: Any) -> bool:
        """Adds the rows of a call; False = they have to be read now."""
        if not isinstance(rows, list) or len(rows) > _MOST_ROWS or self.is_full:
            return False
        types = dict(self._types)
        for row in rows:
            shape = self._shape(row)
            if shape not in self._known:
                return False
            for name, value in row.items():
                if value is not None and types.setdefault(name, type(value)) is not type(value):
                    return False  # a column would change its type for other calls
        self._types = types
        self.calls.append([dict(row) for row in rows])  # users may change theirs
        self._count += len(rows)
        return True

    def clear(self) -> list[list[Mapping[str, Any]]]:
        """All calls, which are read now."""
        calls, self.calls, self._types, self._count = self.calls, [], {}, 0
        return calls

    def _shape(self, row: Any) -> Shape | None:
        """None = a row that has to be read on its own."""
        if not isinstance(row, dict):
            return None
        event = None if self.type_column is None else row.get(self.type_column)
        field = row.get(TYPE) if self.types else None
        if self.offset_column in row or (isinstance(field, str) and field in self.types):
            return None
        if not isinstance(event, str | None) or (event is not None and "(" in event) or event == "{":
            return None
        types = []
        for value in row.values():
            kind = type(value)
            if kind not in _PLAIN or (kind is int and not _LEAST <= value < _GREATEST):
                return None
            types.append(kind)
        return event, tuple(row), tuple(types)


_PLAIN = frozenset({str, int, float, bool, type(None)})


def split(arrivals: Arrivals, counts: Sequence[int], first: int) -> list[Arrivals]:
    """The records of several calls that were read together, by call.

    counts: by call, how many rows it has
    first: `_place` of the first row
    """
    ends = np.cumsum(counts)
    call = np.searchsorted(ends, arrivals.system("place") - first, side="right")
    if (call[1:] >= call[:-1]).all():
        starts = np.searchsorted(call, np.arange(len(counts) + 1))
        return [
            Arrivals(arrivals.table.slice(start, end - start))
            for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        ]
    return [Arrivals(arrivals.table.filter(pa.array(call == number))) for number in range(len(counts))]
