"""The records of a bounded table of which it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field
from querylang.plan.model import Plan, QueryPlan
from runtime.column_types import Integers, has_column
from runtime.columns.arrivals import RecordKind, column_name, event_of
from runtime.columns.keys import is_of_key, keys_of_layer, layers
from runtime.instants import NO_TIME
from runtime.interpreter import Event, PlanWorld, event_text
from runtime.results.for_users import RowOf, plain_value, row_number
from runtime.results.matched import Coordinates
from runtime.timestamps import format_time
from runtime.why.answers import EventAt
from runtime.why.changes import Rewrite
from runtime.why.history import Ending, KeyValues

PLACE = ("source", "partition", "offset")
"""The coordinates of a record."""


@dataclass(frozen=True)
class Table:
    """Records of which it is asked.

    records: in order of arrival
    ending: how the time of the replay ended
    row_of: gives the number of a record's row
    rows: by record, its number in its table
    rewritten_as: as of `runtime.why.changes.LeastChange`
    known_keys: by query, what `keys` has made
    """

    plan: Plan
    records: pa.Table
    ending: Ending
    row_of: RowOf
    rows: Integers
    rewritten_as: Rewrite | None = None
    known_keys: dict[str, Sequence[Sequence[pa.Array]]] = field(default_factory=dict)

    @cached_property
    def kinds(self) -> Integers:
        """By record, its kind."""
        return self.records.column("_kind").to_numpy().astype(np.int64)

    def keys(self, query: QueryPlan) -> Sequence[Sequence[pa.Array]]:
        """The key columns of a query, by layer (`runtime.columns.keys`)."""
        if query.title not in self.known_keys:
            self.known_keys[query.title] = [
                keys_of_layer(self.records, self.kinds, self.plan, query, layer) for layer in layers(query)
            ]
        return self.known_keys[query.title]

    def have_key(self, query: QueryPlan, key: KeyValues) -> NDArray[np.bool_]:
        """By record, whether it has a key as an event of any input."""
        return np.logical_or.reduce([is_of_key(columns, key) for columns in self.keys(query)])

    def keys_of(self, query: QueryPlan, row: int) -> list[KeyValues]:
        """The keys of a record: those of the inputs that its type is; none if it has none."""
        cells = [self._cells(query, row, layer) for layer in layers(query)]
        known = [tuple(own) for own in cells if all(cell.is_valid for cell in own)]
        return list({tuple(map(str, key)): key for key in known}.values())

    def has_key(self, query: QueryPlan, row: int, layer: int, key: KeyValues) -> bool:
        """Whether a record has a key as an event of the input of a layer."""
        columns = [column.slice(row, 1) for column in self.keys(query)[layer]]
        return not key or bool(is_of_key(columns, key)[0])

    def key_cells(self, query: QueryPlan, row: int) -> list[Any]:
        """The parts of the key of a record as an event of its first input; None = it has none."""
        return [cell.as_py() for cell in self._cells(query, row, 0)]

    def _cells(self, query: QueryPlan, row: int, layer: int) -> list[pa.Scalar]:
        one, kinds = self.records.slice(row, 1), self.kinds[row : row + 1]
        return [column[0] for column in keys_of_layer(one, kinds, self.plan, query, layer)]

    def row_at(self, place: Coordinates) -> int | None:
        """The record that was read at a place; None = it is not one of these."""
        offsets = self.records.column("_offset").to_numpy()
        return next((row for row in np.flatnonzero(offsets == place[2]).tolist() if self.place(row) == place), None)

    def numbered(self, number: int, source: str | None) -> list[int]:
        """The records of a number.

        source: its name, or `NAME/PARTITION`, of which they are; None = of any
        """
        found: list[int] = np.flatnonzero(self.rows == number).tolist()
        if source is None:
            return found
        places = {row: self.place(row) for row in found}
        return [row for row, (name, part, _) in places.items() if source in (name, f"{name}/{part}")]

    def place(self, row: int) -> Coordinates:
        """Where a record was read."""
        source, partition, offset = (self.records.column(f"_{name}")[row].as_py() for name in PLACE)
        return source, partition, offset


def record_at(table: Table, row: int) -> EventAt:
    """A record as it came, whether it is an event or not."""
    kind = int(table.kinds[row])
    source, partition, offset = table.place(row)
    cell = {name: table.records.column(f"_{name}")[row].as_py() for name in ("source_time", "arrival", "text")}
    fields, name, text = dict[str, Any](), "", cell["text"] or ""
    if kind >= 0:
        event = event_of_row(table, row)
        name = event.type.name
        fields = {field: plain_value(value) for field, value in event.values.items()}
        text = event_text(event.type, event.values)
    elif kind == RecordKind.UNKNOWN_TYPE:
        name = text
    time = cell["source_time"]
    return EventAt(
        name="",
        event=name,
        source=source,
        partition=partition,
        offset=offset,
        row=row_number(table.row_of, source, partition, offset),
        time=None,
        source_time=None if time == NO_TIME else format_time(time),
        arrival=format_time(cell["arrival"]),
        fields=fields,
        text=text,
    )


def event_of_row(table: Table, row: int) -> Event:
    """A record as an event of its type."""
    event = table.plan.events[int(table.kinds[row])]
    columns = {item.name: column_name(item.name, item.type) for item in event.fields}
    cells = {
        field: table.records.column(column)[row].as_py() if has_column(table.records, column) else None
        for field, column in columns.items()
    }
    return event_of(event, cells, PlanWorld(table.plan))
