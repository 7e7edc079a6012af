"""Keys that may be missing in a job: between micro-batches and runs, in other buckets, shown and forgotten."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.job import run as run_once
from job_engine.job.upkeep.keys import forget, job_state
from job_engine.job.upkeep.moving import rebucket
from runtime.results.for_users import Plain
from tests.support.local_jobs import local
from tests.support.sensors import QUERY, add_files, expected, project, streamed, table, totals

EVENT, _, _ = QUERY.partition("query")
QUERIES = """
query Rise {
    inputs { Reading() key sensor? within 20.0 wait 5.0; }
    find Reading as first -> Reading as second where second.value > first.value + 80.0
    { print sensor.getOr("none"); }
}
query Limited {
    inputs { Reading() key sensor? within 20.0 new by value within 1 minute wait 5.0; }
    find Reading as first -> wait(2.0) at most 1 per 1 minute
}
query Known {
    inputs { Reading() key sensor within 20.0 wait 5.0; }
    find Reading as first -> Reading as second where second.value > first.value + 80.0
}
"""


MISSING = '{"sensor": null}'


def states_of(path: Path, key: str) -> list[Plain]:
    """What is kept of a key, by query."""
    return [item.to_plain() for item in job_state(path, [key]).keys or ()]


def readings() -> pd.DataFrame:
    """A third of the sensors has no name, a third has the empty name."""
    rows = table(400)
    number = rows["sensor"].str.removeprefix("s").astype(int)
    return rows.assign(sensor=rows["sensor"].where(number % 3 != 0, None).where(number % 3 != 1, ""))


def job(folder: Path) -> Path:
    path = local(project(folder))
    (folder / "sensors.query").write_text(EVENT + QUERIES)
    add_files(folder, readings(), 4)
    return path


def test_the_missing_key_goes_to_other_buckets_with_its_state_is_shown_and_forgotten(tmp_path: Path) -> None:
    path = job(tmp_path)
    later = sorted((tmp_path / "data").iterdir())[2:]
    texts = [file.read_bytes() for file in later]
    for file in later:
        file.unlink()
    run_once(path, once=True)
    shown = states_of(path, MISSING)
    assert [(item["query"], item["key"]) for item in shown] == [
        (name, {"sensor": None}) for name in ("Rise", "Limited")
    ]
    assert all(event["fields"]["sensor"] is None for item in shown for event in item["events"])
    assert shown[0]["events"]
    assert shown[1]["values"]
    rebucket(path, 2)
    path.write_text(path.read_text().replace("buckets: 3", "buckets: 2"))
    for file, text in zip(later, texts, strict=True):
        file.write_bytes(text)
    run_once(path, once=True, flush=True)
    assert streamed(tmp_path) == expected(tmp_path)
    tables = {name: pq.read_table(tmp_path / "out/matches" / name) for name in streamed(tmp_path)}
    keys = {name: {key["sensor"] for key in own.column("key").to_pylist()} for name, own in tables.items()}
    has_both = {None, ""}
    assert {name: has_both & own for name, own in keys.items()} == {
        "Rise": has_both,
        "Limited": has_both,
        "Known": {""},
    }
    outputs = pq.read_table(tmp_path / "out/output").select(["text", "key"]).to_pylist()
    assert {row["text"] for row in outputs if json.loads(row["key"]) == {"sensor": None}} == {"none"}
    ledger = JobFolder(tmp_path / "state").ledger.total()
    assert "null_key" not in totals(ledger, "Rise")
    assert totals(ledger, "Known")["null_key"] == int(readings()["sensor"].isna().sum())
    forget(path, [MISSING])
    run_once(path, once=True)
    assert not any(item["events"] or item.get("values") for item in states_of(path, MISSING))
    assert states_of(path, "")[0]["events"]
