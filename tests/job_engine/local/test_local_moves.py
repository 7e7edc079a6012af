"""A checkpoint of the local engine that is moved: wherever that is killed, the job continues, and nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
from itertools import count
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.job.commands import send_command
from job_engine.job.history.running import send_with_history
from job_engine.job.job import run as run_once
from job_engine.job.upkeep import moving
from job_engine.job.upkeep.keys import job_state
from job_engine.job.upkeep.moving import move, rebucket
from job_engine.setting_keys import Engine
from job_engine.sources.listing.command_folder import CHANGE
from job_engine.sources.listing.manifests import ManifestFolder
from querylang.errors import InputError
from tests.support.local_jobs import CrashAt, crashed, local, run
from tests.support.moved_jobs import set_file
from tests.support.sensors import QUERY, add_files, expected, project, streamed, table


class Killed(BaseException):
    """Nobody catches it, as nobody catches a signal."""


def half_run(folder: Path) -> Path:
    """A job that has read one half of its records, and has not read the other one."""
    path = local(project(folder, files=1))
    add_files(folder, table().iloc[:1500], 3)
    run_once(path, once=True)
    add_files(folder, table().iloc[1500:], 3, first=3)
    return path


def test_a_move_that_is_killed_at_any_durable_write_has_either_happened_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = half_run(tmp_path)
    before = job_state(path).to_plain()
    kept = tmp_path.with_name(f"{tmp_path.name}-kept")
    shutil.copytree(tmp_path, kept)
    found: list[str] = []
    sync = os.fsync
    for number in count():
        left = iter(range(number))

        def killed(handle: int, left: object = left) -> None:
            assert hasattr(left, "__next__")
            if next(left, None) is None:
                raise Killed
            sync(handle)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", killed)
            try:
                rebucket(path, 2)
                break
            except Killed:
                pass
        buckets = json.loads((tmp_path / "state/ensue.json").read_text())["settings"]["buckets"]
        found.append(buckets)
        set_file(path, buckets=buckets)
        assert job_state(path).to_plain() == before
        if number % 4 == 0 or buckets not in found[:-1]:
            run(path)
            assert streamed(tmp_path) == expected(tmp_path)
            assert not list((tmp_path / "state/ensue").glob("seeds-*"))
        shutil.rmtree(tmp_path)
        shutil.copytree(kept, tmp_path)
    assert found == sorted(found, reverse=True)
    assert set(found) == {"3", "2"}


def test_what_a_crash_has_left_is_repeated_before_a_move(tmp_path: Path) -> None:
    path = local(project(tmp_path, files=1))
    add_files(tmp_path, table(), 6)
    crashed(path, CrashAt("published", 2))
    for engine, number in ((Engine.SPARK, None), (None, 5)):
        with pytest.raises(InputError) as refused:
            move(path, engine, number)
        told = str(refused.value).replace("0 to 3", "0 to 2")  # the next one may have begun
        assert told == (
            f"{tmp_path}/state: a run was interrupted in micro-batches 0 to 2, which are repeated before anything else:"
            f" let it end first: `ensue run {path} --once`; nothing was changed"
        )
    set_file(path, engine="spark", buckets=7)
    with pytest.raises(InputError, match=r"with `buckets: 3`: `ensue run .* --once --engine local`"):
        move(path, Engine.SPARK, 7)
    set_file(path, engine="local", buckets=3)
    run(path)
    assert move(path, buckets=5).to_set == {"buckets": "5"}
    set_file(path, buckets=5)
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_file_that_names_no_buckets_goes_by_the_checkpoint(tmp_path: Path) -> None:
    path = half_run(tmp_path)
    path.write_text(path.read_text().replace("buckets: 3\n", ""))
    done = rebucket(path, 5)
    assert (done.before, done.buckets, done.is_set) == (3, 5, True)
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_job_without_a_micro_batch_is_moved(tmp_path: Path) -> None:
    path = local(project(tmp_path, files=1))
    run_once(path, once=True)
    done = rebucket(path, 2)
    assert (done.batch, done.old, done.size, done.tasks) == (None, None, 0, 1)
    set_file(path, buckets=2)
    add_files(tmp_path, table(), 2)
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_history_that_no_bucket_has_got_is_not_left_behind(tmp_path: Path) -> None:
    path = local(project(tmp_path, files=1))
    query = path.with_name("sensors.query")
    jump = QUERY[QUERY.index("query Jump") :]
    query.write_text(QUERY.replace(jump, ""))
    run_once(path, once=True)
    send_with_history(load_deployment(path), jump, wait=False)
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with patch.object(ManifestFolder, "write", full), pytest.raises(InputError, match="No space left"):
        run_once(path, once=True)  # takes the change, and ends before its first micro-batch
    with pytest.raises(InputError, match="a query has not got its history yet: let the job run once; nothing was"):
        rebucket(path, 5)
    add_files(tmp_path, table(), 2)
    run(path)
    rebucket(path, 5)
    query.write_text(QUERY)
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_query_that_had_ended_before_a_move_is_deployed_again_behind_it(tmp_path: Path) -> None:
    path = local(project(tmp_path, files=1))
    jump = QUERY[QUERY.index("query Jump") :]
    for number, change in enumerate((None, {"UndeployQuery": ["Jump"]}, None)):
        if change is not None:
            send_command(load_deployment(path), json.dumps(change), kind=CHANGE, wait=False)
        add_files(tmp_path, table().iloc[number * 500 :][:500], 1, first=number)
        run_once(path, once=True)
    rebucket(path, 5)
    set_file(path, buckets=5)
    before = len(streamed(tmp_path)["Jump"])
    send_command(load_deployment(path), json.dumps({"DeployQuery": [jump]}), kind=CHANGE, wait=False)
    add_files(tmp_path, table().iloc[1500:], 1, first=3)
    run(path)
    assert streamed(tmp_path)["Rise"] == expected(tmp_path)["Rise"]
    assert len(streamed(tmp_path)["Jump"]) > before


def test_who_could_not_finish_a_move_does_not_begin_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = half_run(tmp_path)
    closed, may_access = tmp_path / "state/state", os.access
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: path != closed and may_access(path, mode))
        with pytest.raises(InputError, match=rf"^{closed}: belongs to .* may not change it: run this as"):
            rebucket(path, 5)
    with monkeypatch.context() as patch:
        patch.setattr(moving, "ROOT", 4711)
        patch.setattr(moving, "this_user", lambda: 4711)
        with pytest.raises(InputError, match="whose job could not read what root writes there"):
            move(path, Engine.SPARK)
    assert not list((tmp_path / "state/ensue").glob("seeds-*"))
    assert rebucket(path, 5).batch == 2
