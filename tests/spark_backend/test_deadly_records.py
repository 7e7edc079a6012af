"""A job meets records that end the worker which reads them: it leaves them out, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from job_engine.setting_keys import Engine
from tests.support.maven import fetched_jars
from tests.support.stores import StoreServer
from tests.support.waiting import LONGEST

ROOT = Path(__file__).resolve().parents[2]
POM = ROOT / "tests" / "support" / "hadoop_aws" / "pom.xml"

QUERY = "event A { integer n; }\nquery Q { inputs { A() retain 1; } find A as a }\n"

DEPLOYMENT = """\
name: numbers
queries: [q.query]
sources:
  numbers: {format: json, path: data, event: A}
sinks:
  matches:   {format: csv, path: out/matches}
  discarded: {format: csv, path: out/discarded}
checkpoint: state
"""


@pytest.mark.parametrize(
    ("is_in_store", "engine_of_processes"),
    [(False, Engine.LOCAL), (True, Engine.LOCAL), (True, Engine.SPARK)],
    indirect=["engine_of_processes"],
)
def test_a_job_leaves_out_a_line_that_ends_its_workers(
    tmp_path: Path, store: StoreServer, is_in_store: bool, engine_of_processes: Engine
) -> None:
    (tmp_path / "q.query").write_text(QUERY)
    deployment = DEPLOYMENT
    if is_in_store:
        deployment = DEPLOYMENT.replace("checkpoint: state", "checkpoint: s3://bucket/state")
    if is_in_store and engine_of_processes is Engine.SPARK:
        jars = sorted(map(str, fetched_jars(POM, ROOT / "build" / "hadoop-aws" / "jars").iterdir()))
        deployment += f"spark: {{jars: [{', '.join(jars)}]}}\n"
    (tmp_path / "job.yaml").write_text(deployment)
    (tmp_path / "data").mkdir()
    lines = [json.dumps({"at": number, "n": number}) for number in range(20)]
    (tmp_path / "data" / "a.jsonl").write_text("\n".join(lines))
    lines[4], lines[13] = '{"at": 4, "n": "deadly"}', "null"
    (tmp_path / "data" / "b.jsonl").write_text("\n".join(lines))
    path = f"{ROOT / 'tests' / 'support' / 'deadly_reader'}:{ROOT}"
    done = subprocess.run(
        [sys.executable, "-m", "ensue", "run", "--once", "job.yaml"],
        cwd=tmp_path,
        env=os.environ | store.environment | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "signal 11" in line]
    assert [line.partition("(micro-batch ")[2] for line in told] == [
        "0, first try). It is tried again",
        "0, second try). It is tried again",
    ]
    what = " while it read source 'numbers': b.jsonl"
    assert [what in line for line in told] == [not is_in_store, True]  # in a store nothing is marked at first
    assert all("signal 11 (Segmentation fault)" in line for line in told)
    matches = pd.concat([pd.read_csv(file) for file in (tmp_path / "out" / "matches").rglob("*.csv")])
    discarded = pd.concat([pd.read_csv(file) for file in (tmp_path / "out" / "discarded").rglob("*.csv")])
    assert len(matches) == 38
    assert sorted(zip(discarded["source"], discarded["offset"], discarded["reason"], strict=True)) == [
        ("b.jsonl", 5, "malformed"),
        ("b.jsonl", 14, "malformed"),
    ]
    assert [key for key in store.keys("state/ensue/crashes/") if "/reading-" in key] == []
    assert len(store.keys("state/ensue/crashes/")) == 2 * is_in_store  # the line, and how often it was tried
