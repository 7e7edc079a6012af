"""Care of a job of the local engine: what is asked of its checkpoint while it runs, and between two runs."""

from __future__ import annotations

import errno
from pathlib import Path
from shutil import rmtree

import pandas as pd
import pytest

from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.history.running import send_with_history
from job_engine.job.job import run as run_once
from job_engine.job.preflight import plan_of
from job_engine.job.stages import prepare
from job_engine.job.stages.start import RunKind
from job_engine.job.upkeep import backup
from job_engine.job.upkeep.backup import back_up, restore
from job_engine.job.upkeep.keys import forget, job_state
from job_engine.job.upkeep.moving import rebucket
from job_engine.job.upkeep.results import compact_job
from job_engine.local_path import LocalPath
from job_engine.sinks.folder import compaction
from job_engine.sinks.kinds import publishing
from job_engine.sources.folder import after_reading
from job_engine.sources.listing.batch_log import last_batch
from querylang.errors import EnsueError, InputError
from tests.support.delta_tables import match_ids_in
from tests.support.local_jobs import NEVER, CrashAt, begun, crashed, local, run
from tests.support.sensors import add_files, expected, project, streamed, table, totals

FALL = """
query Fall {
    inputs { Reading() key sensor within 20.0 wait 5.0; }
    find Reading as first -> Reading as second where second.value < first.value - 50.0
}
"""


def sensors(folder: Path, files: int = 6) -> Path:
    """A job that has read one half of its files, and has not read the other one."""
    path = local(project(folder, files=1))
    add_files(folder, table().iloc[:1500], files // 2)
    run_once(path, once=True)
    add_files(folder, table().iloc[1500:], files // 2, first=files // 2)
    return path


def test_a_state_is_read_while_newer_ones_replace_it(tmp_path: Path) -> None:
    path = local(project(tmp_path, files=1))
    path.write_text(path.read_text() + "trigger: 0s\n")
    add_files(tmp_path, table(), 25)
    handle, batches = begun(path, interval=0.0, kind=RunKind())
    seen = []
    while len(batches) < 25:
        assert handle.is_active
        if last_batch(tmp_path / "state") >= 0:
            seen.append([size.events for size in job_state(path).sizes])
            assert [key.query for key in job_state(path, ["s1"]).keys or ()] == ["Rise"]
    with pytest.raises(InputError, match="another run of this job is at work"):
        back_up(path, tmp_path / "copy")
    handle.stop()
    assert len(seen) > 3
    assert len({tuple(sizes) for sizes in seen}) > 1
    assert len(list((tmp_path / "state/state").iterdir())) <= 2  # the last but one may have been read meanwhile


def test_a_restored_backup_continues(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    made = back_up(path, tmp_path / "copy")
    run(path)
    done = restore(path, tmp_path / "copy", replace=True, remove_results=True)
    assert (made.batch, done.batch) == (2, 2)
    assert done.removed > 0
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_what_a_job_had_begun_behind_a_backup_is_removed(tmp_path: Path, sink: str) -> None:
    path, out = local(project(tmp_path, files=1, sink=sink)), tmp_path / "out" / "matches"
    add_files(tmp_path, table(), 6)
    crashed(path, CrashAt("published", 2), interval=NEVER)
    identity = back_up(path, tmp_path / "copy").identity
    run(path)
    restore(path, tmp_path / "copy", replace=True, remove_results=True)
    names = [f".{identity}-00000003-00001.0.draft", f"_delta_log/.ensue-{identity}.draft"]
    begun = next(out.glob("**/_delta_log")).parent / names[1] if sink == "delta" else out / names[0]
    begun.write_text("")  # a run was killed while it wrote
    restore(path, tmp_path / "copy", replace=True)
    assert not begun.exists()


def test_a_backup_that_a_restore_has_passed_by_is_refused(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    back_up(path, first)
    run(path)
    back_up(path, second)
    refused = "ends with micro-batch 6, and since it was made the job has gone back to micro-batch 2: what it wrote"
    restore(path, first, replace=True, remove_results=True)
    for _ in range(2):
        with pytest.raises(InputError, match=refused):
            restore(path, second, replace=True)
        run(path)
    back_up(path, third)
    restore(path, first, replace=True, remove_results=True)
    with pytest.raises(InputError, match="has gone back to micro-batch 2"):
        restore(path, third, replace=True)
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_restore_that_has_changed_nothing_yet_is_undone_by_another(tmp_path: Path) -> None:
    path = local(project(tmp_path, files=1))
    add_files(tmp_path, table().iloc[:0], 2)  # without a result
    run_once(path, once=True)
    back_up(path, tmp_path / "first")
    add_files(tmp_path, table().iloc[:0], 2, first=2)
    run_once(path, once=True)
    back_up(path, tmp_path / "second")
    restore(path, tmp_path / "first", replace=True)
    restore(path, tmp_path / "second", replace=True)
    restore(path, tmp_path / "first", replace=True)
    add_files(tmp_path, table(), 2, first=4)
    run(path)
    with pytest.raises(InputError, match="has gone back to micro-batch 1"):
        restore(path, tmp_path / "second", replace=True, remove_results=True)
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_restored_backup_continues_in_tables_of_delta(tmp_path: Path) -> None:
    """The backup has a micro-batch that is begun, and published: it is repeated, and what came behind it is taken out."""
    path, out = local(project(tmp_path, files=1, sink="delta")), tmp_path / "out" / "matches"
    add_files(tmp_path, table(), 6)
    crashed(path, CrashAt("published", 2), interval=NEVER)
    made = back_up(path, tmp_path / "copy")
    run(path)
    with pytest.raises(InputError, match="Add --remove-results to remove them"):
        restore(path, tmp_path / "copy", replace=True)
    assert restore(path, tmp_path / "copy", replace=True, remove_results=True).removed > 0
    sink = load_deployment(path).sinks["matches"]
    assert {result.batch for result in publishing(sink).results(sink)} == {made.batch}
    assert match_ids_in(out) != expected(tmp_path)
    run(path)
    assert match_ids_in(out) == expected(tmp_path)


def settled(folder: Path, after: str) -> Path:
    """A job that archives or deletes what it has read, backed up to `copy` after half of it, and run to its end."""
    path = sensors(folder)
    path.write_text(path.read_text().replace("path: data", f"path: data, after: {after}"))
    back_up(path, folder / "copy")
    run(path)
    return path


def test_a_backup_of_another_number_of_buckets_says_how_it_is_restored(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    back_up(path, tmp_path / "copy")
    rebucket(path, 5)
    text = path.read_text()
    path.write_text(text.replace("buckets: 3", "buckets: 5"))
    with pytest.raises(InputError, match=r"copy: is of 3 buckets, and the job has 5: set `buckets: 3` in"):
        restore(path, tmp_path / "copy", replace=True)
    path.write_text(text)
    restore(path, tmp_path / "copy", replace=True)
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)


def test_files_that_were_archived_since_a_backup_are_moved_back_and_read_again(tmp_path: Path) -> None:
    path = settled(tmp_path, "archive done")
    assert not [*(tmp_path / "data").iterdir()]
    done = restore(path, tmp_path / "copy", replace=True, remove_results=True)
    assert done.returned == len([*(tmp_path / "data").iterdir()]) == 3
    run(path)
    for file in (tmp_path / "done").iterdir():
        file.rename(tmp_path / "data" / file.name)
    assert streamed(tmp_path) == expected(tmp_path)


def test_files_that_were_deleted_since_a_backup_are_lost_only_if_asked_for(tmp_path: Path) -> None:
    path = settled(tmp_path, "delete")
    before = sorted((tmp_path / "out").rglob("*.parquet"))
    with pytest.raises(InputError, match=r"source 'readings': 3 files .*after: delete.*would be lost.*--accept-loss"):
        restore(path, tmp_path / "copy", replace=True, remove_results=True)
    assert sorted((tmp_path / "out").rglob("*.parquet")) == before
    done = restore(path, tmp_path / "copy", replace=True, remove_results=True, accept_loss=True)
    assert done.removed > 0
    run(path)


def test_without_a_checkpoint_nobody_knows_what_was_archived_since(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = settled(tmp_path, "archive done")
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    restore(path, tmp_path / "copy", remove_results=True)
    assert "source 'readings': there is no checkpoint that says which files were read behind the backup" in caplog.text


@pytest.mark.parametrize("moment", ["_put_aside", "_place", "running_of"])
def test_a_restore_that_was_interrupted_is_repeated_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = settled(tmp_path, "archive done")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if moment == "running_of":  # while files are moved back
            patched.setattr(after_reading, "_move", killed)
        else:
            patched.setattr(backup, moment, killed)
        with pytest.raises(KeyboardInterrupt):
            restore(path, tmp_path / "copy", replace=True, remove_results=True)
    for refused in (lambda: run_once(path, once=True), lambda: back_up(path, tmp_path / "other")):
        with pytest.raises(InputError, match=r"a restore of it was interrupted.*ensue restore .*copy --replace"):
            refused()
    done = restore(path, tmp_path / "copy", replace=True, remove_results=True)
    assert done.returned == 3
    run(path)
    for file in (tmp_path / "done").iterdir():
        file.rename(tmp_path / "data" / file.name)
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_backup_of_a_job_that_was_killed_repeats_what_it_had_not_saved(tmp_path: Path) -> None:
    path = local(project(tmp_path, files=1))
    add_files(tmp_path, table(), 6)
    crashed(path, CrashAt("published", 3))
    assert back_up(path, tmp_path / "copy").batch in (3, 4)  # the next one may have begun
    restore(path, tmp_path / "copy", replace=True)
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_key_is_forgotten_at_the_next_start(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    (state,) = job_state(path, ["s1"]).keys or ()
    assert state.events
    told = forget(path, ["s1"])
    assert not told.sent.is_running
    for file in sorted((tmp_path / "data").iterdir())[3:]:
        file.unlink()
    run_once(path, once=True)
    (state,) = job_state(path, ["s1"]).keys or ()
    assert not state.events
    counts = totals(JobFolder(tmp_path / "state").ledger.total(), "Rise")
    assert counts.get("forgotten", 0) + counts.get("forgotten_events", 0) > 0


def test_results_are_compacted_between_runs(tmp_path: Path) -> None:
    path = sensors(tmp_path, files=20)
    done = compact_job(path)
    assert (done.kept, done.sinks["matches"].replaced) == (2, 16)
    run(path)
    compact_job(path)
    assert streamed(tmp_path) == expected(tmp_path)


def compact_and_die(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(compaction.Replacement, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            compact_job(path)
    assert {file.suffix for file in (path.parent / "out").rglob(".compact-*")} == {".draft", ".plan"}


def test_a_backup_is_restored_where_a_compaction_was_killed_and_the_checkpoint_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sensors(tmp_path, files=20)
    back_up(path, LocalPath.of(tmp_path / "copy"))
    compact_and_die(path, monkeypatch)
    (tmp_path / "state").rename(tmp_path / "lost")
    restore(path, LocalPath.of(tmp_path / "copy"))
    run(path)
    assert not [*(tmp_path / "out").rglob(".*")]
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_compaction_that_was_killed_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sensors(tmp_path, files=20)
    compact_and_die(path, monkeypatch)
    run(path)
    assert not [*(tmp_path / "out").rglob(".*")]
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_query_begins_with_the_history_of_a_job(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    send_with_history(load_deployment(path), FALL, wait=False)
    run(path)
    found = streamed(tmp_path)
    query = tmp_path / "sensors.query"
    query.write_text(query.read_text() + FALL)
    everything = expected(tmp_path)
    new = set(pd.read_parquet(tmp_path / "out/matches/Fall")["match_id"])
    assert new < set(everything["Fall"])
    assert {name: found[name] for name in ("Rise", "Jump")} == {name: everything[name] for name in ("Rise", "Jump")}
    # the job gives no match that was complete before the query came, and all others
    assert len(new) > len(everything["Fall"]) // 3


def test_a_start_is_planned_on_the_checkpoint_of_its_own_engine(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    assert not plan_of(path).is_new
    path.write_text(path.read_text().replace("engine: local", "engine: spark"))
    with pytest.raises(InputError, match="this checkpoint is of `engine: local`"):
        plan_of(path)


@pytest.mark.parametrize("edit", ["replaced", "broken"])
def test_files_that_were_edited_since_do_not_stand_in_the_way(tmp_path: Path, edit: str) -> None:
    path, queries = sensors(tmp_path), tmp_path / "sensors.query"
    text = queries.read_text()
    queries.write_text(text.replace("50.0", "40.0") + FALL if edit == "replaced" else "query {")
    back_up(path, tmp_path / "copy")
    assert compact_job(path, 1 << 20)
    forget(path, ["sensor=s1"], wait=False)
    assert [key.query for key in job_state(path, ["s2"]).keys or ()] == ["Rise"]
    rebucket(path, 2)
    path.write_text(path.read_text().replace("buckets: 2", "buckets: 3"))
    restore(path, tmp_path / "copy", replace=True, remove_results=True)
    with pytest.raises(InputError if edit == "replaced" else EnsueError, match=r"files have changed since|expected"):
        run_once(path, once=True)
    queries.write_text(text)
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_start_that_ends_before_the_record_is_written_leaves_nothing_to_be_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sensors(tmp_path)
    for name in ("state", "out"):
        rmtree(tmp_path / name)

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(prepare, "write_record", fails)
        with pytest.raises((OSError, EnsueError)):
            run_once(path, once=True)
    (tmp_path / "sensors.query").write_text((tmp_path / "sensors.query").read_text().replace("50.0", "40.0"))
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)
