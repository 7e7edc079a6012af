"""The records of a history table in order of arrival, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from job_engine.delta.log import data_file
from job_engine.places.arrow_files import write_parquet
from job_engine.places.local_path import LocalPath, temporary_folder
from job_engine.places.place import Place, local_copy, names_in, place_to_plain
from job_engine.settings.deployment import HistoryTable
from job_engine.sources.folder.listing import is_hidden
from job_engine.sources.table.commits import UnreadableTable, position_at, snapshot_units
from job_engine.sources.table.reading import table_of_file
from job_engine.sources.table.settings import DeltaSource
from querylang.errors import InputError, listed
from querylang.plan.model import Plan
from querylang.printable import warn
from runtime.natural_names import natural_key
from runtime.partition_paths import is_key, keys_of
from runtime.reading.column_names import ARRIVAL, ColumnNames, needed_names
from runtime.reading.formats.parquet_files import open_parquet
from runtime.reading.remarks import LackedColumns
from runtime.replay.records import FileToRead, Reading

Bounds = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A data file of the table, on this machine.

    name: below the table's folder
    columns: their names, and those of keys in the file's folders
    bounds: the least and the largest value of its column of arrivals; None = the file does not say
    """

    path: Path
    name: str
    columns: tuple[str, ...]
    bounds: Bounds | None


def column_names(table: HistoryTable) -> ColumnNames:
    """The names of its columns."""
    return ColumnNames(table.arrival, table.type_field, table.source_time, times=table.times)


@contextmanager
def local_files(table: HistoryTable, plan: Plan) -> Iterator[list[LocalFile]]:
    """The data files, in the order of the table; what was copied here is removed afterwards.

    Raises InputError if there is no such table, or if it cannot be read.
    """
    arrival = table.arrival or ARRIVAL
    with ExitStack() as stack, _plain_words(table):
        own = stack.enter_context(temporary_folder())
        is_delta = table.format == "delta"
        files = _of_delta(table, plan, stack, own) if is_delta else _of_folder(table, stack)
        found = []
        for path, name in files:
            with open_parquet(path) as parquet:
                names, metadata = parquet.schema_arrow.names, parquet.metadata
            file = LocalFile(path, name, (*names, *keys_of(name)), _bounds(metadata, arrival))
            if metadata.num_rows:
                _refuse_no_arrival(table, file, arrival)
                found.append(file)
        yield found


@contextmanager
def _plain_words(table: HistoryTable) -> Iterator[None]:
    try:
        yield
    except UnreadableTable as error:
        raise InputError(str(error).replace("source 'history'", "the history")) from error
    except pa.ArrowException as error:
        raise InputError(f"the history: {table.path}: cannot be read: {error}") from error


def _of_folder(table: HistoryTable, stack: ExitStack) -> Iterator[tuple[Path, str]]:
    if not table.path.is_dir():
        raise InputError(f"the history: {table.path}: is not a folder")
    for name in sorted(_names_below(table.path, ""), key=natural_key):
        yield stack.enter_context(local_copy(table.path / name)), name


def _names_below(folder: Place, above: str) -> Iterator[str]:
    """The data files in a folder, and in all folders of keys below it; `above`: its own name."""
    for name in names_in(folder):
        if is_hidden(name):
            continue
        if is_key(name) and (folder / name).is_dir():
            yield from _names_below(folder / name, f"{above}{name}/")
        elif name.lower().endswith(".parquet"):
            yield f"{above}{name}"


def _of_delta(table: HistoryTable, plan: Plan, stack: ExitStack, own: LocalPath) -> Iterator[tuple[Path, str]]:
    folder, store = place_to_plain(table.path)
    outside = table.outside_files
    source = DeltaSource("history", folder, table.arrival or ARRIVAL, outside_files=outside, store=store)
    position = position_at(source, None, is_read=False)
    needed = needed_names(plan, column_names(table))
    files = [file for unit in snapshot_units(source, position.version) for file in unit]
    for number, file in enumerate(files):
        path = data_file(table.path, file.path, outside=outside)
        if not path.is_file():
            raise InputError(f"the history: {path}: the data file no longer exists")
        copy = stack.enter_context(local_copy(path))
        with open_parquet(copy) as parquet:
            present = {name.casefold() for name in parquet.schema_arrow.names}
        if any(name.casefold() not in present for name in position.columns):
            whole = own / f"{number}.parquet"
            write_parquet(table_of_file(copy, file, position.columns, needed), whole)
            copy = whole
        yield copy, file.path


def _bounds(metadata: pq.FileMetaData, arrival: str) -> Bounds | None:
    """As the statistics of the file have them; None for text, whose order is another one."""
    least, most = [], []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(place) for place in range(group.num_columns)]
        found = next((item.statistics for item in columns if item.path_in_schema == arrival), None)
        if found is None or not found.has_min_max or isinstance(found.min, str | bytes):
            return None
        least.append(found.min)
        most.append(found.max)
    return (min(least), max(most)) if least else None


def _refuse_no_arrival(table: HistoryTable, file: LocalFile, arrival: str) -> None:
    if arrival not in file.columns:
        raise InputError(
            f"the history: {table.path}: '{file.name}' has no column '{arrival}' of arrival times; it has"
            f" {listed(map(repr, file.columns[:20]))}. Set 'arrival' under 'history'"
        )


def in_order(files: Sequence[LocalFile], plan: Plan, names: ColumnNames, prefix: str) -> Iterator[pa.Table]:
    """All records in order of arrival; those that arrive together are in the table's order.

    prefix: of the names of files in the coordinates of their records

    Files whose arrivals overlap are sorted together, on disk. A column that a file lacks and
    another one has is null there, with a warning.
    """
    lacked = LackedColumns({name for file in files for name in file.columns})
    names = replace(names, elsewhere=lacked)
    to_read = [FileToRead(file.path, f"{prefix}{file.name}", place, plan, names) for place, file in enumerate(files)]
    for cluster in clusters([file.bounds for file in files]):
        with temporary_folder() as folder:
            yield from Reading([to_read[place] for place in cluster]).pieces_by_runs(folder)
    for remark in lacked.remarks:
        warn(remark.text)


def clusters(bounds: Sequence[Bounds | None]) -> list[list[int]]:
    """Which files overlap, in order of arrival; in each the places of its files, ascending."""
    known = [item for item in bounds if item is not None]
    if len(known) < len(bounds) or len({type(value) for item in known for value in item}) > 1:
        return [list(range(len(bounds)))] if bounds else []
    found: list[list[int]] = []
    until: Any = None
    for place in sorted(range(len(known)), key=lambda place: (known[place][0], place)):
        least, most = known[place]
        if found and least <= until:
            found[-1].append(place)
        else:
            found.append([])
            found[-1].append(place)
        until = most if until is None else max(until, most)
    return [sorted(cluster) for cluster in found]
