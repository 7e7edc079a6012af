"""What each row of a table is: an event, a control event, an unknown type, or only a time."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.errors import InputError, listed
from querylang.plan.expression import Kind
from querylang.plan.model import EventType, Plan
from querylang.plan.routing import source_types
from runtime.column_types import one_chunk
from runtime.columns.arrivals import RecordKind
from runtime.columns.rows import counts_of
from runtime.interpreter import Event, PlanWorld, World
from runtime.interpreter.written_values import EventTextError, fields_of, parse_event_text
from runtime.reading.column_names import NOWHERE, TYPE
from runtime.reading.control_events import control_name
from runtime.reading.formats.raw_table import RawTable, text_column
from runtime.reading.plan_needs import indispensable_fields
from runtime.reading.remarks import Refusals
from runtime.timestamps import is_text

CONTROL_EVENTS = (
    "SetDelayedEventsLeeway",
    "Heartbeat",
    "SetParameters",
    "RemoveInstance",
    "DeployQuery",
    "ReplaceQuery",
    "UndeployQuery",
)
"""Events written as text that address the engine, not the queries. The engine answers with an error
row if one is wrong or not supported."""


@dataclass(frozen=True, slots=True)
class RowKinds:
    """What the rows of a table are.

    kinds: by row: an index into `Plan.events`, or a `RecordKind`
    text: by row: a control event, the name of an unknown type, or None; None = no row has a text
    written: by row, ascending: the event, if the cell is an event of the plan written as text
    present: the event types, with their indexes, that have rows whose fields are in columns
    is_plain: every row is one of those
    """

    kinds: NDArray[np.int16]
    text: pa.StringArray | None
    written: Mapping[int, Event]
    present: Sequence[tuple[int, EventType]]
    is_plain: bool = False

    def __len__(self) -> int:
        return len(self.kinds)

    def is_one_of(self, indexes: Sequence[int], plan: Plan) -> NDArray[np.bool_]:
        """By row: whether it is an event of one of these types, given by index."""
        if self.are_all_of(indexes):
            return np.ones(len(self.kinds), np.bool_)
        if not indexes:
            return np.zeros(len(self.kinds), np.bool_)
        # Negative kinds count from the end.
        is_one = np.zeros(len(plan.events) - min(RecordKind), np.bool_)
        is_one[list(indexes)] = True
        return is_one[self.kinds]

    def are_all_of(self, indexes: Collection[int]) -> bool:
        """Whether all rows are events of these types, by index, with their fields in columns."""
        return self.is_plain and all(index in indexes for index, _ in self.present)

    def is_event_of(self, names: Collection[str], plan: Plan) -> NDArray[np.bool_]:
        """By row: whether it is an event of one of these types, given by name."""
        return self.is_one_of([index for index, event in enumerate(plan.events) if event.name in names], plan)


def read_kinds(
    raw: RawTable, plan: Plan, column: str | None, refusals: Refusals, elsewhere: Container[str] = NOWHERE
) -> RowKinds:
    """What each row is; rows whose cell cannot be read are refused.

    column: the column of types; None = all rows are events of the only type that the queries read,
        or of the only one among several whose fields the table has; else InputError
    """
    if column is None:
        index = _only_event(raw, plan, elsewhere)
        # A schema tells which columns there are, also without rows.
        present = [(index, plan.events[index])] if len(raw) or raw.declared else []
        return RowKinds(np.full(len(raw), index, np.int16), None, {}, present, is_plain=True)
    return _of_column(one_chunk(raw.columns.column(column)), plan, refusals)


def refuse_types(raw: RawTable, plan: Plan, refusals: Refusals) -> None:
    """Refuse rows with an event type in the column `event`, a field of all others."""
    if not raw.has(TYPE) or not is_text(raw.column(TYPE).type):
        return
    cells = pc.utf8_trim_whitespace(raw.column(TYPE))
    has_type = pc.fill_null(pc.is_in(cells, pa.array([event.name for event in plan.events], cells.type)), False)
    for row in np.flatnonzero(has_type.to_numpy(zero_copy_only=False)).tolist():
        refusals.refuse(row, f"{TYPE!r} is a field of other rows, and has the event type {cells[row].as_py()!r} here")


def _only_event(raw: RawTable, plan: Plan, elsewhere: Container[str]) -> int:
    needed = source_types(plan.queries)
    indexes = [event_index(plan, name) for name in needed]
    known = [index for index in indexes if index is not None]
    assert len(known) == len(needed), "an input's event type is one of the plan's"
    if len(known) > 1:
        whole = [index for index in known if _has_fields_of(raw, plan, index)]
        known = whole or _most_alike(raw, plan, [i for i in known if _has_fields_of(raw, plan, i, elsewhere)])
    if len(known) != 1:
        lacks = f"{TYPE!r} is not the event type" if raw.has(TYPE) else f"has no column {TYPE!r}"
        raise InputError(f"{raw.name}: {lacks}, {_why_needed(needed, known, plan)}")
    return known[0]


def _most_alike(raw: RawTable, plan: Plan, indexes: Sequence[int]) -> list[int]:
    """Those of these event types that have most fields in common with the table."""
    common = {index: len({field.name for field in plan.events[index].fields} & set(raw.names)) for index in indexes}
    return [index for index, count in common.items() if count == max(common.values())]


def _has_fields_of(raw: RawTable, plan: Plan, index: int, elsewhere: Container[str] = NOWHERE) -> bool:
    """Whether the table has all columns that events of a type must have, and at least one.

    elsewhere: as of `ColumnNames`
    """
    event = plan.events[index]
    names = {field.name for field in event.fields if field.type.kind is not Kind.OPTIONAL}
    missing = names - set(raw.names)
    if not missing < names or not all(name in elsewhere for name in missing):
        return False
    return not missing or missing.isdisjoint(indispensable_fields(plan, event.name))


def _why_needed(needed: Sequence[str], fitting: Sequence[int], plan: Plan) -> str:
    """Why a table needs a column of types: no event type, or these, have all their fields in it."""
    if not needed:
        return "and no query needs an event"
    if fitting:
        names = listed([plan.events[index].name for index in fitting])
        return f"and its columns fit {names}; add one, or name another, `--type NAME`"
    return f"and the queries need {', '.join(needed)}, whose fields it does not have; `--type NAME` names another"


def _present(kinds: NDArray[np.int16], plan: Plan) -> Sequence[tuple[int, EventType]]:
    lowest = min(RecordKind)
    # The lowest kinds are rare: mostly these are counts of events alone.
    least = 0 if len(kinds) and int(kinds.min()) >= 0 else lowest
    counts = counts_of(kinds - np.int16(least))
    return [(int(index), plan.events[index]) for index in np.flatnonzero(counts[-least:])]


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What one text of the column is, as in `RowKinds`; `problem`: why it is MALFORMED."""

    kind: int
    text: str | None = None
    written: Event | None = None
    problem: str | None = None


def _of_column(column: pa.Array, plan: Plan, refusals: Refusals) -> RowKinds:
    """Each distinct text is interpreted once, however many rows have it."""
    encoded = _as_dictionary(column)
    cells = [*encoded.dictionary.to_pylist(), ""]  # the last one is for nulls
    codes = (
        pc.fill_null(encoded.indices, len(cells) - 1).to_numpy() if encoded.null_count else encoded.indices.to_numpy()
    )
    world = PlanWorld(plan)
    indexes = _indexes(plan)
    meanings = [_meaning(cell.strip(), plan, indexes, world) for cell in cells]
    kinds = np.array([meaning.kind for meaning in meanings], np.int16).take(codes)
    texts: pa.StringArray | None = None
    if any(meaning.text is not None for meaning in meanings):
        texts = pa.array([meaning.text for meaning in meanings], pa.string()).take(pa.array(codes))
    is_special = np.array([item.written is not None or item.problem is not None for item in meanings])
    written = {}
    for row in np.flatnonzero(is_special[codes]).tolist() if is_special.any() else ():
        meaning = meanings[codes[row]]
        if meaning.problem is not None:
            refusals.refuse(row, meaning.problem)
        elif meaning.written is not None:
            written[row] = meaning.written
    in_columns = np.delete(kinds, list(written)) if written else kinds
    is_plain = not written and bool(len(kinds)) and int(kinds.min()) >= 0
    return RowKinds(kinds, texts, written, _present(in_columns, plan), is_plain)


_AS_READ = pa.dictionary(pa.int32(), pa.string())
"""The dictionaries that Parquet files give; others are encoded again."""


def _as_dictionary(column: pa.Array) -> pa.DictionaryArray:
    """The column with each text stored once."""
    kind = column.type
    if pa.types.is_dictionary(kind) and kind.equals(_AS_READ) and not column.dictionary.null_count:
        return column
    return text_column(column).dictionary_encode()


def _meaning(cell: str, plan: Plan, indexes: Mapping[str, int], world: World) -> _Meaning:
    if not cell:
        return _Meaning(RecordKind.TICK)
    index = _index(indexes, cell)
    if index is not None:
        return _Meaning(index)
    if cell.startswith("{"):  # only control events are written as JSON
        name = control_name(cell)
        is_meant = is_control(name) and _index(indexes, name) is None
        return _Meaning(RecordKind.CONTROL if is_meant else RecordKind.UNKNOWN_TYPE, text=cell)
    if "(" not in cell:
        return _Meaning(RecordKind.UNKNOWN_TYPE, text=cell)
    try:
        event = parse_event_text(cell)
    except EventTextError as error:
        if is_control(cell.partition("(")[0].strip()):
            return _Meaning(RecordKind.CONTROL, text=cell)
        return _Meaning(RecordKind.MALFORMED, problem=str(error))
    index = _index(indexes, event.name)
    if index is None:
        is_meant = is_control(event.name)
        return (
            _Meaning(RecordKind.CONTROL, text=cell) if is_meant else _Meaning(RecordKind.UNKNOWN_TYPE, text=event.name)
        )
    type_ = plan.events[index]
    try:
        return _Meaning(index, written=Event(type_, fields_of(event, type_, world)))
    except EventTextError as error:
        return _Meaning(RecordKind.MALFORMED, problem=str(error))


def is_control(name: str) -> bool:
    """Whether a name, with or without its package, is that of a control event."""
    package, _, short = name.rpartition(".")
    return short in CONTROL_EVENTS or package == "com.apama.queries"


def event_index(plan: Plan, name: str) -> int | None:
    """The index of an event type in the plan; None = unknown. The name may lack the package."""
    return _index(_indexes(plan), name)


def _indexes(plan: Plan) -> Mapping[str, int]:
    return {event.name: index for index, event in reversed(list(enumerate(plan.events)))}


def _index(indexes: Mapping[str, int], name: str) -> int | None:
    return indexes.get(name, indexes.get(name.rpartition(".")[2]))
