"""The log of a local job: what is repeated after a crash, and what is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from job_engine.local.run_log import KEPT, Begun, Committed, RunLog
from job_engine.local_path import LocalPath
from job_engine.sources.listing.batch_log import batches_of, committed_manifest, planned_manifest
from querylang.errors import InputError


def begun(folder: Path, count: int) -> LocalPath:
    checkpoint = LocalPath(folder)
    log = RunLog(checkpoint)
    for number in range(count):
        log.begin(Begun(number, 1000 + number, number + 1))
    return checkpoint


def test_all_that_is_not_committed_is_repeated_in_order(tmp_path: Path) -> None:
    checkpoint = begun(tmp_path, 12)
    RunLog(checkpoint).commit(Committed(7, (0, 1), {1: 5000}))
    log = RunLog(checkpoint)
    assert log.begun() == [Begun(number, 1000 + number, number + 1) for number in range(8, 12)]
    assert log.committed() == Committed(7, [0, 1], {1: 5000})


def test_others_read_how_far_it_is(tmp_path: Path) -> None:
    checkpoint = begun(tmp_path, 12)
    RunLog(checkpoint).commit(Committed(7))
    batches = batches_of(checkpoint)
    assert (batches.begun, batches.ended, batches.open, batches.first_open) == (11, 7, 11, 8)
    assert (planned_manifest(checkpoint), committed_manifest(checkpoint)) == (12, 8)


def test_a_new_log_repeats_nothing(tmp_path: Path) -> None:
    log = RunLog(LocalPath(tmp_path))
    assert (log.committed(), log.begun(), log.first_manifest) == (None, [], 0)


def test_entries_of_long_ago_and_states_without_a_commit_are_removed(tmp_path: Path) -> None:
    checkpoint = begun(tmp_path, KEPT + 5)
    log = RunLog(checkpoint)
    for number in (2, KEPT + 3):
        log.states_of(number).mkdir()
        log.commit(Committed(number))
    assert [file.name for file in (tmp_path / "state").iterdir()] == [f"{KEPT + 3:010d}"]
    assert min(int(file.name) for file in (tmp_path / "offsets").iterdir()) == 4
    assert [file.name for file in (tmp_path / "commits").iterdir()] == [str(KEPT + 3)]


def test_an_entry_that_is_missing_in_the_middle_is_named(tmp_path: Path) -> None:
    checkpoint = begun(tmp_path, 3)
    (tmp_path / "offsets" / "0").unlink()
    with pytest.raises(InputError, match=r"offsets: has no entry of micro-batch 0. Restore the whole checkpoint"):
        RunLog(checkpoint).begun()


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}\n{}", 'v1\n{"batchTimestampMs": -1}\n{"manifest": 1}', "\xff"])
def test_a_damaged_entry_is_named_with_the_way_out(tmp_path: Path, text: str) -> None:
    checkpoint = begun(tmp_path, 1)
    (tmp_path / "offsets" / "0").write_text(text, "latin-1")
    with pytest.raises(InputError, match=r"offsets/0: .*Restore the whole checkpoint from a copy"):
        RunLog(checkpoint).begun()
