"""Changes of the queries of a job that ends at once: behind its last record, and before the first one."""

from __future__ import annotations

import json
from pathlib import Path

from job_engine.deployment_file import load_deployment
from job_engine.job.commands import send_command
from job_engine.job.job import run
from job_engine.sources.listing.command_folder import CHANGE, CommandFolder

QUERIES = """\
event A { integer n; }
event B { integer n; }
query Silence { inputs { A() within 30 seconds; } find A:a -> wait(5.0):late }
query Other { inputs { B() within 30 seconds; } find B:b -> wait(1.0):late }
"""
DEPLOYMENT = """\
name: flush
queries: [flush.query]
engine: local
sources:
  a: {format: json, path: a, event: A}
  b: {format: json, path: b, event: B}
sinks:
  matches: {format: json, path: out/matches}
checkpoint: state
"""


def test_a_change_behind_the_last_record_of_a_query_takes_place_before_time_is_flushed(tmp_path: Path) -> None:
    (tmp_path / "flush.query").write_text(QUERIES)
    path = tmp_path / "flush.yaml"
    path.write_text(DEPLOYMENT)
    for name, at in (("a", 100.0), ("b", 102.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.json").write_text(json.dumps({"at": at, "n": 1}) + "\n")
    run(path, once=True)
    send_command(load_deployment(path), '{"RemoveInstance": ["Silence", ""]}', kind=CHANGE, wait=False)
    run(path, once=True, flush=True)
    assert sorted(found.name for found in (tmp_path / "out" / "matches").iterdir()) == ["Other"]


def test_a_text_whose_matches_have_no_place_in_the_table_of_the_one_before_is_refused(tmp_path: Path) -> None:
    text = "event A { integer h; integer u; }\nquery Pair { inputs { A() key h within 30.0; } find A as a -> A as b }\n"
    (tmp_path / "flush.query").write_text(text)
    path = tmp_path / "flush.yaml"
    path.write_text(
        DEPLOYMENT.replace("  b: {format: json, path: b, event: B}\n", "").replace(
            "{format: json, path: out", "{format: delta, path: out"
        )
    )
    (tmp_path / "a").mkdir()
    run(path, once=True)
    for texts, is_refused in ((text.replace("key h", "key h, u"), True), (text.replace("30.0", "60.0"), False)):
        sent = send_command(
            load_deployment(path), json.dumps({"ReplaceQuery": [texts, "now"]}), kind=CHANGE, wait=False
        )
        run(path, once=True)
        outcome = CommandFolder(load_deployment(path).checkpoint).outcome(sent.command.number)
        assert outcome is not None
        assert ["'key' is struct<h: long> in one and" in error for error in outcome.errors] == [True] * is_refused
