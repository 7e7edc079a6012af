"""The data files of a Delta table at one version, for a new job: in units, in order of arrival.

Files whose arrival times overlap are one unit: their records are ordered by arrival together. That
needs the log's statistics of the arrival column. Without them files are in order of modification.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any
from urllib.parse import unquote

from job_engine.delta.log import data_file, is_below
from job_engine.errors import SourceProblem
from job_engine.places.place import OutsidePath
from job_engine.sources.table.delta_source import DeltaSource
from job_engine.sources.table.table_units import ListedFile, TableFile, TablePosition
from runtime.natural_names import natural_key

MOST_FILES = 256
"""Files of one unit, whatever overlaps: they are read at once."""


class UnreadableTable(SourceProblem):
    """A table that cannot be read, or not any further; the text says why, and the way out."""


def position_at(source: DeltaSource, version: int | None, *, is_read: bool) -> TablePosition:
    """The position of a new job; `version`: None = the newest; `is_read`: nothing of it is left."""
    from job_engine.delta.log import fields_of, refuse_unreadable

    table = _opened(source, version)
    refuse_unreadable(source.place, table)
    columns = {field["name"]: json.dumps(field["type"]) for field in fields_of(table)}
    return TablePosition(str(table.metadata().id), table.version(), None if is_read else 0, columns)


def snapshot_units(source: DeltaSource, version: int) -> list[tuple[TableFile, ...]]:
    """The units of the table; the same for each call."""
    return [tuple(item.file for item in unit) for unit in listed_units(source, version)]


def listed_units(source: DeltaSource, version: int) -> list[tuple[ListedFile, ...]]:
    """As `snapshot_units`, with what the log says of each file."""
    import pyarrow as pa

    from job_engine.delta.log import has_deletion_vectors
    from job_engine.delta.package import delta_errors

    table = _opened(source, version)
    # the package would read them, wherever the log says that they are
    if "deletionVectors" in (table.protocol().reader_features or ()) and has_deletion_vectors(source.place, version):
        raise UnreadableTable(
            f"source '{source.name}': {source.folder}: version {version} has data files with deleted rows (deletion"
            " vectors), which a source cannot read. Rewrite them: REORG TABLE ... APPLY (PURGE)"
        )
    with delta_errors(source.place):
        rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    units = list(_units(rows, source.arrival))
    refuse_outside_files(source, [item.file for unit in units for item in unit])
    return units


def refuse_outside_files(source: DeltaSource, files: Sequence[TableFile]) -> None:
    """Raise UnreadableTable for a file outside of the table; links are resolved by its reader."""
    if source.outside_files:
        return
    for file in files:
        if not is_below(file.path):
            try:
                data_file(source.place, file.path)
            except OutsidePath as error:
                raise UnreadableTable(f"source '{source.name}': {error}") from error


def _opened(source: DeltaSource, version: int | None) -> Any:
    from job_engine.delta.package import open_table

    table = open_table(source.place, version)
    if table is None:
        raise UnreadableTable(f"source '{source.name}': {source.folder}: is not a Delta table")
    return table


def _units(rows: Sequence[Mapping[str, Any]], arrival: str) -> Iterator[tuple[ListedFile, ...]]:
    least, most = f"min.{arrival}", f"max.{arrival}"
    if any(row.get(least) is None or row.get(most) is None for row in rows):
        for row in sorted(rows, key=lambda row: (row["modification_time"], natural_key(row["path"]))):
            yield (_listed(row),)
        return
    unit: list[ListedFile] = []
    until: Any = None
    for row in sorted(rows, key=lambda row: (row[least], natural_key(row["path"]))):
        if unit and (row[least] >= until or len(unit) == MOST_FILES):
            yield tuple(unit)
            unit = []
        until = row[most] if not unit else max(until, row[most])
        unit.append(_listed(row))
    if unit:
        yield tuple(unit)


def _listed(row: Mapping[str, Any]) -> ListedFile:
    values = {name.removeprefix("partition."): value for name, value in row.items() if name.startswith("partition.")}
    least = {name.removeprefix("min."): value for name, value in row.items() if name.startswith("min.")}
    partition = {name: _text(value) for name, value in values.items()}
    file = TableFile(unquote(row["path"]), row["size_bytes"], row["num_records"], partition)
    return ListedFile(file, {name: value for name, value in (values | least).items() if value is not None})


def _text(value: object) -> str | None:
    """A partition's value as the log has it."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case datetime() | date():
            return value.isoformat()
        case _:
            return str(value)
