"""Checkpoints of older versions: a job continues from them, and its results are those of a replay.

`tests/snapshots/checkpoint-3.tar.gz` is a job with its checkpoint, of record version 3 and Spark 4.2, after `ensue run
--once` on its two files: with an event that waits, a changed leeway, a malformed row.

`checkpoint-4.tar.gz` is one of record version 4, which `tools/checkpoint_sample.py` has made. Its state was moved to
other buckets, and its queries were changed: one with repeats came, one has another instance, one hands over.

`checkpoint-4-held.tar.gz` is the same with a second source, which is behind: records of the first one are held, and
waits are pending. It has its results, too.

`checkpoint-5-local.tar.gz` is one of record version 5, made in the same way by the local engine.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.job.commands import send_change
from job_engine.job.job import run
from job_engine.job.preflight import checked, plan_of
from tests.support.job_without_spark import started
from tests.support.old_checkpoint import continue_as_a_replay, unpacked

SAMPLES = Path(__file__).parents[1] / "snapshots"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("checkpoint-*.tar.gz")), ids=lambda path: path.name)
def test_a_job_continues_from_an_old_checkpoint(tmp_path: Path, sample: Path) -> None:
    unpacked(sample, tmp_path)
    continue_as_a_replay(tmp_path / "old.yaml")


def test_new_texts_on_an_old_checkpoint_have_the_annotations_of_its_files(tmp_path: Path) -> None:
    unpacked(SAMPLES / "checkpoint-4.tar.gz", tmp_path)
    deployment = load_deployment(tmp_path / "old.yaml")
    new = "query New { inputs { A() key k within 9 seconds; } find A:a }"
    send_change(deployment, json.dumps({"DeployQuery": [new]}), wait=False)
    queries = started(checked(deployment)).running().queries
    is_annotated = {query.name: query.inputs[0].out_of_order for query in queries}
    assert is_annotated == {"Rise": True, "Silence": False, "Runs": False, "New": True}


LATER = "at,k,v,w\n10,c,,1\n11,c,,9\n12,d,,\n13,d,4,\n14,d,,\n"
"""Either side of the `or` may be null; of a run, all values but one are."""


@pytest.mark.usefixtures("spark")
def test_an_old_checkpoint_keeps_its_rule_for_nulls_until_files_are_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`nulls.tar.gz` has read five rows with nulls, when a null that was used was a failure."""
    unpacked(SAMPLES / "nulls.tar.gz", tmp_path)
    job = tmp_path / "old.yaml"
    (tmp_path / "in/2.csv").write_text(LATER)
    run(job, once=True)
    assert _matches_of(tmp_path, "Either", "Total") == []
    assert _texts_of(tmp_path) == [*["field 'v' is null"] * 3, "low", "field 'v' is null"]
    planned = plan_of(job)
    assert not planned.is_needed
    assert [line.partition("; ")[0] for line in planned.changes] == [
        f"replace '{name}': nulls as in SQL" for name in ("Either", "Total", "Passed")
    ]
    # Files that are applied hand over: the old texts give the matches before the moment, the new ones those after it.
    (tmp_path / "in/3.csv").write_text("at,k,v,w\n20,e,,1\n21,e,,9\n300,f,,1\n301,f,,9\n302,f,2,\n")
    run(job, once=True, apply=True)
    assert _matches_of(tmp_path, "Either", "Total") == ["Either 301", "Total 302"]
    assert _texts_of(tmp_path)[-3:] == ["low"] * 3
    assert plan_of(job).changes == ()
    assert caplog.text.count("was written by an earlier version of Ensue until now") == 1


def _matches_of(folder: Path, *names: str) -> list[str]:
    rows = [
        json.loads(line) for file in (folder / "out/matches").rglob("*.json") for line in file.read_text().splitlines()
    ]
    times = [(row["query"], datetime.fromisoformat(row["time"]).timestamp()) for row in rows if row["query"] in names]
    return [f"{name} {time:g}" for name, time in sorted(times)]


def _texts_of(folder: Path) -> list[str]:
    """What blocks put out, in order of time."""
    rows = [
        json.loads(line) for file in (folder / "out/output").rglob("*.json") for line in file.read_text().splitlines()
    ]
    return [row["text"] for row in sorted(rows, key=lambda row: row["time"]) if row["kind"] in ("print", "error")]
