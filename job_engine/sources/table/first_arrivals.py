"""Look up when the first record of a table's data file arrives, before the file is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from job_engine.delta.log import data_file
from job_engine.places.place import local_copy
from job_engine.sources.any_column import ANY_COLUMN
from job_engine.sources.first_arrivals import earliest, of_each, of_statistics, reading_of_source
from job_engine.sources.reading import Reading
from job_engine.sources.table.delta_source import DeltaSource
from job_engine.sources.table.table_units import ListedFile
from job_engine.sources.table.unit_reading import table_of_file, value_of_log
from job_engine.wire.program import load_program
from querylang.errors import InputError
from runtime.json_reader import json_of_text
from runtime.reading.column_names import needed_names

_IN_ORDER = frozenset({"byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz"})
"""Types of columns whose least value arrives first, unlike that of text."""


def first_arrivals_in_table(
    options: Mapping[str, str], source: DeltaSource, files: Sequence[ListedFile], columns: Mapping[str, str]
) -> list[int | None]:
    """As `first_arrivals`, of data files of a Delta table: by the log, or else by the files.

    columns: as in `TableUnit`
    """
    reading, plan = reading_of_source(options, source.name), load_program(options["program"]).plan()

    def first(item: ListedFile) -> int | None:
        known = _of_log(item, source, columns, reading)
        if known is not None:
            return known
        place = data_file(source.place, item.file.path, outside=source.outside_files)
        own = replace(reading, source=reading.prefix + item.file.path)
        try:
            with local_copy(place) as copy:
                known = of_statistics(copy, own)
                if known is not None:
                    return known
                table = table_of_file(copy, item.file, columns, needed_names(plan, own.columns))
                return own.least_arrival(table, plan, ANY_COLUMN)
        except (FileNotFoundError, InputError, pa.ArrowException):
            return None  # whoever reads it reports it

    return of_each(source.place, first, files)


def _of_log(item: ListedFile, source: DeltaSource, columns: Mapping[str, str], reading: Reading) -> int | None:
    """The least arrival by the log's statistics of a data file; None = not known."""
    value, kind = item.least.get(source.arrival), json_of_text(columns.get(source.arrival, "null"), object)
    if value is None or not isinstance(kind, str) or kind not in _IN_ORDER:
        return None
    try:
        return earliest(value_of_log(value, kind) if isinstance(value, str) else pa.array([value]), reading)
    except (pa.ArrowException, ValueError, OverflowError):
        return None  # damaged
