"""Which columns of tables say types and times, and which are fields called alike.

`event`, `at` and `ts` are ordinary names elsewhere. A column of such a name is ours unless no value
of it can be. This is decided once, about whole tables, before they are read: however they are cut,
all parts are read alike. Only as many rows are looked at as it takes to see a value that is ours.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import Enum, auto
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querylang.errors import InputError, listed
from querylang.plan.expression import Kind
from querylang.plan.model import Plan
from runtime.instants import NO_TIME
from runtime.policies.settings_text import USUAL_TIMES, TimeForm, patterns_of
from runtime.reading.column_names import ARRIVAL, NONE, SOURCE_TIME, STANDARD, TYPE, ColumnNames
from runtime.reading.control_events import control_name
from runtime.reading.formats.raw_table import RawTable
from runtime.reading.inference.looks import Decided, Look, columns_in, may_lack, remark
from runtime.reading.row_kinds import is_control
from runtime.timestamps import given_times, is_text

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
) -> Decided:
    """Which columns say types and times.

    sources: by table: its name
    types: the event types that the program knows
    have_own_times: whether definitions say that fields are times
    is_whole: whether no more rows follow; else only what a column can never hold decides

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
        others = (_Verdict.NEVER,) if role in ours or not is_whole else (_Verdict.NEVER, _Verdict.NO)
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
    needed = [plan.event(name) for name in dict.fromkeys(item.event for query in plan.queries for item in query.inputs)]
    if not decided.untyped or not needed or not all(event.fields for event in needed):
        return
    required = {
        event.name: {field.name.casefold() for field in event.fields if field.type.kind is not Kind.OPTIONAL}
        for event in needed
    }
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
