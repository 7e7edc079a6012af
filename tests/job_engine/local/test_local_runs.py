"""Runs of the local engine: they give what a replay gives, wherever they end and begin again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from job_engine.job.checkpoint.job_folder import JobFolder
from querylang.errors import InputError
from tests.support.local_jobs import NEVER, CrashAt, assert_exactly_once, crashed, local, run
from tests.support.sensors import add_files, expected, project, project_of_two, streamed, table


def sensors(folder: Path, files: int = 6) -> Path:
    path = local(project(folder, files=1))
    add_files(folder, table(), files)
    return path


def test_a_run_gives_what_a_replay_gives(tmp_path: Path) -> None:
    assert run(sensors(tmp_path)) == list(range(7))
    assert_exactly_once(tmp_path)


def test_two_sources_wait_for_each_other(tmp_path: Path) -> None:
    path = local(project_of_two(tmp_path))
    add_files(tmp_path, table().iloc[::2], 3, source="north")
    add_files(tmp_path, table().iloc[1::2], 6, source="south")
    crashed(path, CrashAt("published", 3))
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)


@pytest.mark.parametrize(
    ("point", "count", "interval"),
    [
        ("manifest", 2, 0.0),
        ("begun", 0, NEVER),
        ("begun", 2, 0.0),
        ("stepped", 2, NEVER),
        ("published", 2, NEVER),
        ("published", 1, 0.0),
        ("states", 0, NEVER),
        ("totals", 1, 0.0),
        ("totals", 0, NEVER),
        ("committed", 0, 0.0),
    ],
)
def test_a_run_continues_behind_each_durable_write(tmp_path: Path, point: str, count: int, interval: float) -> None:
    path = sensors(tmp_path, 4)
    crashed(path, CrashAt(point, count), interval=interval)
    run(path)
    assert_exactly_once(tmp_path)


def test_totals_of_a_commit_stay_until_the_next_one_however_many_micro_batches_later(tmp_path: Path) -> None:
    path = sensors(tmp_path, 14)
    crashed(path, CrashAt("committed"), interval=0.0)
    crashed(path, CrashAt("totals"))
    run(path)
    assert_exactly_once(tmp_path)


def test_all_micro_batches_since_the_last_commit_are_repeated(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    assert crashed(path, CrashAt("begun", 4)) == [0, 1, 2, 3]
    moments = {name: (tmp_path / "state" / "offsets" / name).read_text() for name in "01234"}
    files = {file: file.stat().st_size for file in (tmp_path / "out").rglob("*.parquet")}
    assert run(path) == [0, 1, 2, 3, 4, 5, 6]
    assert {name: (tmp_path / "state" / "offsets" / name).read_text() for name in "01234"} == moments
    assert {file: file.stat().st_size for file in files} == files
    assert_exactly_once(tmp_path)


def test_a_crash_while_micro_batches_are_repeated_repeats_them_again(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    crashed(path, CrashAt("begun", 4))
    assert crashed(path, CrashAt("published", 2)) == [0, 1, 2]
    crashed(path, CrashAt("states"))
    assert run(path)[:5] == [0, 1, 2, 3, 4]
    assert_exactly_once(tmp_path)


def test_what_was_committed_is_not_repeated(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    crashed(path, CrashAt("begun", 4), interval=0)
    assert run(path) == [4, 5, 6]
    assert_exactly_once(tmp_path)


def test_states_of_the_last_commit_alone_are_kept(tmp_path: Path) -> None:
    run(sensors(tmp_path), interval=0)
    (states,) = (tmp_path / "state" / "state").iterdir()
    assert states.name == "0000000006"
    assert len(list(states.iterdir())) == 3


def test_a_damaged_state_is_refused_by_name(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    run(path)
    (file, *_) = sorted((tmp_path / "state" / "state").rglob("*.state"))
    file.write_bytes(file.read_bytes()[:-100])
    add_files(tmp_path, table(), 1, first=9)
    with pytest.raises(InputError, match=r"the state of bucket 0 cannot be read: .*Restore the checkpoint from a copy"):
        run(path)


def test_a_missing_state_is_refused_by_name(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    run(path)
    (file, *_) = sorted((tmp_path / "state" / "state").rglob("*.state"))
    file.unlink()
    add_files(tmp_path, table(), 1, first=9)
    with pytest.raises(
        InputError, match=rf"{file.name}: is missing: it has the state of bucket 0; restore it from a copy"
    ):
        run(path)


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_damaged_log_is_refused_by_name(tmp_path: Path, log: str) -> None:
    path = sensors(tmp_path)
    run(path)
    (tmp_path / "state" / log / "6").write_text("v1\n{")
    with pytest.raises(InputError, match=rf"{log}/6: "):
        run(path)


def test_another_number_of_workers_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sensors(tmp_path)
    monkeypatch.setenv("ENSUE_THREADS", "1")
    crashed(path, CrashAt("published", 2), interval=0)
    monkeypatch.setenv("ENSUE_THREADS", "3")
    crashed(path, CrashAt("published", 1))
    monkeypatch.setenv("ENSUE_THREADS", "2")
    run(path)
    assert_exactly_once(tmp_path)


def test_progress_is_that_of_the_last_micro_batch(tmp_path: Path) -> None:
    run(sensors(tmp_path))
    progress = JobFolder(tmp_path / "state").last_progress()
    assert progress.held == 0
    assert set(progress.buckets) == {0, 1, 2}
    assert json.loads((tmp_path / "state" / "commits" / "6").read_text().splitlines()[1])["buckets"] == [0, 1, 2]


def test_a_missing_folder_is_refused_or_made_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = local(project(tmp_path))
    text = path.read_text()
    (tmp_path / "data").rmdir()
    with pytest.raises(InputError, match="no such folder: 'data'"):
        run(path)
    path.write_text(text.replace("path: data,", "path: data, create: true,"))
    assert run(path) == []
    assert (tmp_path / "data").is_dir()
    assert any("nothing is in" in line and "waits for files" in line for line in caplog.messages)
    add_files(tmp_path, table(), 1)
    assert run(path) == [0, 1]
