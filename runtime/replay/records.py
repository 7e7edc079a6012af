"""The records of tables in order of arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from runtime.columns.arrivals import Arrivals, RecordKind, place_of
from runtime.instants import NO_TIME
from runtime.partition_paths import name_of_table
from runtime.reading.tables import TableRecords
from runtime.results.for_users import RowOf, row_is_offset


@dataclass(frozen=True, slots=True)
class Records:
    """All records of all tables, in order of arrival.

    arrivals: the records
    rows: by record: its number in its table, from 1
    sources: the names of the tables
    warnings: implausible times of the tables, a line each
    """

    arrivals: Arrivals
    rows: NDArray[np.int64]
    sources: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def are_malformed(self) -> bool:
        """Whether there are rows, and none that can be read."""
        return bool(len(self.rows)) and are_malformed(self.arrivals.table)

    @property
    def unknown_types(self) -> Sequence[str]:
        """The event types of the records; none if the plan knows one, or has a control event."""
        table = self.arrivals.table
        if not are_without_events(table):
            return ()
        is_unknown = table.column("_kind").to_numpy() == RecordKind.UNKNOWN_TYPE
        names: Sequence[str] = pc.unique(table.column("_text").filter(pa.array(is_unknown))).to_pylist()
        return names

    @property
    def last_arrival(self) -> int:
        """The arrival of the last record, µs; NO_TIME = there is none."""
        return int(self.arrivals.system("arrival")[-1]) if len(self.rows) else NO_TIME

    def until(self, moment: int | None) -> Records:
        """The records that have arrived by a time (µs); None = all."""
        if moment is None:
            return self
        count = int(np.searchsorted(self.arrivals.system("arrival"), moment, side="right"))
        return replace(self, arrivals=Arrivals(self.arrivals.table.slice(0, count)), rows=self.rows[:count])

    def row_of(self) -> RowOf:
        """A function from a record's source, partition and offset to its row."""
        if (self.arrivals.system("offset") == self.rows).all():
            return row_is_offset
        table = self.arrivals.table
        places = zip(*(table.column(name).to_pylist() for name in ("_source", "_partition", "_offset")), strict=True)
        rows = dict(zip(places, self.rows.tolist(), strict=True))
        return lambda source, partition, offset: rows[source, partition, offset]

    def __len__(self) -> int:
        return len(self.rows)


def are_without_events(records: pa.Table) -> bool:
    """Whether none of the records is an event of the plan or a control event."""
    kinds = records.column("_kind").to_numpy()
    return not ((kinds >= 0) | (kinds == RecordKind.CONTROL)).any()


def are_malformed(records: pa.Table) -> bool:
    """Whether none of the records can be read."""
    return bool((records.column("_kind").to_numpy() == RecordKind.MALFORMED).all())


class TablePlaces:
    """Gives the records of one table their `_place`: what arrives together is in the table's order.

    Where a column says the offsets, they are the order, as in a DataFrame, and all records have the
    table's place. So they have where partition and offset number the rows.
    """

    def __init__(self, place: int) -> None:
        self._place = place_of(place)
        self._first: tuple[int, int] | None = None
        self._are_numbered = True

    def of(self, part: TableRecords) -> Arrivals:
        """The records of the next part, whatever coordinates its columns say."""
        table = part.arrivals.table
        if not len(table):
            return part.arrivals
        self._are_numbered = self._are_numbered and (part.has_offsets or self._is_numbered(part))
        places = np.full(len(table), self._place) if self._are_numbered else self._place + part.numbers
        position = table.schema.get_field_index("_place")
        return Arrivals(table.set_column(position, table.schema.field(position), pa.array(places)))

    def _is_numbered(self, part: TableRecords) -> bool:
        """Whether offsets ascend with the rows, in one partition, as in the parts before."""
        partition, offset = part.arrivals.system("partition"), part.arrivals.system("offset")
        shift = int(offset[0] - part.numbers[0])
        self._first = self._first or (int(partition[0]), shift)
        of_rows = np.array_equal(offset if not shift else offset - shift, part.numbers)
        return of_rows and self._first == (int(partition[0]), shift) and bool((partition == partition[0]).all())


def source_names(tables: Sequence[Any]) -> tuple[str, ...]:
    """The names of tables: the file's name, or `table`; repeated names get a number: `table#2`."""
    names: list[str] = []
    for table in tables:
        name = name_of_table(table) if isinstance(table, str | Path) else "table"
        repeated = sum(1 for other in names if other.partition("#")[0] == name)
        names.append(f"{name}#{repeated + 1}" if repeated else name)
    return tuple(names)
