"""The benchmarks run; how fast is not asked here."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.duckdb_compare import QUESTIONS
from benchmarks.ordering import PAIRS
from benchmarks.patterns import PATTERNS


def test_a_little_of_everything_is_measured(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks", "--small", "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads(figures.read_text())
    assert [item["keys"] for item in measured["embedded"]] == [100]
    assert [item["queries"] for item in measured["many"]] == [1, 3]
    assert all(item["times"] > 0 and item["state_times"] > 0 for item in measured["many"])
    assert [(item["name"], item["keys"]) for item in measured["streaming"]] == [("A -> B where", 100)]
    assert all(item[name] > 0 for item in measured["latency"] for name in ("batch_ratio", "p50_ratio", "p99_ratio"))
    assert [item["name"] for item in measured["patterns"]] == [pattern.name for pattern in PATTERNS]
    assert all(item["rate"] > 0 for item in measured["patterns"])
    assert [item["name"] for item in measured["ordering"]] == [orderly.name for orderly, _ in PAIRS]
    assert all(item["ratio"] > 0 and 0 < item["share"] < 1 for item in measured["ordering"])
    assert all(item["batch_ms"] > 0 and item["active"] > 0 for item in measured["resting"])
    assert [item["name"] for item in measured["duckdb"]] == [question.name for question in QUESTIONS]
    assert all(item["ratio"] > 0 and item["matches"] > 0 for item in measured["duckdb"])
    assert all(item["to_matches"] > 0 and item["matches"] > 0 for item in measured["embedded"])
    assert all(item["ratio"] > 0 and item["state_bytes"] > 0 for item in measured["streaming"])
