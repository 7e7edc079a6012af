"""Who may read what a job writes: its checkpoint nobody else, its results as the process says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import ensue
from job_engine.deployment_file import load_deployment
from job_engine.durable_files import make_checkpoint, new_file, write_durably
from job_engine.job.job import run
from job_engine.job.upkeep.backup import back_up, restore
from querylang.errors import InputError
from tests.support.sensors import add_files, project, table


@pytest.fixture(autouse=True)
def usual_mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def permissions(folder: Path, *, are_folders: bool) -> set[str]:
    found = [folder, *folder.rglob("*")]
    return {f"{path.stat().st_mode & 0o777:03o}" for path in found if path.is_dir() == are_folders}


@pytest.mark.usefixtures("engine")
def test_nobody_else_reads_a_checkpoint_and_results_follow_the_umask(tmp_path: Path) -> None:
    job = project(tmp_path)
    add_files(tmp_path, table(60), 2)
    run(job, once=True)
    assert permissions(tmp_path / "state", are_folders=True) == {"700"}
    assert permissions(tmp_path / "state", are_folders=False) == {"600"}
    assert permissions(tmp_path / "out", are_folders=True) == {"755"}
    assert permissions(tmp_path / "out", are_folders=False) == {"644"}
    back_up(job, tmp_path / "copy")
    assert permissions(tmp_path / "copy", are_folders=True) == {"700"}
    assert permissions(tmp_path / "copy", are_folders=False) == {"600"}
    restore(job, tmp_path / "copy", replace=True)
    assert permissions(tmp_path / "state", are_folders=True) == {"700"}
    assert permissions(tmp_path / "state", are_folders=False) == {"600"}
    job.write_text(job.read_text() + "mode: 0750\n")
    add_files(tmp_path, table(60), 1, first=2)
    run(job, once=True)
    assert permissions(tmp_path / "state", are_folders=True) == {"750"}
    assert permissions(tmp_path / "state", are_folders=False) == {"640"}


def test_a_mode_is_one_that_its_owner_can_use(tmp_path: Path) -> None:
    job = project(tmp_path)
    text = job.read_text()
    job.write_text(text + "mode: 0770\n")
    assert load_deployment(job).mode == 0o770
    for wrong in ("0600", "0740", "77", "rwx"):
        job.write_text(f"{text}mode: {wrong}\n")
        with pytest.raises(InputError, match="'mode' must be permissions of folders such as `0700` or `0750`, not"):
            load_deployment(job)


def test_a_checkpoint_that_a_user_has_made_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    make_checkpoint(tmp_path / "state", None)
    write_durably(tmp_path / "state/file", "text")
    assert permissions(tmp_path / "state", are_folders=True) == {"755"}
    assert permissions(tmp_path / "state", are_folders=False) == {"644"}


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / ".file.draft").symlink_to(precious)
    write_durably(tmp_path / "file", "text")
    assert (precious.read_text(), (tmp_path / "file").read_text()) == ("mine", "text")
    assert not (tmp_path / "file").is_symlink()
    (tmp_path / "other").symlink_to(precious)
    with new_file(tmp_path / "other") as file:
        file.write(b"text")
    assert precious.read_text() == "mine"


def test_a_state_of_open_queries_is_its_owners(tmp_path: Path) -> None:
    live = ensue.open("inputs { A() within 10 seconds; } find A as a")
    live.send([{"at": 1.0, "v": 1}])
    live.save(tmp_path / "live.state")
    assert permissions(tmp_path, are_folders=False) == {"600"}
