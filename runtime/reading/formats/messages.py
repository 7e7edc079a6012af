"""Messages of a log, such as a Kafka topic, as a table: a record each, with its own offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from runtime.column_types import has_column
from runtime.file_forms import Asked, shortened
from runtime.reading.column_names import PLACES
from runtime.reading.formats.json_files import decode_json
from runtime.reading.formats.python_rows import NotARow, of_rows
from runtime.reading.formats.raw_table import Describe, RawTable, as_text

ARRIVAL_COLUMN = "kafka.timestamp"
"""The column with the arrival of each message; fields of this name are not read."""

EVENT_COLUMN = "kafka.event"
"""The column with the event type, where all messages have the same."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Messages as records, numbered from 0 in their order.

    raw: the records
    events: by row: the event type that the message itself says; None = none of them does
    """

    raw: RawTable
    events: pa.Array | None = None


Decode = Callable[[Sequence[bytes | None], str, Describe, Asked], Decoded]
"""How the values of messages become records. The others: the source's name, places, and limits."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one partition of a topic, in order of offset.

    partition: its number
    offsets: ascending; gaps are normal
    values: their content; None = a message without one
    arrivals: µs, ascending
    names: of columns that are null where no message has them
    event: the event type of all of them; None = a column says it
    problem: why none of them can be read; None = they may be
    decode: how values become records; None = they are JSON objects
    """

    partition: int
    offsets: NDArray[np.int64]
    values: Sequence[bytes | None]
    arrivals: NDArray[np.int64]
    names: Sequence[str] = ()
    event: str | None = None
    problem: str | None = None
    decode: Decode | None = None

    def __len__(self) -> int:
        return len(self.values)

    def shown(self, row: int) -> str:
        """The beginning of a message; what is not JSON is shown as Python writes bytes."""
        value = self.values[row] or b""
        return shortened(value.decode("utf-8", "backslashreplace") if self.decode is None else repr(value))

    def part(self, first: int, last: int, problem: str | None = None) -> Messages:
        """Some of them; `last`: the number of the one behind."""
        return replace(
            self,
            offsets=self.offsets[first:last],
            values=self.values[first:last],
            arrivals=self.arrivals[first:last],
            problem=problem,
        )


def read_messages(messages: Messages, name: str, asked: Asked) -> RawTable:
    """The messages as a table, whose numbers are the offsets.

    What cannot be read makes only itself unreadable. Messages are read together as far as possible.
    """

    def describe(row: int) -> tuple[str, str]:
        return f"offset {messages.offsets[row]}", messages.shown(row)

    decoded = _decoded(messages, name, describe, asked)
    raw = decoded.raw
    offsets = messages.offsets
    columns = _with_missing(_without_own(raw.columns, messages.names), messages.names)
    arrivals = pa.array(messages.arrivals[raw.numbers], pa.timestamp("us", "UTC"))
    columns = columns.append_column(ARRIVAL_COLUMN, arrivals)
    if messages.event is not None:
        columns = columns.append_column(EVENT_COLUMN, pa.repeat(messages.event, len(columns)).dictionary_encode())
    elif decoded.events is not None:
        columns = columns.append_column(EVENT_COLUMN, decoded.events)
    return replace(
        raw,
        columns=columns,
        numbers=offsets[raw.numbers],
        describe=lambda offset: describe(int(np.searchsorted(offsets, offset))),
        unreadable=[replace(item, number=int(offsets[item.number])) for item in raw.unreadable],
        nested={column: offsets[list(rows)].tolist() for column, rows in raw.nested.items()},
        partition=messages.partition,
    )


def _decoded(messages: Messages, name: str, describe: Describe, asked: Asked) -> Decoded:
    if messages.problem is not None:
        return Decoded(of_rows([NotARow(messages.problem)] * len(messages), name, describe, asked, 0))
    if messages.decode is None:
        return Decoded(decode_json(messages.values, name, describe, asked))
    return messages.decode(messages.values, name, describe, asked)


def _without_own(columns: pa.Table, names: Sequence[str]) -> pa.Table:
    """The columns without what messages call like their coordinates, or like columns of ours."""
    own = {ARRIVAL_COLUMN, EVENT_COLUMN, *PLACES} - {name.casefold() for name in names}
    found = [name for name in columns.column_names if name.casefold() in own]
    return columns.drop_columns(found) if found else columns


def _with_missing(columns: pa.Table, names: Sequence[str]) -> pa.Table:
    """The columns with those that no message has.

    Names are compared in each message by itself: one that differs in case only counts where the
    exact name has no value. What a chunk's other messages are called then makes no difference.
    """
    alike: dict[str, list[str]] = {}
    for column in sorted(columns.column_names):
        alike.setdefault(column.casefold(), []).append(column)
    for name in names:
        others = [column for column in alike.get(name.casefold(), ()) if column != name and column not in names]
        if has_column(columns, name) and not others:
            continue
        found = [columns.column(column) for column in (name, *others) if has_column(columns, column)]
        values = _first_values(found) if found else pa.nulls(len(columns))
        gone = [column for column in (name, *others) if has_column(columns, column)]
        columns = columns.drop_columns(gone).append_column(name, values)
    return columns


def _first_values(columns: Sequence[pa.ChunkedArray]) -> pa.Array | pa.ChunkedArray:
    """By row: the first value that is not null."""
    try:
        return columns[0] if len(columns) == 1 else pc.coalesce(*columns)
    except pa.ArrowException:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return as_text([next((cell for cell in row if cell is not None), None) for row in rows])
