"""Jobs over files of sensor readings: their queries, deployment files and data, and what comes out."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

import querylang
from runtime.columns.arrivals import Arrivals
from runtime.reading.tables import read_arrivals
from runtime.results.schemas import Results
from tests.support.embedded import embedded, match_ids

QUERY = """\
@TimeFrom("getTime")
@OutOfOrder()
event Reading { string sensor; float value; float ts; action getTime() returns float { return ts; } }

query Rise {
    inputs { Reading() key sensor within 20.0 wait 5.0; }
    find Reading as first -> Reading as second where second.value > first.value + 50.0 {
        send Reading(second.sensor, second.value - first.value, second.ts) to "rises";
    }
}
query Jump {
    inputs { Reading(value > 80.0) within 3.0 wait 5.0; }
    find Reading as first -> Reading as second { print first.sensor + second.sensor; }
}
"""

DEPLOYMENT = """\
name: sensors
queries: [sensors.query]
sources:
  readings: {{format: {format}, path: data, options: {{maxFilesPerTrigger: {files}}}}}
control: {{format: json, path: control}}
sinks:
  matches:   {{format: {sink}, path: out/matches}}
  output:    {{format: {sink}, path: out/output}}
  discarded: {{format: {sink}, path: out/discarded}}
  ledger:    {{format: {sink}, path: out/ledger}}
buckets: {buckets}
checkpoint: state
"""

TWO_FOLDERS = """\
name: sensors
queries: [sensors.query]
sources:
  north: {format: parquet, path: north, event: Reading, options: {maxFilesPerTrigger: 1}}
  south: {format: parquet, path: south, event: Reading, options: {maxFilesPerTrigger: 1}}
sinks:
  matches: {format: parquet, path: out/matches}
trigger: 200ms
idle: none
buckets: 2
checkpoint: state
"""

ROWS = 3000


def table(rows: int = ROWS, seed: int = 7) -> pd.DataFrame:
    """Readings 0.1 s apart in order of arrival, up to 8 s late."""
    random = np.random.default_rng(seed)
    at = 1_700_000_000 + np.arange(rows) * 0.1
    return pd.DataFrame(
        {
            "at": pd.to_datetime(at, unit="s", utc=True).round("us"),
            "event": "Reading",
            "sensor": [f"s{number}" for number in random.integers(0, 30, rows)],
            "value": random.random(rows) * 100,
            "ts": at - random.random(rows) * 8,
        }
    )


def project(folder: Path, *, kind: str = "parquet", sink: str = "parquet", files: int = 1, buckets: int = 3) -> Path:
    """One source, a control stream, every sink; the deployment file."""
    (folder / "data").mkdir(exist_ok=True)
    (folder / "control").mkdir(exist_ok=True)
    (folder / "sensors.query").write_text(QUERY)
    text = DEPLOYMENT.format(format=kind, sink=sink, files=files, buckets=buckets)
    (folder / "sensors.yaml").write_text(text)
    return folder / "sensors.yaml"


def project_of_two(folder: Path, *, ledger: bool = False) -> Path:
    """Two sources of the same event type; the deployment file."""
    for name in ("north", "south"):
        (folder / name).mkdir()
    (folder / "sensors.query").write_text(QUERY)
    sink = "  ledger: {format: parquet, path: out/ledger}\ntrigger" if ledger else "trigger"
    (folder / "sensors.yaml").write_text(TWO_FOLDERS.replace("trigger", sink))
    return folder / "sensors.yaml"


def add_files(
    folder: Path, rows: pd.DataFrame, count: int, first: int = 0, kind: str = "parquet", source: str = "data"
) -> None:
    """The rows in so many files of a source's folder, numbered from `first`, which is their order of modification too.

    Each is written aside: a job may be reading the folder.
    """
    for number, part in enumerate(np.array_split(np.arange(len(rows)), count), first):
        whole = folder / source / f"{number:03}.{kind}"
        path = whole.with_name(f".{whole.name}")
        piece = rows.iloc[part]
        match kind:
            case "parquet":
                piece.to_parquet(path)
            case "csv":
                piece.to_csv(path, index=False)
            case "json":
                piece.to_json(
                    path, orient="records", lines=True, date_format="iso", date_unit="us", double_precision=15
                )
        os.utime(path, (1e9 + number, 1e9 + number))
        path.rename(whole)


def streamed(folder: Path) -> dict[str, list[str]]:
    """Match ids by query, as a job wrote them, sorted."""
    base = folder / "out" / "matches"
    names = sorted(path.name for path in base.iterdir())
    return {name: sorted(pd.read_parquet(base / name)["match_id"]) for name in names}


def expected(folder: Path) -> dict[str, list[str]]:
    """As `streamed`, by one engine in this process over the same files."""
    return match_ids(answer(folder))


def answer(folder: Path) -> Results:
    """What one engine in this process gives over the files of a job."""
    plan = querylang.compile_paths([folder / "sensors.query"]).plan
    is_one = (folder / "data").exists()
    parts = [
        read_arrivals(path, plan, source=path.name if is_one else f"{name}/{path.name}")
        for name in (("data", "control") if is_one else ("north", "south"))
        for path in sorted((folder / name).iterdir())
    ]
    return embedded(plan, Arrivals.concat(parts))


def totals(ledger: dict[tuple[str, str, str], int], query: str) -> dict[str, int]:
    result: dict[str, int] = {}
    for (name, _, what), count in ledger.items():
        if name == query:
            result[what] = result.get(what, 0) + count
    return result
