"""Looks at tables before they are read: at those columns only that are called like ours."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from querylang.dataclass import dataclass, field, replace
from querylang.printable import warn
from runtime.file_forms import kind_of, path_of
from runtime.reading.column_names import PLACES, SOURCE, STANDARD_NAMES, TYPE, ColumnNames, with_names
from runtime.reading.formats.encodings import plain_file, without_broken_text
from runtime.reading.formats.parquet_files import open_parquet
from runtime.reading.formats.raw_table import RawTable
from runtime.reading.remarks import lacks_column
from runtime.reading.tables import in_plain_words, iter_raw

FEW = 4_096
"""Rows that are looked at first."""

_BLOCK = 4 << 20
"""Bytes of a file that are searched at a time."""

_JSON = (".json", ".jsonl", ".ndjson")
"""Files whose names of columns are known at their end only."""

_OPTIONS = {TYPE: "--type", "at": "--arrival", "ts": "--source-time"} | {name: f"--{name}-column" for name in PLACES}


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided about tables.

    columns: by table: how it is read; the name of a role that no column has is `none`
    remarks: what may surprise, a line each
    sources: by table: its name
    places: by table: the roles of places that it has columns of which nobody has named
    untyped: by number of a table whose texts in the column of types are not types: one of them, as
        messages show it
    """

    columns: tuple[ColumnNames, ...]
    remarks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    places: tuple[frozenset[str], ...] = ()
    untyped: Mapping[int, str] = field(default_factory=dict)

    def with_read(self, read: Collection[str]) -> Decided:
        """The same where queries read such fields of events that nothing defines.

        Then such a column of places is a field alone. Times and types stay what they are.
        """
        columns, remarks = list(self.columns), list(self.remarks)
        for place, (source, roles) in enumerate(zip(self.sources, self.places, strict=True)):
            for role in sorted(roles & set(read)):
                columns[place] = columns[place].without(role)
                remarks.append(remark(source, role, role, f"the {role} of records", "a query reads it"))
        return replace(self, columns=tuple(columns), remarks=tuple(remarks))


def remark(table: str, role: str, name: str, what: str, why: str, *, can_be_named: bool = True) -> str:
    """That a column is a field.

    what: what it is not
    can_be_named: whether users can say that it is ours nevertheless
    """
    way_out = f"; `{_OPTIONS[role]} {name}` says otherwise" if can_be_named else ""
    return f"{table}: {name!r} is a field, not {what}: {why}{way_out}"


@dataclass(frozen=True)
class Look:
    """A table that is looked at; `name`: of its source."""

    table: Any
    name: str
    names: ColumnNames

    def parts(self, roles: Collection[str], rows: int | None = None) -> Iterator[RawTable]:
        """Its parts, with the columns of these roles.

        rows: most rows of a part, if its reader can choose
        """
        wanted = [name for role in roles if (name := self.names.of(role)) is not None]
        only = frozenset(name.casefold() for name in wanted)
        asked = replace(self.names.asked(wanted=only, rows=rows), only=only)
        texts = [name for role in (TYPE, SOURCE) if role in roles and (name := self.names.of(role)) is not None]
        for part in iter_raw(self.table, self.name, asked):
            named = self.names.as_written(with_names(part, wanted))
            yield without_broken_text(named, wanted, texts, self.names.csv)[0]

    @cached_property
    def head(self) -> Sequence[RawTable]:
        """Its parts up to the first one that has rows, with the columns of all roles."""
        few = self.table[:FEW] if _is_list(self.table) else self.table
        parts = []
        for part in replace(self, table=few).parts(STANDARD_NAMES, FEW):
            parts.append(part)
            if len(part):
                break
        return parts

    @cached_property
    def roles(self) -> frozenset[str]:
        """The roles that the table has columns of, or may have."""
        wanted = {name.casefold(): role for role in STANDARD_NAMES if (name := self.names.of(role)) is not None}
        if _is_list(self.table) or _is_json(self.table):
            names = columns_in(self.table, list(wanted), self.names)
        elif _is_parquet(self.table):
            names = {name.casefold() for name in self._parquet_names()}
        else:
            names = {name.casefold() for part in self.head for name in part.names}
        return frozenset(role for name, role in wanted.items() if name in names)

    def _parquet_names(self) -> Sequence[str]:
        """The names of columns, without rows; of a damaged file its reader says what is wrong."""
        try:
            with open_parquet(self.table) as file:
                names: Sequence[str] = file.schema_arrow.names
        except (pa.ArrowException, OSError):
            return [name for part in self.head for name in part.names]
        return names


class TablesElsewhere:
    """The columns that any of several tables has; it looks once somebody asks for one."""

    def __init__(self, tables: Sequence[Any], names: ColumnNames) -> None:
        """names: how the tables are read"""
        self._tables = tables
        self._names = names
        self._has: dict[str, bool] = {}
        self._told: set[tuple[str, str]] = set()

    def __contains__(self, name: object) -> bool:
        """Whether some table has a column of this name."""
        text = str(name)
        if text not in self._has:
            wanted = [text.casefold()]
            self._has[text] = any(columns_in(table, wanted, self._names) for table in self._tables)
        return self._has[text]

    def tell(self, table: str, column: str) -> None:
        """Log that a table lacks a column, once."""
        if (table, column) not in self._told:
            self._told.add((table, column))
            warn(lacks_column(table, column))


def columns_in(table: Any, wanted: Sequence[str], names: ColumnNames) -> set[str]:
    """Those of these columns, in lower case, that a table has; of JSON files, that it may have."""
    if _is_list(table):
        found = {str(name).casefold() for name in set().union(*filter(_is_row, table))}
    elif _is_json(table):
        found = _names_in(path_of(table), wanted, names)
    else:
        asked = replace(names.asked(wanted=frozenset(wanted), rows=FEW), only=frozenset(wanted))
        part = next(iter_raw(table, "", asked), None)
        found = set() if part is None else {name.casefold() for name in part.names}
    return found & set(wanted)


def may_lack(table: Any) -> bool:
    """Whether a table may lack columns that `columns_in` finds."""
    return _is_json(table)


def _is_list(table: Any) -> bool:
    return isinstance(table, Sequence) and not isinstance(table, str)


def _is_row(item: Any) -> bool:
    return isinstance(item, Mapping)


def _is_parquet(table: Any) -> bool:
    """Whether it is a Parquet file whose names are known without reading rows."""
    return isinstance(table, str | Path) and Path(table).suffix.lower() == ".parquet" and Path(table).is_file()


def _is_json(table: Any) -> bool:
    return isinstance(table, str | Path) and kind_of(Path(table))[0] in _JSON


def _names_in(path: Path, names: Sequence[str], columns: ColumnNames) -> set[str]:
    """Those of these names that a JSON file has in quotes somewhere, in upper or lower case."""
    left = {f'"{name}"'.encode(): name for name in names}
    found: set[str] = set()
    longest = max(map(len, left), default=0)
    with in_plain_words(path), plain_file(path, columns.asked()) as plain, plain.open("rb") as file:
        behind = b""
        while left and (block := file.read(_BLOCK)):
            text = (behind + block).lower()
            found |= {name for quoted, name in left.items() if quoted in text}
            left = {quoted: name for quoted, name in left.items() if name not in found}
            behind = text[-longest:]
    return found
