"""`ensue list`: what queries there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.ensue.command import Run

BURST = """event Login { string host; boolean ok; }
event Suspect { string host; }
query Burst {
    metadata { "severity": "high", "technique": "T1110" }
    inputs { Login(ok = false) key host within 10 minutes retain 20; }
    find Login as a -> Login as b { if a.ok { route Suspect(a.host); } else { route Suspect(b.host); } }
}
"""
TAKEOVER = """event Suspect { string host; }
query Takeover { inputs { Suspect() within 1 hour; } find Suspect as s }
"""


def test_queries_of_a_folder_are_listed(tmp_path: Path, ensue: Run) -> None:
    (tmp_path / "burst.query").write_text(BURST)
    (tmp_path / "takeover.query").write_text(TAKEOVER)
    done = ensue("list", ".")
    assert done.returncode == 0
    assert [re.split("  +", line) for line in done.stdout.splitlines()] == [
        ["query", "severity", "inputs", "key", "routes", "file"],
        ["-" * 8, "-" * 8, "-" * 33, "-" * 4, "-" * 7, "-" * 14],
        ["Burst", "high", "Login within 10 minutes retain 20", "host", "Suspect", "burst.query"],
        ["Takeover", "-", "Suspect within 1 hour", "-", "-", "takeover.query"],
    ]


def test_for_machines_there_is_more(tmp_path: Path, ensue: Run) -> None:
    (tmp_path / "burst.query").write_text(BURST)
    (found,) = json.loads(ensue("list", "burst.query", "--json").stdout)["queries"]
    assert (found["severity"], found["metadata"]) == ("high", {"severity": "high", "technique": "T1110"})
    assert found["inputs"] == [
        {"event": "Login", "filter": "ok = false", "key": "host", "window": "within 10 minutes retain 20"}
    ]
    assert (found["takes"], found["routes"]) == (["Login"], ["Suspect"])
    assert found["state"] == ["Login: at most the events of 10 minutes, and of these 20 events, per key"]


def test_a_file_with_mistakes_does_not_hide_the_others(tmp_path: Path, ensue: Run) -> None:
    (tmp_path / "broken.query").write_text("find")
    (tmp_path / "takeover.query").write_text(TAKEOVER)
    done = ensue("list", ".", "missing.query")
    assert done.returncode == 1
    assert "Takeover" in done.stdout
    assert "missing.query: no such file" in done.stderr
    assert "broken.query:1:" in done.stderr


def test_queries_of_a_deployment_are_listed_once(tmp_path: Path, ensue: Run) -> None:
    (tmp_path / "burst.query").write_text(BURST)
    (tmp_path / "logins").mkdir()
    (tmp_path / "job.yaml").write_text(
        "queries: burst.query\nsources: {logins: {path: logins, arrival: at, type: type}}\n"
        "sinks: {matches: {path: out}}\ncheckpoint: state\n"
    )
    listed = json.loads(ensue("list", "job.yaml", "burst.query", "--json").stdout)["queries"]
    assert [(item["query"], item["file"]) for item in listed] == [("Burst", "burst.query")]
