"""Which columns of tables say types, times and places, and which are fields called alike."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import SequenceMatcher
from enum import Enum, auto
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field
from querylang.errors import InputError, listed
from querylang.plan.expression import Kind, Type
from querylang.plan.model import EventType, Plan
from querylang.plan.routing import source_types
from runtime.instants import NO_TIME
from runtime.policies.settings_text import USUAL_TIMES, TimeForm, patterns_of
from runtime.reading.assembly import integers_of, partitions_of, sources_of
from runtime.reading.column_names import (
    ARRIVAL,
    NONE,
    OFFSET,
    PARTITION,
    PLACES,
    SOURCE,
    SOURCE_TIME,
    STANDARD,
    TYPE,
    ColumnNames,
    needed_names,
    with_names,
)
from runtime.reading.control_events import control_name
from runtime.reading.conversion import convert, is_time
from runtime.reading.formats.messages import Messages
from runtime.reading.formats.raw_table import RawTable, cell_text, joined_parts
from runtime.reading.inference.looks import FEW, Decided, Look, columns_in, may_lack, remark
from runtime.reading.inference.types import type_of_text
from runtime.reading.remarks import Refusals
from runtime.reading.row_kinds import is_control, read_kinds
from runtime.reading.tables import iter_raw
from runtime.timestamps import given_times, is_text

# Types and times: `event`, `at` and `ts` are ordinary names elsewhere. A column of such a name is
# ours unless no value of it can be. This is decided once, about whole tables, before they are read:
# however they are cut, all parts are read alike. Only as many rows are looked at as it takes to see
# a value that is ours.

_ALIKE = 0.85
"""A type is meant by a text that is so like its name, from 0 to 1, that it is a slip."""

_MOST_NAMED, _SHOWN = 5, 100
"""Event types in a remark; cells that are looked at one by one."""


class _Verdict(Enum):
    """Whether a column can be ours.

    NOTHING: it has no values, or there is none
    YES: a value of it is ours
    NO: no value of it is
    NEVER: it holds what values of ours never are, such as objects
    """

    NOTHING = auto()
    YES = auto()
    NO = auto()
    NEVER = auto()


def decide_meanings(
    tables: Sequence[Any],
    sources: Sequence[str],
    names: ColumnNames,
    types: Collection[str],
    *,
    have_own_times: bool = False,
    is_whole: bool = True,
    has_all_types: bool = True,
) -> Decided:
    """Which columns say types and times.

    sources: by table: its name
    types: the event types that the program knows
    have_own_times: whether definitions say that fields are times
    is_whole: whether no more rows follow; else only what a column can never hold decides
    has_all_types: whether no more types follow; else the same for the column of types

    A column that is ours in one table is ours in all where it has values of such a kind. One
    of times is a field only where another one has the times: else rows say what is wrong.
    """
    roles = [TYPE] if names.type is None else []
    if names.times == USUAL_TIMES:
        roles += [role for role in (ARRIVAL, SOURCE_TIME) if names.given(role) is None]
    if not roles:
        return Decided(tuple([names] * len(tables)), (), tuple(sources))
    judges = [_Judge(Look(table, source, names), types) for table, source in zip(tables, sources, strict=True)]
    for judge in judges:
        judge.look(roles)
    ours = {role for role in roles if any(judge.verdicts[role] is _Verdict.YES for judge in judges)}
    timed = {role for role in (ARRIVAL, SOURCE_TIME) if role in ours or names.given(role) not in (None, NONE)}
    columns, remarks, untyped = [names] * len(tables), [], {}
    for role in roles:
        is_settled = is_whole and (has_all_types or role != TYPE)
        others = (_Verdict.NEVER, _Verdict.NO) if role not in ours and is_settled else (_Verdict.NEVER,)
        if role != TYPE and not (timed - {role} or have_own_times):
            continue
        for place, judge in enumerate(judges):
            if judge.verdicts[role] in others:
                columns[place] = columns[place].without(role)
                remarks.append(judge.remark(role))
                if role == TYPE and judge.verdicts[role] is _Verdict.NO:
                    untyped[place] = judge.shown[role]
    return Decided(tuple(columns), tuple(remarks), tuple(sources), untyped=untyped)


def refuse_untyped(tables: Sequence[Any], decided: Decided, plan: Plan, names: ColumnNames) -> None:
    """Raise InputError for a table whose texts of types are not types, and whose columns fit none.

    So this is one error, with what is in the column; not a remark about a field and an error about
    columns. Of JSON, columns may be there that are not: then its reader says what is wrong.
    """
    needed = [plan.event(name) for name in source_types(plan.queries)]
    if not decided.untyped or not needed or not all(event.fields for event in needed):
        return
    required = {event.name: _required(event) for event in needed}
    wanted = sorted(set().union(*required.values()))
    here = [columns_in(table, wanted, names) for table in tables]
    anywhere: set[str] = set().union(*here)
    for place, shown in decided.untyped.items():
        whole = [name for name, own in required.items() if own and own <= here[place]]
        fitting = [name for name, own in required.items() if own <= anywhere and (own & here[place] or not own)]
        if not fitting:
            lacks = [f"{name} has {listed(sorted(own - anywhere))}" for name, own in required.items() if own - anywhere]
            why = f"nor do its columns fit{f': {listed(lacks[:_MOST_NAMED])}' if lacks else ''}"
        elif len(whole) > 1 and not may_lack(tables[place]):
            why = f"and its columns fit {listed(whole[:_MOST_NAMED])}"
        else:
            continue
        raise InputError(no_types(decided.sources[place], names.of(TYPE) or TYPE, shown, list(required), why))


def leaves_types(tables: Sequence[Any], decided: Decided, plan: Plan, names: ColumnNames) -> bool:
    """Whether rows of tables whose texts of types are not types are each of one event type still.

    As they are where queries read one, or where the columns of a table are those of one.
    """
    needed = [plan.event(name) for name in source_types(plan.queries)]
    if not decided.untyped or len(needed) < 2:
        return True
    required = [_required(event) for event in needed]
    wanted = sorted(set().union(*required))
    here = [columns_in(tables[place], wanted, names) for place in decided.untyped]
    return all(sum(1 for own in required if own and own <= columns) == 1 for columns in here)


def _required(event: EventType) -> set[str]:
    """The columns that events of a type must have, in lower case."""
    return {field.name.casefold() for field in event.fields if field.type.kind is not Kind.OPTIONAL}


def no_types(table: str, column: str, shown: str, types: Sequence[str], why: str) -> str:
    """That no row of a table is of these event types.

    shown: what is in the column instead
    why: why its rows are not taken as events of one of them all the same
    """
    known = f"one of {len(types):,} event types" if len(types) > _MOST_NAMED else listed(types, "or")
    return (
        f"{table}: no row has an event type that the queries read: no value of {column!r} is {known}, such as {shown},"
        f" {why}; name the column of types, `--type NAME`"
    )


def says_types(table: Any, types: Collection[str]) -> bool:
    """Whether the column `event` of a table has an event type, or nearly."""
    judge = _Judge(Look(table, "", STANDARD), types)
    judge.look([TYPE])
    return judge.verdicts[TYPE] is _Verdict.YES


@dataclass(slots=True)
class _Judge:
    """Judges what columns of types and times hold.

    verdicts: by role
    shown: by role: a value that is not ours
    """

    look_at: Look
    types: Collection[str]
    verdicts: dict[str, _Verdict] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)

    def look(self, roles: Sequence[str]) -> None:
        """Look at rows until each column has shown what it is."""
        self.verdicts = dict.fromkeys(roles, _Verdict.NOTHING)
        left = [role for role in roles if role in self.look_at.roles]
        for part in chain(self.look_at.head, self.look_at.parts(left) if left else ()):
            for role in left:
                self._see(role, part)
            left = [role for role in left if self.verdicts[role] is not _Verdict.YES]
            if not left:
                return

    def _see(self, role: str, part: RawTable) -> None:
        name = self.look_at.names.of(role)
        if name is None or name not in part.names:
            return
        column = part.column(name) if role == TYPE else part.values(name)
        cells = column.drop_null()
        if not len(cells) and not pa.types.is_nested(column.type):
            return
        verdict = _of_types(cells, self.types) if role == TYPE else _of_times(cells, self.look_at.names.times)
        if verdict is not _Verdict.NOTHING:
            self.verdicts[role] = verdict
        if verdict in (_Verdict.NO, _Verdict.NEVER) and len(cells) and role not in self.shown:
            self.shown[role] = part.shown(name, int(np.argmax(column.is_valid().to_numpy(zero_copy_only=False))))

    def remark(self, role: str) -> str:
        """That a column is a field."""
        is_never = self.verdicts[role] is _Verdict.NEVER
        if role == TYPE:
            is_many = len(self.types) > _MOST_NAMED
            types = f"one of {len(self.types):,} event types" if is_many else listed(self.types, "or")
            what, why = "the event type", f"no value of it is {types or 'an event type'}"
        else:
            what, why = "a time of ours", "no value of it is a time"
        why = f"{why}, such as {self.shown[role]}" if role in self.shown else why
        return remark(
            self.look_at.name, role, self.look_at.names.of(role) or role, what, why, can_be_named=not is_never
        )


def _of_types(cells: pa.Array, types: Collection[str]) -> _Verdict:
    """Whether some of these cells are event types, events or control events, or are meant to be."""
    if not is_text(cells.type):
        return _Verdict.NEVER
    known = {_plain(name) for name in types}
    verdict = _Verdict.NOTHING
    for cell in pc.unique(cells).to_pylist():
        text = cell.strip()
        if text:
            if _is_type(text, types, known):
                return _Verdict.YES
            verdict = _Verdict.NO
    return verdict


def _is_type(text: str, types: Collection[str], known: Collection[str]) -> bool:
    """Whether a text is an event type, an event or a control event, or nearly is."""
    if text.startswith("{"):
        return is_control(control_name(text))
    name = text.partition("(")[0].strip().removeprefix(".")
    if name in types or name.rpartition(".")[2] in types or ("(" in text and is_control(name)):
        return True
    plain = _plain(name)
    return plain in known or any(SequenceMatcher(None, plain, other).ratio() >= _ALIKE for other in known)


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.rpartition(".")[2].casefold()))


def _of_times(cells: pa.Array, form: TimeForm) -> _Verdict:
    """Whether some of these cells are times, or would be if users said how they are written."""
    kind = cells.type
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_duration(kind):
        return _Verdict.NEVER
    if not is_text(kind) or (given_times(cells, form).micros != NO_TIME).any():
        return _Verdict.YES
    texts = [text for text in map(str.strip, cells[:_SHOWN].to_pylist()) if text]
    numbers = [number for number in map(_number, texts) if number is not None]
    if not texts:
        return _Verdict.NOTHING
    is_written_otherwise = bool(patterns_of(texts[:1])) or len(numbers) == len(texts)
    return _Verdict.YES if is_written_otherwise else _Verdict.NO


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


# Where rows came from: `source`, `partition` and `offset` are ordinary names elsewhere. A column of
# such a name is ours unless a query or a definition has it as a field, or its values cannot be
# ours. This is decided once, about whole tables, before they are read; of tables without such
# columns nothing is read.

MOST_SOURCES = 1_000
"""Different texts that can be sources: an account has rows for each of them."""


def decide_places(
    tables: Sequence[Any],
    sources: Sequence[str],
    columns: Sequence[ColumnNames],
    plan: Plan,
) -> Decided:
    """Which columns say where rows came from.

    columns: by table: as `decide_meanings` has it
    plan: the queries, with the fields of all event types that definitions give

    Raises InputError with both rows for a place that two events have where users name its columns.
    """
    found = [
        _Places.of(Look(table, source, names), plan)
        for table, source, names in zip(tables, sources, columns, strict=True)
    ]
    _judge_sources(found)
    for one in found:
        one.judge_alone()
    together = [one for one in found if SOURCE in one.ours and OFFSET in one.ours]
    if len(together) > 1:
        _judge_together(together)
    decided = tuple(names.without(*(role for role in one.fields)) for names, one in zip(columns, found, strict=True))
    remarks = [
        remark(one.look_at.name, role, name, f"the {role} of records", why, can_be_named=role not in one.never)
        for one in found
        for role, why in one.fields.items()
        if (name := one.look_at.names.of(role)) is not None
    ]
    left = [frozenset(role for role in one.ours if not one.is_declared(role)) for one in found]
    return Decided(decided, tuple(remarks), tuple(sources), tuple(left))


@dataclass(slots=True)
class _Places:
    """What the columns of places of one table hold.

    ours: the roles that have a column; those that users name stay whatever it holds
    fields: the roles whose column is a field, and why
    never: those of them that no value of the column could be
    events: the rows that are events, by index; the arrays are of these
    """

    look_at: Look
    ours: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    never: set[str] = field(default_factory=set)
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    source: pa.Array | None = None
    partition: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    offset: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @staticmethod
    def of(look: Look, plan: Plan) -> _Places:
        """The columns of a table, read once; nothing is read of a table that has none of them."""
        found = _Places(look)
        roles = [] if isinstance(look.table, Messages) else [role for role in PLACES if role in look.roles]
        if roles:
            found._read(plan, roles)
        return found

    def is_declared(self, role: str) -> bool:
        """Whether users name the column of a role."""
        return self.look_at.names.given(role) not in (None, NONE)

    def _read(self, plan: Plan, roles: Sequence[str]) -> None:
        raw = joined_parts(list(self.look_at.parts([*roles, TYPE])))
        kinds, present = self._kinds(raw, plan)
        names = {role: name for role in roles if (name := self.look_at.names.of(role)) in raw.names}
        for role, name in names.items():
            event = next((event for event in present if any(item.name == name for item in event.fields)), None)
            why = None if event is None else f"{event.name} has a field of this name"
            never = None if why is not None else _why_never(role, raw, name)
            if never is not None:
                self.never.add(role)
            if (why or never) is not None and not self.is_declared(role):
                self.fields[role] = why or never or ""
            else:
                self.ours[role] = name
        refusals = Refusals(raw)
        partition, offset = np.zeros(len(raw), np.int64), raw.numbers
        if SOURCE in self.ours:
            self.source = sources_of(raw, self.ours[SOURCE])
        if PARTITION in self.ours:
            partition = partitions_of(raw.values(self.ours[PARTITION]), self.ours[PARTITION], partition, refusals)
        if OFFSET in self.ours:
            offset = integers_of(raw.values(self.ours[OFFSET]), self.ours[OFFSET], offset, refusals)
        is_event = kinds >= 0
        is_event[refusals.rows] = False
        rows = np.flatnonzero(is_event)
        self.numbers, self.partition, self.offset = raw.numbers[rows], partition[rows], offset[rows]
        self.source = None if self.source is None else self.source.take(pa.array(rows))

    def _kinds(self, raw: RawTable, plan: Plan) -> tuple[NDArray[np.int16], Sequence[EventType]]:
        """What the rows are, and the event types of those that are events."""
        column, look = self.look_at.names.of(TYPE), self.look_at
        try:
            if column in raw.names:
                kinds = read_kinds(raw, plan, column, Refusals(raw))
                return kinds.kinds.copy(), [event for _, event in kinds.present]
            whole = next(iter_raw(look.table, look.name, look.names.asked(rows=FEW)))
            kinds = read_kinds(with_names(whole, needed_names(plan, look.names)), plan, None, Refusals(whole))
            return np.zeros(len(raw), np.int16), [event for _, event in kinds.present]
        except InputError:  # its message comes when the table is read
            return np.zeros(len(raw), np.int16), plan.events

    def judge_alone(self) -> None:
        """Decide whether the offsets are places, by this table alone. Raises InputError."""
        if OFFSET in self.ours and (fault := _fault([self])) is not None:
            self.refuse_offset(fault)

    def refuse_offset(self, fault: _Fault) -> None:
        """The column of offsets is a field. Raises InputError if users name it."""
        if not self.is_declared(OFFSET):
            self.fields[OFFSET] = f"{fault.text}, and offsets rise"
            del self.ours[OFFSET]
        elif fault.is_repeated:
            raise InputError(
                f"{self.look_at.name}: {fault.text}; leave out `--offset-column NAME`, and its row is the offset"
            )

    def refuse_sources(self, count: int) -> None:
        """The column of sources is a field. Raises InputError if users name it."""
        name = self.ours.pop(SOURCE)
        why = f"it has {count:,} different values, and there are at most {MOST_SOURCES:,} sources"
        if self.is_declared(SOURCE):
            raise InputError(f"{self.look_at.name}: {name!r} is not a column of sources: {why}")
        self.fields[SOURCE], self.source = why, None

    def arrivals(self) -> NDArray[np.int64] | None:
        """When the events arrive, µs; None = no column says it."""
        name = self.look_at.names.of(ARRIVAL)
        parts = [part for part in self.look_at.parts([ARRIVAL]) if len(part)] if ARRIVAL in self.look_at.roles else []
        raw = joined_parts(parts) if parts else None
        if raw is None or name is None or name not in raw.names:
            return None
        micros = given_times(raw.values(name), self.look_at.names.times).micros
        return micros[np.searchsorted(raw.numbers, self.numbers)]


def _why_never(role: str, raw: RawTable, name: str) -> str | None:
    """Why no value of a column can be ours; None = some can."""
    column = raw.values(name)
    kind, cells = column.type, column.drop_null()
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_duration(kind) or is_time(kind):
        return f"it holds {shown_kind(kind)}"
    if pa.types.is_null(kind) or pa.types.is_integer(kind) or (is_text(kind) and not len(cells)):
        return None
    if role == OFFSET:
        bad = convert(cells, Type.INTEGER).bad
        if bad is None or 2 * int(bad.sum()) <= len(cells):
            return None
        return f"{cell_text(cells[int(np.argmax(bad))])} is not an integer"
    found = None if raw.has_types or not is_text(kind) else type_of_text(raw.with_points(cells)).type
    if not is_text(kind) or found in (Type.FLOAT, Type.BOOLEAN):
        return f"{cell_text(cells[0])} is neither text nor an integer" if len(cells) else f"it holds {shown_kind(kind)}"
    return None


def shown_kind(kind: pa.DataType) -> str:
    """What a column holds, for people."""
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return "objects"
    return "lists" if pa.types.is_nested(kind) else "times" if is_time(kind) else str(kind)


def _judge_sources(found: Sequence[_Places]) -> None:
    """Refuse columns with more sources than an account lists, first those that alone have more."""
    having = [one for one in found if one.source is not None]
    counts = [pc.count_distinct(one.source.dictionary_decode()).as_py() for one in having if one.source is not None]
    for one, count in zip(having, counts, strict=True):
        if count > MOST_SOURCES:
            one.refuse_sources(count)
    left = [one for one in having if one.source is not None]
    names = {name for one in left if one.source is not None for name in one.source.dictionary.to_pylist()}
    if len(names) > MOST_SOURCES:
        for one in left:
            one.refuse_sources(len(names))


def _judge_together(tables: Sequence[_Places]) -> None:
    """Refuse offsets that two tables have of one partition of a source."""
    fault = _fault(tables)
    if fault is not None and fault.is_repeated:
        for one in fault.tables:
            one.refuse_offset(fault)


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why offsets are not places.

    is_repeated: two events have one place; else the offset falls from one to the other
    tables: that have the two
    """

    text: str
    is_repeated: bool
    tables: Sequence[_Places]


def _fault(tables: Sequence[_Places]) -> _Fault | None:
    """What is wrong with the offsets of the events of these tables; None = nothing.

    They rise within each partition of a source: in the order of the rows, or in that of arrival,
    where those that arrive together may be in any order.
    """
    codes: dict[str, int] = {}
    source = np.concatenate([_codes(one, codes) for one in tables])
    partition = np.concatenate([one.partition for one in tables])
    offset = np.concatenate([one.offset for one in tables])
    kinds = np.unique(partition, return_inverse=True)[1]
    group = source * (int(kinds.max(initial=0)) + 1) + kinds
    order = np.argsort(group, kind="stable")
    if not _falls(order, group, offset).size:
        return None
    order = np.lexsort((offset, group))
    repeated = _falls(order, group, offset)
    if repeated.size:
        return _fault_at(tables, order, int(repeated[0]), is_repeated=True)
    arrivals = [one.arrivals() for one in tables]
    known = [micros for micros in arrivals if micros is not None]
    if len(known) < len(tables):
        return None
    order = np.lexsort((offset, np.concatenate(known), group))
    falling = _falls(order, group, offset)
    return _fault_at(tables, order, int(falling[0]), is_repeated=False) if falling.size else None


def _codes(one: _Places, codes: dict[str, int]) -> NDArray[np.int64]:
    """By event: a number for its source, the same for all tables."""
    if one.source is None:
        return np.full(len(one.numbers), codes.setdefault(one.look_at.name, len(codes)))
    own = [codes.setdefault(name, len(codes)) for name in one.source.dictionary.to_pylist()]
    return np.array(own, np.int64)[one.source.indices.to_numpy(zero_copy_only=False)]


def _falls(order: NDArray[np.int64], group: NDArray[np.int64], offset: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where in this order an offset is not above the one before: the place of that one."""
    groups, offsets = group[order], offset[order]
    return np.flatnonzero((groups[1:] == groups[:-1]) & (offsets[1:] <= offsets[:-1]))


def _fault_at(tables: Sequence[_Places], order: NDArray[np.int64], place: int, *, is_repeated: bool) -> _Fault:
    """The fault of two events that follow one another in this order."""
    ends = np.cumsum([len(one.numbers) for one in tables])
    shown, owners = [], []
    for row in sorted(order[place : place + 2].tolist()):
        number = int(np.searchsorted(ends, row, side="right"))
        own = row - int(ends[number] - len(tables[number].numbers))
        one = tables[number]
        where = f" of {one.look_at.name}" if len(tables) > 1 else ""
        shown.append((f"row {one.numbers[own]}{where}", int(one.offset[own])))
        owners.append(one)
    (first, before), (second, behind) = shown
    text = (
        f"{second} has the place of {first}, {behind}"
        if is_repeated
        else f"{first} has {before}, {second} has {behind}"
    )
    return _Fault(text, is_repeated, list({id(one): one for one in owners}.values()))
