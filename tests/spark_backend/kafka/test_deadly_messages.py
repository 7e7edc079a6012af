"""A job over a topic of a real broker meets messages that end its workers, and others that once did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from job_engine.setting_keys import Engine
from tests.support.kafka.broker import Broker
from tests.support.waiting import LONGEST

ROOT = Path(__file__).resolve().parents[3]

DEPLOYMENT = """\
name: numbers
queries: [q.query]
sources:
  numbers:
    format: kafka
    options: {{kafka.bootstrap.servers: "{servers}", subscribe: {topic}}}
    event: A
sinks:
  matches:   {{format: csv, path: out/matches}}
  discarded: {{format: csv, path: out/discarded}}
checkpoint: state
"""


def rows(folder: Path) -> pd.DataFrame:
    return pd.concat([pd.read_csv(file) for file in folder.rglob("*.csv")])


@pytest.mark.parametrize("skips", [False, True])
def test_messages_that_end_workers_are_left_out_and_nothing_else(
    tmp_path: Path, broker: Broker, skips: bool, engine_of_processes: Engine
) -> None:
    topic = broker.topic(partitions=2)
    values = [json.dumps({"n": number}).encode() for number in range(400)]
    values[0] = values[2] = b"null"
    values[100], values[301] = b'{"n": "deadly"}', b'{"n": [null, 1]}\n null'
    broker.produce(topic, [(number % 2, 1_700_000_000_000 + number, value) for number, value in enumerate(values)])
    (tmp_path / "q.query").write_text("event A { integer n; }\nquery Q { inputs { A() retain 1; } find A as a }\n")
    (tmp_path / "job.yaml").write_text(DEPLOYMENT.format(servers=broker.servers, topic=topic))
    skip = ["--skip", f"{topic}/0/50"] if skips else []
    done = subprocess.run(
        [sys.executable, "-m", "ensue", "run", "--once", *skip, "job.yaml"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'tests' / 'support' / 'deadly_reader'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "signal 11" in line]
    assert len(told) == (0 if skips else 2)
    assert all(f"{topic}/0, offsets 0 to 199" in line for line in told)
    assert len(rows(tmp_path / "out" / "matches")) == 396
    discarded = rows(tmp_path / "out" / "discarded")
    found = sorted(zip(discarded["partition"], discarded["offset"], discarded["reason"], strict=True))
    assert found == [(0, 0, "malformed"), (0, 1, "malformed"), (0, 50, "malformed"), (1, 150, "malformed")]
    why = "left out by --skip" if skips else "reading it ends the process with signal 11 (Segmentation fault)"
    assert any(why in str(row) for row in discarded.to_dict("records"))
