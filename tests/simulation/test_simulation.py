"""Some worlds in which anything fails, and the calls whose failures were found to be handled wrongly."""

from __future__ import annotations

import pytest

from tests.simulation.faults import Aim, Fault
from tests.simulation.jobs import Kind, tell

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""A process that was killed leaves open files behind, which Python closes some time later."""

SEEDS = range(30)
FOUND = [
    # a source file that the disk could not read for a moment was discarded for good
    (9, Kind.QUERIES, Aim("open", "json_files:read_json", Fault.BROKEN, 2)),
    (4, Kind.FILES, Aim("open", "csv_files:read_csv", Fault.BROKEN, 2)),
    (4, Kind.FILES, Aim("stat", "files:refuse_special", Fault.BROKEN, 2)),
    # a file whose state the disk could not tell for a moment was read behind later ones, or never
    (35, Kind.QUERIES, Aim("stat", "FolderWatch.stamp", Fault.BROKEN, 2)),
    (35, Kind.QUERIES, Aim("stat", "FolderWatch._look_at", Fault.BROKEN, 1)),
    # files of a checkpoint that the disk could not read for a moment were said to be damaged, or taken for missing
    (4, Kind.FILES, Aim("open", "json_reader:_of_local_file", Fault.BROKEN, 40)),
    # an error of a mark beside a reader came without a place
    (4, Kind.FILES, Aim("write", "CrashMarks.reading", Fault.BROKEN, 1)),
    # a file that was deleted was forgotten before that was on the disk: it came back, and was read again
    (210, Kind.FILES, Aim("rmdir", "start:put_away", Fault.POWER_AFTER)),
    # an error of the lock's file came without a place, and left the job locked
    (4, Kind.FILES, Aim("write", "RunLock.acquire", Fault.BROKEN)),
    # an error at the end of a run came without plain words
    (4, Kind.FILES, Aim("stat", "checkpoint_record:remove_unused", Fault.BROKEN, 2)),
]
"""Worlds and the call that had to fail in each, for something to be wrong."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_survives_what_happens_to_it(seed: int) -> None:
    story = tell(seed)
    assert not story.problems, story.text()


@pytest.mark.parametrize(
    ("seed", "kind", "aim"), FOUND, ids=lambda value: value.function if isinstance(value, Aim) else value
)
def test_a_fault_that_was_found_does_not_come_back(seed: int, kind: Kind, aim: Aim) -> None:
    story = tell(seed, aim=aim, kind=kind)
    assert any(aim.fault in line for line in story.lines), f"{aim.function} was not called so often"
    assert not story.problems, story.text()
