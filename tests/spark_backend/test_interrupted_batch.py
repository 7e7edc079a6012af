"""With which settings an interrupted micro-batch is repeated; without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.job.preflight import checked
from job_engine.job.stages.between_batches import (
    Settings,
    limits_of,
    settings_of,
    settings_of_interrupted,
    settings_with,
    write_settings,
)
from job_engine.sources.listing.batch_log import batches_of
from querylang.errors import InputError
from tests.support.sensors import project_of_two


def begun(checkpoint: Path, name: str) -> None:
    """An entry of Spark's log `offsets` or `commits`."""
    (checkpoint / name).mkdir(parents=True, exist_ok=True)
    (checkpoint / name / "0").write_text("v1\n")


def interrupted(checkpoint: Path) -> Settings | None:
    return settings_of_interrupted(checkpoint, batches_of(checkpoint))


def test_a_repeated_micro_batch_has_the_settings_of_the_run_that_began_it(tmp_path: Path) -> None:
    path = project_of_two(tmp_path)
    checkpoint = tmp_path / "state"
    text = path.read_text().replace("event: Reading", "event: Reading, ahead: 1 hour, max_record: 1 MB", 1)
    path.write_text(text.replace("idle: none", "idle: 1 second"))
    old = load_deployment(path)
    program = checked(old).program
    (checkpoint / "ensue").mkdir(parents=True)
    write_settings(checkpoint, settings_of(program, old), limits_of(old))
    assert interrupted(checkpoint) is None  # no micro-batch is open
    begun(checkpoint, "offsets")
    path.write_text(text.replace(", ahead: 1 hour, max_record: 1 MB", "").replace("idle: none", "idle: 1 minute"))
    new = load_deployment(path)
    before = interrupted(checkpoint)
    assert before is not None
    assert before != settings_of(replace(program, idle=7), new)
    repeated, sources = settings_with(before, replace(program, sources=(), idle=7), new.sources)
    assert repeated == program
    assert [source.max_record for source in sources] == [source.max_record for source in old.sources]
    assert before == settings_of(repeated, replace(new, sources=sources))
    begun(checkpoint, "commits")
    assert interrupted(checkpoint) is None


def test_damaged_settings_are_one_line_and_checkpoints_without_them_are_repeated_as_before(tmp_path: Path) -> None:
    begun(tmp_path, "offsets")
    assert interrupted(tmp_path) is None
    (tmp_path / "ensue").mkdir()
    for text in ("{", "[]", "{}"):
        (tmp_path / "ensue" / "run.json").write_text(text)
        with pytest.raises(
            InputError, match=r"run\.json: is damaged: .* the settings of the last run: delete the file"
        ):
            interrupted(tmp_path)
