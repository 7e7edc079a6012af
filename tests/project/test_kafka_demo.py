"""The demo on Kafka: what needs no broker."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.project.repository import ROOT
from tools import kafka_demo


def test_its_deployment_file_is_right() -> None:
    command = [sys.executable, "-m", "ensue", "check", "queries/flights/kafka.yaml"]
    environment = os.environ | {"FLIGHTS_BROKER": "localhost:9092"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_table_of_the_replay_has_the_coordinates_of_the_messages() -> None:
    messages = [("flights", 1, 1000, {"event": "Flight", "tail": "N1"}), ("flights", 1, 2000, {"event": "Flight"})]
    table = kafka_demo.event_table(messages, [("controls", 0, 3000, {"control": 'Heartbeat("Flight", 1.0)'})])
    assert table.select(["source", "partition", "offset", "event", "tail"]).to_pylist() == [
        {"source": "flights", "partition": 1, "offset": 0, "event": "Flight", "tail": "N1"},
        {"source": "flights", "partition": 1, "offset": 1, "event": "Flight", "tail": None},
        {"source": "controls", "partition": 0, "offset": 0, "event": 'Heartbeat("Flight", 1.0)', "tail": None},
    ]
