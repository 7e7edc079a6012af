"""The column that says what each row is: a type's name, an event written as text, or nothing.

Takes the column and a plan; gives each row's kind, with the events that are written out. Each text is read once, however
many rows have it. The fields in other columns are left to `runtime.reading.tables`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.model import Plan
from runtime.columns.arrivals import RecordKind
from runtime.interpreter.context import Names
from runtime.interpreter.event_text import EventTextError, fields, parse_event_text
from runtime.interpreter.values import Event, World
from runtime.reading.control_events import control_name

CONTROL_EVENTS = (
    "SetDelayedEventsLeeway",
    "Heartbeat",
    "SetParameters",
    "RemoveInstance",
    "DeployQuery",
    "UndeployQuery",
)
"""Events written as text that are no type of a plan and speak to the engine. The engine reads them, and answers those that are
wrong, or that it does not know yet, with an error of its own."""


@dataclass(frozen=True, slots=True)
class EventColumn:
    """By row: `kinds` (`runtime.columns.arrivals.RecordKind`, or an event type's index) and `text` (None: no row has one).

    `written`: rows that are events of the plan written as text. `malformed`: rows that are nothing, and why.
    """

    kinds: NDArray[np.int16]
    text: NDArray[np.object_] | None
    written: dict[int, Event]
    malformed: dict[int, str]


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What one text of the column is."""

    kind: int
    text: str | None = None
    written: Event | None = None
    problem: str | None = None


def read_event_column(column: pa.Array, plan: Plan) -> EventColumn:
    """Read the column; a cell that can be nothing is MALFORMED, with the reason."""
    encoded = _as_words(column)
    cells = [*encoded.dictionary.to_pylist(), ""]  # the last is what nulls stand for
    codes = pc.fill_null(encoded.indices, len(cells) - 1).to_numpy()
    world = Names(plan)
    meanings = [_meaning(cell.strip(), plan, world) for cell in cells]
    kinds = np.array([meaning.kind for meaning in meanings], np.int16)
    texts: NDArray[np.object_] | None = None
    if any(meaning.text is not None for meaning in meanings):
        texts = np.array([meaning.text for meaning in meanings], np.object_)[codes]
    return EventColumn(
        kinds=kinds[codes],
        text=texts,
        written={row: item.written for item, row in _rows(meanings, codes) if item.written is not None},
        malformed={row: item.problem for item, row in _rows(meanings, codes) if item.problem is not None},
    )


def _as_text(column: pa.Array) -> pa.Array:
    """The cells as text; of objects, as JSON has them, those parts that are there."""
    if pa.types.is_struct(column.type):
        cells = [None if cell is None else _as_json(cell) for cell in column.to_pylist()]
        return pa.array(cells, pa.string())
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


_AS_READ = pa.dictionary(pa.int32(), pa.string())
"""What a Parquet file gives; other dictionaries are made anew."""


def _as_words(column: pa.Array) -> pa.DictionaryArray:
    """Each text once, and which one each cell has."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        if kind.equals(_AS_READ) and not column.dictionary.null_count:
            return column
        column = pc.cast(column, kind.value_type)
    return _as_text(column).dictionary_encode()


def _as_json(cell: Mapping[str, object]) -> str:
    return json.dumps({name: value for name, value in cell.items() if value is not None}, default=str)


def _rows(meanings: Sequence[_Meaning], codes: NDArray[np.int32]) -> list[tuple[_Meaning, int]]:
    """The rows of meanings that concern single rows."""
    special = np.array([item.written is not None or item.problem is not None for item in meanings] or [False])
    return [(meanings[codes[row]], row) for row in np.flatnonzero(special[codes]).tolist()]


def _meaning(cell: str, plan: Plan, world: World) -> _Meaning:
    if not cell:
        return _Meaning(RecordKind.TICK)
    index = event_index(plan, cell)
    if index is not None:
        return _Meaning(index)
    if cell.startswith("{"):  # only control events are written as JSON
        name = control_name(cell)
        is_meant = is_control(name) and event_index(plan, name) is None
        return _Meaning(RecordKind.CONTROL if is_meant else RecordKind.UNKNOWN_TYPE, text=cell)
    if "(" not in cell:
        return _Meaning(RecordKind.UNKNOWN_TYPE, text=cell)
    try:
        event = parse_event_text(cell)
    except EventTextError as error:
        if is_control(cell.partition("(")[0].strip()):
            return _Meaning(RecordKind.CONTROL, text=cell)
        return _Meaning(RecordKind.MALFORMED, problem=str(error))
    index = event_index(plan, event.name)
    if index is None:
        is_meant = is_control(event.name)
        return (
            _Meaning(RecordKind.CONTROL, text=cell) if is_meant else _Meaning(RecordKind.UNKNOWN_TYPE, text=event.name)
        )
    type_ = plan.events[index]
    try:
        return _Meaning(index, written=Event(type_, fields(event, type_, world)))
    except EventTextError as error:
        return _Meaning(RecordKind.MALFORMED, problem=str(error))


def is_control(name: str) -> bool:
    """Whether a name, with or without its package, is that of a control event."""
    package, _, short = name.rpartition(".")
    return short in CONTROL_EVENTS or package == "com.apama.queries"


def event_index(plan: Plan, name: str) -> int | None:
    """The place of an event type in the plan, by its name with or without its package."""
    names = [event.name for event in plan.events]
    if name in names:
        return names.index(name)
    short = name.rpartition(".")[2]
    return names.index(short) if short in names else None
