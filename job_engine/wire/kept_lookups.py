"""What the tables beside the stream of a job hold: files in its checkpoint, read once a process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

from job_engine.places.arrow_files import mapped_bytes
from job_engine.places.place import local_copy, place_of
from job_engine.wire.plan_text import load_plan
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError
from querylang.plan.lookups import lookups_in
from querylang.plan.model import Plan, Table
from runtime.interpreter import Value
from runtime.lookup_tables import LookupTable, definition_of, tables_of_plan, with_content
from runtime.number_arrays import Integers

KeptTables = tuple[tuple[str, str], ...]
"""By definition of a table (`definition_of`), the file with its content, sorted."""

_NEWEST: dict[str, tuple[str, LookupTable]] = {}
"""By definition, the file that was asked for last, and its content, which plans do not keep."""

_READING = Lock()


@dataclass(frozen=True, slots=True)
class KeptContent:
    """The content of a table, which is read when something is looked up in it."""

    table: Table
    file: str

    def row_of(self, keys: Sequence[Value], moment: int) -> int:
        """As of `TableContent`."""
        return self._held().row_of(keys, moment)

    def cell(self, field: str, row: int) -> Value:
        """As of `TableContent`."""
        return self._held().cell(field, row)

    def rows_of(self, keys: Sequence[Any], moments: Integers) -> Integers:
        """As of `TableContent`."""
        return self._held().rows_of(keys, moments)

    def column(self, field: str) -> Any:
        """As of `TableContent`."""
        return self._held().column(field)

    def _held(self) -> LookupTable:
        return read_kept(self.table, self.file)


def read_kept(table: Table, file: str) -> LookupTable:
    """The content of a table in a checkpoint; raises InputError if it cannot be read."""
    definition = definition_of(table)
    with _READING:
        found = _NEWEST.get(definition)
        if found is None or found[0] != file:
            found = _NEWEST[definition] = file, _read(table, file)
    return found[1]


def _read(table: Table, file: str) -> LookupTable:
    try:
        with local_copy(place_of(file)) as here, mapped_bytes(here) as source:
            return LookupTable.of_file(table, source)
    except (OSError, ValueError) as error:
        raise InputError(
            f"table '{table.name}': {file} cannot be read: {error}; restore it from a copy of the checkpoint"
        ) from error


def with_kept(plan: Plan, tables: KeptTables) -> Plan:
    """The plan whose tables have the content that a checkpoint has of them."""
    wanted = tables_of_plan(plan) if tables else []
    files = dict(tables)
    found = {table: KeptContent(table, files[of]) for table in wanted if (of := definition_of(table)) in files}
    return with_content(plan, found) if found else plan


@lru_cache(maxsize=64)
def plan_with_kept(text: str, tables: KeptTables) -> Plan:
    """The plan of a text, as of `with_kept`."""
    return with_kept(load_plan(text), tables)


def without_looking(plan: Plan) -> Plan:
    """The plan without filters that look something up.

    What they say depends on when a record arrives, which is known where it is processed.
    """
    if not any(query.tables for query in plan.queries):
        return plan
    queries = [
        replace(
            query,
            inputs=tuple(replace(item, filter=None) if any(lookups_in(item.filter)) else item for item in query.inputs),
        )
        if query.tables
        else query
        for query in plan.queries
    ]
    return replace(plan, queries=tuple(queries))
