"""Which column of a table holds what: the standard names, and other names that users give."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Sequence
from typing import Any, Protocol

from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, listed, nearest
from querylang.plan.model import Plan
from runtime.file_forms import COMMA, MAX_RECORD, USUAL_CSV, Asked, CsvForm
from runtime.policies.settings_text import USUAL_TIMES, TimeForm
from runtime.reading.formats.raw_table import RawTable, refuse_repeated
from runtime.reading.plan_needs import interval_events

ARRIVAL, TYPE, SOURCE_TIME = "at", "event", "ts"
"""The columns with arrival times, event types and source times, unless users name others."""

START, END, SHAPE = "start", "end", "shape"
"""The columns of events that are intervals."""

SOURCE, PARTITION, OFFSET = "source", "partition", "offset"
PLACES = (SOURCE, PARTITION, OFFSET)
"""Columns that say where a row came from, unless users name others."""

NONE = "none"
"""The name that users give where no column is it."""


class Elsewhere(Container[str], Protocol):
    """The columns that other tables of the same events have: where one is absent, it is null."""

    def tell(self, table: str, column: str) -> None:
        """Note that a table lacks one of them."""


class NamedElsewhere(frozenset[str]):
    """Columns of other tables that are known by name."""

    def tell(self, table: str, column: str) -> None:
        """Nothing is kept."""


NOWHERE = NamedElsewhere()


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """How users want a table to be read.

    A name None = the standard one, whose column may be absent; `none` = there is no such column,
    and one of the standard name is a field.

    arrival: instead of `at`
    type: instead of `event`
    source_time: instead of `ts`
    source, partition, offset: instead of these
    max_record: length of the longest record that is read, in bytes
    csv: how CSV files are written
    times: how times are written
    is_typeless: the column `event` was found to be a field: a row that has an event type in it is
        malformed
    is_mixed: rows of event types that the table has no columns for are malformed, not a mistake
    inferred: the event types whose fields come from the data, because nothing defines them
    unread: the fields of these that no query reads; None = the plan of the reader says it
    elsewhere: columns that may be absent here, because other tables have them
    """

    arrival: str | None = None
    type: str | None = None
    source_time: str | None = None
    max_record: int = MAX_RECORD
    csv: CsvForm = USUAL_CSV
    times: TimeForm = USUAL_TIMES
    is_mixed: bool = False
    source: str | None = None
    partition: str | None = None
    offset: str | None = None
    is_typeless: bool = False
    inferred: frozenset[str] = frozenset()
    unread: frozenset[tuple[str, str]] | None = None
    elsewhere: Elsewhere = NOWHERE

    def asked(
        self, few_values: Collection[str] = (), wanted: Collection[str] | None = None, rows: int | None = None
    ) -> Asked:
        """What is asked of the readers of files and frames."""
        return Asked(few_values, wanted, self.max_record, self.csv, rows, self.has_named_times)

    def as_written(self, raw: RawTable) -> RawTable:
        """The table, with what users say of the numbers in CSV files."""
        if raw.has_types or self.csv == USUAL_CSV:
            return raw
        has_comma, thousands = self.csv.decimal == COMMA, self.csv.thousands
        return replace(raw, has_comma=has_comma, thousands=thousands, missing=self.csv.missing)

    @property
    def has_named_times(self) -> bool:
        """Whether users name a column of times."""
        return self.arrival not in (None, NONE) or self.source_time not in (None, NONE)

    def given(self, role: str) -> str | None:
        """What users say of a role, which is called like its standard column."""
        named = (self.arrival, self.type, self.source_time, self.source, self.partition, self.offset)
        return dict(zip(STANDARD_NAMES, named, strict=True))[role]

    def of(self, role: str) -> str | None:
        """The column that has a role; None = users say that there is none."""
        name = self.given(role) or role
        return None if name == NONE else name

    def without(self, *roles: str) -> ColumnNames:
        """The same, but that no column has these roles."""
        changes: dict[str, Any] = {_WORDS[role]: NONE for role in roles}
        return replace(self, **changes)

    @property
    def of_roles(self) -> tuple[str, ...]:
        """The columns that can have a role; not fields unless a query or a definition says so."""
        return tuple(name for role in STANDARD_NAMES if (name := self.of(role)) is not None)


STANDARD_NAMES = (ARRIVAL, TYPE, SOURCE_TIME, *PLACES)
"""The standard columns of the roles, by which roles are called here."""

_WORDS = {ARRIVAL: "arrival", TYPE: "type", SOURCE_TIME: "source_time", **dict(zip(PLACES, PLACES, strict=True))}

STANDARD = ColumnNames()


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns of one table that are not fields; None = the table has no such column.

    arrival: arrival times
    type: event types, or events written as text
    source_time: source times
    start: when events that are intervals begin; None too if no query of the plan knows intervals
    source, partition, offset: where the rows came from
    declared: those of them that users name
    """

    arrival: str | None
    type: str | None
    source_time: str | None
    start: str | None
    source: str | None = None
    partition: str | None = None
    offset: str | None = None
    declared: frozenset[str] = frozenset()

    @property
    def is_history(self) -> bool:
        """Whether rows arrive at their source time, because the table has no arrival times."""
        return self.arrival is None


class NoTimesError(InputError):
    """A table lacks the column that users name for times."""


def find_roles(raw: RawTable, names: ColumnNames, *, has_intervals: bool) -> Roles:
    """The columns of a table by role; InputError for a name that users give and it lacks."""
    has_places = raw.partition is None  # else its reader knows them
    return Roles(
        arrival=_find(raw, names, ARRIVAL, NoTimesError),
        type=_find(raw, names, TYPE),
        source_time=_find(raw, names, SOURCE_TIME, NoTimesError),
        start=START if has_intervals and raw.has(START) else None,
        source=_find(raw, names, SOURCE) if has_places else None,
        partition=_find(raw, names, PARTITION) if has_places else None,
        offset=_find(raw, names, OFFSET) if has_places else None,
        declared=frozenset(name for role in PLACES if (name := names.given(role)) not in (None, NONE)),
    )


_MOST_SHOWN = 20
"""Names of columns in a message."""


def _find(raw: RawTable, names: ColumnNames, role: str, kind: type[InputError] = InputError) -> str | None:
    name = names.of(role)
    if name is None or raw.has(name):
        return name
    if names.given(role) is not None:
        hint = did_you_mean(name, raw.names) or f"; it has {listed(map(repr, raw.names[:_MOST_SHOWN]))}"
        raise kind(f"{raw.name}: has no column {name!r}{hint}")
    return None


_NOT_UTF_8 = "\ufffd"
"""What readers write in a name in place of bytes that are not text."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a message: the most similar name, or nothing.

    A name that is the same but for what is not UTF-8 says that the file has another encoding.
    """
    known = list(names)
    for other in known:
        form = ".".join(map(re.escape, other.split(_NOT_UTF_8)))
        if _NOT_UTF_8 in other and re.fullmatch(form, name):
            return f"; {other!r} is not UTF-8 text; if it is latin-1: `--csv encoding=latin-1`"
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near is not None else ""


def needed_names(plan: Plan, names: ColumnNames) -> list[str]:
    """The names of all columns that a plan can use."""
    lasting = (START, END, SHAPE) if interval_events(plan) else ()
    fields = (field.name for event in plan.events for field in event.fields)
    return list(dict.fromkeys([*names.of_roles, *lasting, *fields]))


def with_names(raw: RawTable, needed: Sequence[str]) -> RawTable:
    """The table with the columns that are needed under these names, as `new_names` finds them."""
    renamed = new_names(raw.name, raw.names, needed)
    if not renamed:
        return raw
    columns = raw.columns.rename_columns([renamed.get(column, column) for column in raw.names])
    declared = frozenset(renamed.get(name, name) for name in raw.declared)
    keys = frozenset(renamed.get(name, name) for name in raw.keys)
    nested = {renamed.get(name, name): numbers for name, numbers in raw.nested.items()}
    unknown = {renamed.get(name, name): kind for name, kind in raw.unknown.items()}
    return replace(raw, columns=columns, declared=declared, nested=nested, unknown=unknown, keys=keys)


def new_names(table: str, columns: Sequence[str], needed: Sequence[str]) -> dict[str, str]:
    """By column that is needed under another name: that name.

    A column is found by its exact name, else as the only one that differs in case only. Raises
    InputError if there are two of these, or two columns of one name; `table` is for the message.
    """
    refuse_repeated([column for column in columns if column], table)
    exact, wanted = set(columns), set(needed)
    alike: dict[str, list[str]] = {}
    for column in columns:
        if column not in wanted:
            alike.setdefault(column.casefold(), []).append(column)
    renamed: dict[str, str] = {}
    for name in needed:
        found = [] if name in exact else alike.get(name.casefold(), [])
        if len(found) > 1:
            raise InputError(f"{table}: has no column {name!r}, but {found[0]!r} and {found[1]!r}; rename one")
        if found and found[0] in renamed:
            raise InputError(f"{table}: column {found[0]!r} could be {renamed[found[0]]!r} or {name!r}; rename it")
        renamed |= dict.fromkeys(found, name)
    return renamed
