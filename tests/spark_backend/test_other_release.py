"""The first start of a release on a checkpoint of another one is announced, while a backup can still be made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from job_engine.deployment import Deployment
from job_engine.deployment_file import load_deployment
from job_engine.job.preflight import Release, note_release, other_release, plan_of, this_release
from tests.support.old_checkpoint import unpacked

SAMPLES = Path(__file__).parents[1] / "snapshots"


def job_of(folder: Path, sample: str) -> Deployment:
    unpacked(SAMPLES / sample, folder)
    return load_deployment(folder / "old.yaml")


def test_a_checkpoint_without_a_note_is_of_an_earlier_version(tmp_path: Path) -> None:
    deployment = job_of(tmp_path, "checkpoint-4.tar.gz")
    record, own = tmp_path / "state/ensue.json", this_release(deployment.checkpoint)
    (line,) = other_release(deployment)
    assert line == (
        f"{tmp_path / 'state'}: was written by an earlier version of Ensue until now. Once Ensue {own.release} has run on"
        f" it, the other may not read it any more: `ensue backup {tmp_path / 'old.yaml'} DIR` before that keeps a way back"
    )
    record.write_text(json.dumps({**json.loads(record.read_text()), "version": 3}))
    (line,) = other_release(deployment)
    assert "an earlier version of Ensue (record 3) until now" in line
    assert f"Once Ensue {own.release} (record 4) has run" in line


def test_a_plan_says_it_before_anything_is_written_and_nobody_says_it_twice(tmp_path: Path) -> None:
    deployment = job_of(tmp_path, "checkpoint-4.tar.gz")
    assert [plan_of(deployment.file).release] == list(other_release(deployment))
    assert not (tmp_path / "state/ensue/release.json").exists()
    note_release(deployment.checkpoint)
    assert list(other_release(deployment)) == []
    assert plan_of(deployment.file).release is None


@pytest.mark.parametrize("release", ["0.0.9", None])
def test_what_another_release_has_noted_is_named(tmp_path: Path, release: str | None) -> None:
    deployment = job_of(tmp_path, "checkpoint-4.tar.gz")
    own = this_release(deployment.checkpoint)
    name = release or own.release
    other = {"release": name, "formats": {**own.formats, "plan": 99, "later": 1}, "later": True}
    (tmp_path / "state/ensue/release.json").write_text(json.dumps(other))
    (line,) = other_release(deployment)
    assert f"was written by Ensue {name} (plan 99) until now" in line
    assert f"Once Ensue {own.release} (plan {own.formats['plan']}) has run" in line


def test_a_new_checkpoint_has_no_other_release(tmp_path: Path) -> None:
    deployment = job_of(tmp_path, "checkpoint-4.tar.gz")
    (tmp_path / "state/ensue.json").unlink()
    assert list(other_release(deployment)) == []


def test_only_versions_that_both_have_and_that_differ_are_named() -> None:
    one, other = Release("1", {"plan": 1, "record": 4, "own": 1}), Release("2", {"plan": 2, "record": 4})
    assert (one.in_words(other), other.in_words(one)) == ("Ensue 1 (plan 1)", "Ensue 2 (plan 2)")
