"""A change of the queries reaches a job that runs and has not read anything yet."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from job_engine.setting_keys import Engine
from tests.support.killed_runs import ROOT, start, wait_until
from tests.support.readings_job import write_job
from tests.support.waiting import LONGEST

EVENT = "event Reading { string sensor; float value; }\n"
RISING = "query Rising { inputs { Reading() key sensor within 60 seconds; } find Reading:a -> Reading:b where b.value > a.value }\n"
FALLING = RISING.replace("60 seconds", "90 seconds").replace("b.value > a", "b.value < a")
SINKS = {name: {"path": f"out/{name}", "format": "json"} for name in ("matches", "output")}


@contextmanager
def running(job: Path) -> Iterator[subprocess.Popen[str]]:
    """`ensue run` on a job, from where its checkpoint can take commands."""
    process = start(job, "-m", "ensue", "run")
    try:
        wait_until(process, (job.parent / "state" / "ensue.json").exists)
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=LONGEST)


def ensue(*arguments: object) -> str:
    """What a command prints."""
    words = [sys.executable, "-m", "ensue", *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST)
    assert done.returncode == 0, done.stderr
    return done.stdout


def live(job: Path) -> list[list[str]]:
    """What `ensue status` says of the texts that run."""
    return [line.split() for line in ensue("status", job).splitlines() if " live " in line]


def rows(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for file in sorted(folder.rglob("*.json")) for line in file.read_text().splitlines()]


def test_a_change_before_the_first_record_is_taken_at_once_and_has_its_time(
    tmp_path: Path, engine_of_processes: Engine
) -> None:
    (tmp_path / "in").mkdir()
    job = write_job(tmp_path, EVENT + RISING, sinks=SINKS, buckets=1)
    changed = tmp_path / "changed.query"
    changed.write_text(EVENT + FALLING)
    with running(job) as process:
        assert "before all records" in ensue("replace", job, changed)
        wait_until(process, lambda: live(job))  # a local job writes its progress once a second
        assert live(job) == [["Rising", "live", "the", "beginning"]]
        (tmp_path / "in" / "1.csv").write_text("at,sensor,value\n1000,a,1\n1001,a,2\n1002,a,1\n")
        wait_until(process, lambda: rows(tmp_path / "out" / "matches") and rows(tmp_path / "out" / "output"))
    (match,) = rows(tmp_path / "out" / "matches")
    assert match["time"] == "1970-01-01T00:16:42.000000Z"
    (change,) = rows(tmp_path / "out" / "output")
    assert (change["kind"], change["time"]) == ("replaced", "1970-01-01T00:16:40.000000Z")
