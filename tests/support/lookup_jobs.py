"""A job that looks up the rooms of sensors in a table beside its stream, which changes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd

import ensue
import querylang
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.lookup_files import read_tables
from runtime.columns.arrivals import Arrivals
from runtime.lookup_tables import GivenTables
from runtime.reading.tables import read_arrivals
from tests.support.embedded import embedded, match_ids
from tests.support.local_jobs import local
from tests.support.sensors import add_files, project, streamed, table, totals

QUERY = """\
@TimeFrom("ts")
@OutOfOrder()
event Reading { string sensor; float value; float ts; }
table Place { key string sensor; string room; float least; }

query Rise {
    inputs { Reading(value > Place.getOrDefault(sensor).least) key sensor within 20.0 wait 5.0; }
    find Reading as a -> Reading as b where Place[a.sensor].room = "hall" select Place[b.sensor].room as room {
        print Place[a.sensor].room;
    }
}
query Rooms {
    inputs { Reading() within 2.0 wait 5.0; }
    find Reading as a -> Reading as b where Place[a.sensor].room = Place[b.sensor].room and a.sensor != b.sensor
}
"""
ROOMS = ("hall", "yard", "attic")


def write_places(folder: Path, version: int, sensors: int = 30) -> None:
    """The rooms of sensors; a third of them is another one in the next version."""
    rows = [f"s{n},{ROOMS[(n + version * (n % 3 == 0)) % 3]},{20.0 * (n % 3)}\n" for n in range(sensors)]
    (folder / "places.csv").write_text("sensor,room,least\n" + "".join(rows))
    os.utime(folder / "places.csv", (2e9 + version, 2e9 + version))


def room(sensor: str, version: int) -> str:
    n = int(sensor[1:])
    return ROOMS[(n + version * (n % 3 == 0)) % 3]


def job(folder: Path, files: int = 3, **settings: Any) -> Path:
    """A job that has the first half of its records."""
    path = local(project(folder))
    text = path.read_text() + "tables: " + json.dumps({"Place": {"path": "places.csv", **settings}}) + "\n"
    path.write_text(text)
    (folder / "sensors.query").write_text(QUERY)
    write_places(folder, 0)
    add_files(folder, table().iloc[:1500], files)
    return path


def rest(folder: Path) -> None:
    add_files(folder, table().iloc[1500:], 3, first=3)


def content(folder: Path) -> Path:
    """The file with all versions that a checkpoint has."""
    (kept,) = read_tables(folder / "state")
    return folder / "state/ensue/lookups" / kept.file


def assert_like_a_replay(folder: Path, places: Any = None) -> None:
    places = content(folder) if places is None else places
    plan = GivenTables({"Place": places}).bound(querylang.compile_paths([folder / "sensors.query"]).plan)
    files = sorted((folder / "data").iterdir())
    wanted = match_ids(embedded(plan, Arrivals.concat([read_arrivals(file, plan, source=file.name) for file in files])))
    assert all(len(ids) > 20 for ids in wanted.values())
    assert streamed(folder) == wanted
    result = ensue.replay(folder / "sensors.query", table(), tables={"Place": places}, flush=True)
    total = JobFolder(folder / "state").ledger.total()
    for name in wanted:
        counts = result.ledger[result.ledger["query"] == name].groupby("what")["count"].sum().to_dict()
        found = totals(total, name)
        assert {word: n for word, n in found.items() if n} == {word: n for word, n in counts.items() if n}


def versions_of(version_at: pd.Timestamp) -> pd.DataFrame:
    """Both versions by hand: the second holds behind an arrival."""
    first = version_at + pd.Timedelta(microseconds=1)
    rows = []
    for n in range(30):
        least = 20.0 * (n % 3)
        rows += [(f"s{n}", room(f"s{n}", 0), least, None, first), (f"s{n}", room(f"s{n}", 1), least, first, None)]
    return pd.DataFrame(rows, columns=["sensor", "room", "least", "valid_from", "valid_to"])
