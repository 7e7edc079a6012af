"""Changes of the queries of a job that ends at once: behind its last record, and before the first one."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.job.commands import send_command
from job_engine.job.history.running import send_with_history
from job_engine.job.job import run
from job_engine.sources.listing.command_folder import CHANGE, CommandFolder
from job_engine.sources.listing.manifests import ManifestFolder
from querylang.errors import InputError

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


def test_a_chain_feeds_who_comes_behind_the_end_of_another_query_that_would_have(tmp_path: Path) -> None:
    types = "event A { integer n; }\nevent B { integer n; }\nevent C { integer n; }\n"
    other = "query Other { inputs { A() within 9.0; } find A as a { route C(a.n); } }\n"
    chain = (
        "query First { inputs { A() within 9.0; } find A as a { route B(a.n); } }\n"
        "query Second { inputs { B() within 9.0; } find B as b { route C(b.n); } }\n"
    )
    last = "query Last { inputs { C() within 9.0; } find C as c { print c.n.toString(); } }\n"
    (tmp_path / "flush.query").write_text(types + other + chain)
    path = tmp_path / "flush.yaml"
    path.write_text(DEPLOYMENT.replace("  b: {format: json, path: b, event: B}\n", ""))
    (tmp_path / "a").mkdir()
    run(path, once=True)
    send_command(load_deployment(path), '{"UndeployQuery": ["Other"]}', kind=CHANGE, wait=False)
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with patch.object(ManifestFolder, "write", full), pytest.raises(InputError, match="No space left"):
        run(path, once=True)  # takes the change, and ends before its micro-batch
    send_with_history(load_deployment(path), types + last, wait=False)
    (tmp_path / "a" / "1.json").write_text("".join(json.dumps({"at": 100.0 + n, "n": n}) + "\n" for n in range(5)))
    report = run(path, once=True, flush=True)
    assert report.matches["Last"] == report.matches["Second"] == 5
