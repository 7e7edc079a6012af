"""Values that clauses store, in a job: between micro-batches and runs, moved to other buckets, shown and forgotten."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.job import run as run_once
from job_engine.job.upkeep.keys import forget, job_state
from job_engine.job.upkeep.moving import rebucket
from tests.support.local_jobs import CrashAt, crashed, local, run
from tests.support.sensors import QUERY, add_files, expected, project, streamed, table, totals

NEW = """
query New {
    inputs { Reading() key sensor within 20.0 new by value within 1 minute wait 5.0; }
    find Reading as first -> Reading as second where second.value = first.value + 1.0
}
query NewOfAll {
    inputs { Reading() within 20.0 new by sensor, value within 2 minutes wait 5.0; }
    find Reading as reading where reading.value > 2.0
}
"""
LIMITED = """
query Limited {
    inputs { Reading() key sensor within 20.0 wait 5.0; }
    find Reading as first -> Reading as second where second.value > first.value
        select second.value - first.value as rise
        at most 2 per 1 minute by rise
}
query LimitedInAll {
    inputs { Reading() within 5.0 wait 5.0; }
    find every Reading as reading select count() as many having count() > 3 at most 1 per 10 seconds by many % 2
}
query LimitedAtEnd {
    inputs { Reading() key sensor within 20.0 wait 5.0; }
    find Reading as first -> wait(2.0) at most 1 per 1 minute by first.value
}
"""
EVENT, _, _ = QUERY.partition("query")


def readings() -> pd.DataFrame:
    """Few different values."""
    return table(1200).assign(value=lambda rows: (rows["value"] // 20).astype(float))


def job(folder: Path, queries: str) -> Path:
    path = local(project(folder))
    (folder / "sensors.query").write_text(EVENT + queries)
    add_files(folder, readings(), 6)
    return path


@pytest.mark.parametrize("queries", [NEW, LIMITED], ids=["new", "at most"])
def test_a_job_that_crashes_and_begins_again_gives_what_a_replay_gives(tmp_path: Path, queries: str) -> None:
    path = job(tmp_path, queries)
    crashed(path, CrashAt("begun", 3), interval=0.0)
    crashed(path, CrashAt("states", 1))
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)
    assert all(streamed(tmp_path).values())


def test_values_go_with_their_keys_to_other_buckets(tmp_path: Path) -> None:
    path = job(tmp_path, NEW + LIMITED)
    later = sorted((tmp_path / "data").iterdir())[3:]
    texts = [file.read_bytes() for file in later]
    for file in later:
        file.unlink()
    run_once(path, once=True)
    rebucket(path, 2)
    path.write_text(path.read_text().replace("buckets: 3", "buckets: 2"))
    for file, text in zip(later, texts, strict=True):
        file.write_bytes(text)
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)


def test_the_state_shows_values_and_forgets_those_of_a_key(tmp_path: Path) -> None:
    path = job(tmp_path, NEW + LIMITED)
    run_once(path, once=True)
    sizes = {size.query: size.to_plain()["values"] for size in job_state(path).sizes}
    assert sizes["New"] > 100
    (state, *_) = job_state(path, ["s1"]).keys or ()
    (first, *_) = state.to_plain()["values"]
    assert first["clause"] == "`new by` of Reading"
    assert list(first["values"]) == ["value"]
    assert pd.Timestamp(first["until"]) - pd.Timestamp(first["time"]) == pd.Timedelta(seconds=60)
    (_, limited, *_) = job_state(path, ["s1"]).keys or ()
    (first, *_) = limited.to_plain()["values"]
    assert (first["clause"], list(first["values"])) == ("`at most`", ["second.value - first.value"])
    counts = totals(JobFolder(tmp_path / "state").ledger.total(), "New")
    assert counts["not_new"] > 0
    assert counts.pop("received") == sum(counts.values())
    counts = totals(JobFolder(tmp_path / "state").ledger.total(), "Limited")
    assert counts["found"] == counts["given"] + counts["suppressed"] > counts["given"] > 0
    forget(path, ["s1"])
    run_once(path, once=True)
    assert not any("values" in state.to_plain() for state in job_state(path, ["s1"]).keys or ())
