"""Checkpoints of older versions: a job continues from them, and its results are those of a replay.

`tests/snapshots/checkpoint-3.tar.gz` is a job with its checkpoint, of record version 3 and Spark 4.2, after `ensue run
--once` on its two files: with an event that waits, a changed leeway, a malformed row.

`checkpoint-4.tar.gz` is one of record version 4, which `tools/checkpoint_sample.py` has made. Its state was moved to
other buckets, and its queries were changed: one with repeats came, one has another instance, one hands over.

`checkpoint-4-held.tar.gz` is the same with a second source, which is behind: records of the first one are held, and
waits are pending. It has its results, too.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_backend.job.changes.taking import changed_program
from spark_backend.job.commands.control import send_change
from spark_backend.job.preflight import checked
from spark_backend.settings.deployment_file import load_deployment
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
    queries = changed_program(checked(deployment)).running().queries
    is_annotated = {query.name: query.inputs[0].out_of_order for query in queries}
    assert is_annotated == {"Rise": True, "Silence": False, "Runs": False, "New": True}
