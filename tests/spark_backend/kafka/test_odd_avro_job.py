"""A job over a topic of a real broker meets odd messages in Avro, and odd answers of a registry: all else is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

from job_engine.setting_keys import Engine
from tests.support.kafka.broker import Broker
from tests.support.kafka.registry import encoded, record, running_registry
from tests.support.waiting import LONGEST

DEPLOYMENT = """\
name: numbers
queries: [q.query]
sources:
  numbers:
    format: kafka
    decode: avro
    options: {{kafka.bootstrap.servers: "{servers}", subscribe: {topic}, schema.registry.url: "{registry}"}}
    event: A
sinks:
  matches:   {{format: csv, path: out/matches}}
  discarded: {{format: csv, path: out/discarded}}
checkpoint: state
"""

GOOD = record("A", {"n": "long"})
DEEP = record("A", {"n": "long", "next": ["null", "A"]})
EMPTY_ITEMS = record("A", {"n": "long", "items": {"type": "array", "items": "null"}})


def odd_messages() -> list[bytes]:
    """Each is malformed, for another reason."""
    deep = b"\0\0\0\0\2" + b"\2\2" * 5_000 + b"\2\0"
    many = b"\0\0\0\0\3\2" + b"\xfe\xff\xff\xff\xff\xff\xff\x7f\0"
    unknown, answer, loop = (b"\0\0\0\0" + bytes([number]) + b"\2" for number in (9, 4, 5))
    return [deep, many, unknown, answer, loop, b"\0\0\0\0\1", b"null", b'{"n": 1}', b"\xff" * 9]


def rows(folder: Path) -> pd.DataFrame:
    return pd.concat([pd.read_csv(file) for file in folder.rglob("*.csv")])


def test_odd_messages_are_malformed_with_their_coordinates_and_all_others_are_read(
    tmp_path: Path, broker: Broker, engine_of_processes: Engine
) -> None:
    topic, odd = broker.topic(partitions=2), odd_messages()
    values = [encoded(GOOD, {"n": number}, 1) for number in range(60)]
    for number, value in enumerate(odd):
        values[3 + 5 * number] = value
    broker.produce(topic, [(number % 2, 1_700_000_000_000 + number, value) for number, value in enumerate(values)])
    (tmp_path / "q.query").write_text("event A { integer n; }\nquery Q { inputs { A() retain 1; } find A as a }\n")
    with running_registry() as registry:
        for number, schema in enumerate((GOOD, DEEP, EMPTY_ITEMS), 1):
            registry.add(number, schema)
        registry.schemas[4] = {"schema": 5}
        registry.schemas[5] = {"schema": json.dumps(GOOD), "references": [{"subject": "loop", "version": 1}]}
        registry.versions["loop/1"] = {"schema": '"int"', "references": [{"subject": "loop", "version": 1}]}
        text = DEPLOYMENT.format(servers=broker.servers, topic=topic, registry=registry.url)
        (tmp_path / "job.yaml").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "ensue", "run", "--once", "job.yaml"],
            cwd=tmp_path,
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST,
        )
    assert done.returncode == 0, done.stderr
    discarded = rows(tmp_path / "out" / "discarded")
    found = sorted(zip(discarded["partition"], discarded["offset"], discarded["reason"], strict=True))
    places = [3 + 5 * number for number in range(len(odd))]
    assert found == sorted((place % 2, place // 2, "malformed") for place in places)
    assert len(rows(tmp_path / "out" / "matches")) == 60 - len(odd)
