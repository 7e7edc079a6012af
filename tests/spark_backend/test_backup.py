"""Backups of checkpoints: what is copied, restored and refused; needs no Spark."""

from __future__ import annotations

import hashlib
import json
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.upkeep.backup import _list_of, back_up, refuse_damage, restore
from querylang.errors import InputError
from tests.support.mutants import json_mutants
from tests.support.old_checkpoint import unpacked
from tests.support.small_disk import small_disk

SAMPLE = Path(__file__).parents[1] / "snapshots" / "checkpoint-3.tar.gz"


def files_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "at-work")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    unpacked(SAMPLE, tmp_path)
    return tmp_path / "old.yaml"


def test_a_restored_checkpoint_is_the_one_that_was_backed_up(job: Path) -> None:
    before = files_of(job.parent / "state")
    made = back_up(job, job.parent / "copy")
    assert (made.batch, made.files) == (0, len(before))
    (job.parent / "state/offsets/1").write_text("v1")
    with pytest.raises(InputError, match="there is a checkpoint; add --replace"):
        restore(job, job.parent / "copy")
    done = restore(job, job.parent / "copy", replace=True)
    after = files_of(job.parent / "state")
    assert json.loads(after.pop("ensue/restores.json"))["restores"][0][::2] == [0, False]
    assert after == before
    assert done.before is not None
    assert "offsets/1" in files_of(Path(done.before))


def test_results_that_the_job_would_write_again_are_removed_only_if_that_is_wanted(job: Path) -> None:
    made = back_up(job, job.parent / "copy")
    folder = job.parent / "out/matches/Rise"
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{made.identity}-{batch:08d}-00001.json" for batch in (0, 1)]
    for name in names:
        (folder / name).write_text("{}")
    with pytest.raises(InputError, match="Add --remove-results"):
        restore(job, job.parent / "copy", replace=True)
    assert restore(job, job.parent / "copy", replace=True, remove_results=True).removed == 1
    assert [path.name for path in folder.iterdir()] == names[:1]
    joined = folder / f"{made.identity}-00000003-200000.json"
    joined.write_text("{}")
    with pytest.raises(InputError, match="`ensue compact` has joined"):
        restore(job, job.parent / "copy", replace=True, remove_results=True)
    assert joined.exists()


def test_a_damaged_or_unfinished_backup_is_refused_and_nothing_changes(job: Path) -> None:
    copy = job.parent / "copy"
    back_up(job, copy)
    before = files_of(job.parent / "state")
    whole = (copy / "backup.json").read_text()
    (copy / "checkpoint/ensue.json").write_text("{}")
    with pytest.raises(InputError, match="has changed since the backup was made"):
        restore(job, copy, replace=True)
    (copy / "checkpoint/ensue.json").unlink()
    with pytest.raises(InputError, match="the backup is not whole"):
        restore(job, copy, replace=True)
    (copy / "backup.json").write_text(json.dumps(json.loads(whole) | {"version": 9}))
    with pytest.raises(InputError, match="version 9"):
        restore(job, copy, replace=True)
    (copy / "backup.json").unlink()
    with pytest.raises(InputError, match="is not a whole backup"):
        restore(job, copy, replace=True)
    assert files_of(job.parent / "state") == before


def test_a_backup_of_another_deployment_is_refused(job: Path) -> None:
    back_up(job, job.parent / "copy")
    job.write_text(job.read_text().replace("buckets: 2", "buckets: 3"))
    with pytest.raises(InputError, match="is of 2 buckets, and the job has 3"):
        restore(job, job.parent / "copy", replace=True)


def test_neither_is_done_while_the_job_runs_nor_over_something_else(job: Path) -> None:
    back_up(job, job.parent / "copy")
    with pytest.raises(InputError, match="is not empty"):
        back_up(job, job.parent / "copy")
    with pytest.raises(InputError, match="is inside the checkpoint"):
        back_up(job, job.parent / "state/copy")
    lock = JobFolder(job.parent / "state").lock()
    lock.acquire()
    try:
        with pytest.raises(InputError, match="another run of this job is at work"):
            back_up(job, job.parent / "other")
        with pytest.raises(InputError, match="another run of this job is at work"):
            restore(job, job.parent / "copy", replace=True)
    finally:
        lock.release()


def test_a_full_disk_leaves_no_half_backup(job: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 16):
        with pytest.raises(InputError, match="the disk is full"):
            back_up(job, tmp_path / "small/copy")
        assert list((tmp_path / "small").iterdir()) == []


def test_a_restore_takes_what_the_list_names_and_nothing_else(job: Path) -> None:
    copy = job.parent / "copy"
    back_up(job, copy)
    before = files_of(job.parent / "state")
    (copy / "checkpoint/ensue/more.json").write_text("{}")
    with pytest.raises(InputError, match=r"more\.json: is not in the list of the backup"):
        restore(job, copy, replace=True)
    (copy / "checkpoint/ensue/more.json").unlink()
    (copy / "checkpoint/link").symlink_to("/etc")
    with pytest.raises(InputError, match="is a link, and a checkpoint has none"):
        restore(job, copy, replace=True)
    (copy / "checkpoint/link").unlink()
    own = copy / "checkpoint/ensue.json"
    own.rename(copy / "elsewhere")
    own.symlink_to(copy / "elsewhere")
    with pytest.raises(InputError, match="leads out of"):
        restore(job, copy, replace=True)
    assert files_of(job.parent / "state") == before


@pytest.mark.parametrize("name", ["../../precious.txt", "/etc/passwd", "", "ensue/../../x"])
def test_a_list_names_files_of_its_backup_only(job: Path, name: str) -> None:
    copy = job.parent / "copy"
    back_up(job, copy)
    (job.parent / "precious.txt").write_text("")
    listed = json.loads((copy / "backup.json").read_text())
    listed["files"][name] = [0, "0" * 64]
    (copy / "backup.json").write_text(json.dumps(listed))
    with pytest.raises(InputError, match="is not the name of a file in it"):
        restore(job, copy, replace=True)


def test_a_backup_has_digests_and_one_without_is_read_with_a_line(job: Path, caplog: pytest.LogCaptureFixture) -> None:
    copy = job.parent / "copy"
    back_up(job, copy)
    listed = json.loads((copy / "backup.json").read_text())
    assert listed["version"] == 2
    for name, (size, digest) in listed["files"].items():
        data = (copy / "checkpoint" / name).read_bytes()
        assert (size, digest) == (len(data), hashlib.sha256(data).hexdigest())
        listed["files"][name] = [size, zlib.crc32(data)]
    (copy / "backup.json").write_text(json.dumps(listed | {"version": 1}))
    assert restore(job, copy, replace=True).files == len(listed["files"])
    assert "is of an earlier release: its files are compared by CRC-32" in caplog.text


def test_a_checkpoint_with_a_link_is_not_backed_up(job: Path) -> None:
    (job.parent / "state/link").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="is a link, and a checkpoint has none"):
        back_up(job, job.parent / "copy")


def test_mutants_of_the_list_are_refused_in_one_line(job: Path) -> None:
    copy = job.parent / "copy"
    back_up(job, copy)
    before = files_of(job.parent / "state")
    for mutant in json_mutants((copy / "backup.json").read_bytes(), 300):
        (copy / "backup.json").write_bytes(mutant)
        with suppress(InputError):
            refuse_damage(copy, _list_of(copy))
    assert files_of(job.parent / "state") == before
