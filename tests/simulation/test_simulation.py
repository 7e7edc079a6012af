"""Some worlds in which anything fails, and the calls whose failures were found to be handled wrongly."""

from __future__ import annotations

import json
import random
import signal
from dataclasses import asdict
from pathlib import Path

import pytest

from job_engine.sources.crash_marks import death_of
from tests.simulation.faults import Aim, Fault, Met
from tests.simulation.hunt import Coverage, Part, next_seed, parts_of, summary
from tests.simulation.jobs import Less, Story, tell
from tests.simulation.kinds import Kind
from tests.simulation.mutants import MISTAKES, ROOT
from tests.simulation.real import tell_really
from tests.simulation.scheduler import Scheduler
from tests.simulation.shrink import shrunk
from tests.simulation.sites import sites, sites_of, unmet

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""A process that was killed leaves open files behind, which Python closes some time later."""

WRONG_ONCE = (
    82,  # a query ended before the first record, and one of its group began with history
    392,  # a folder whose name was never synced went with a power cut
    451,  # a thread waited for another one at a lock that the scheduler does not know
    1001306,  # a file came to a folder that had been listed, and a later one to another folder before that was
    1001501,  # a routed heartbeat without a key went to one bucket, which need not be that of the query it is for
    1001672,  # somebody else who started the job was first
    1001826,  # a broker was away longer than a process lived
    1002640,  # an entry of the log was seen, and went with a power cut, when its results were there
    698,  # a job whose first file had no event type of its queries took the column of types for a field
)
SEEDS = (*range(30), *WRONG_ONCE)
FOUND = [
    # a source file that the disk could not read for a moment was discarded for good
    (9, Kind.QUERIES, Aim("open", "json_files:read_json", Fault.BROKEN, 2)),
    (4, Kind.FILES, Aim("open", "csv_files:read_csv", Fault.BROKEN, 2)),
    (4, Kind.FILES, Aim("stat", "tables:refuse_special", Fault.BROKEN, 2)),
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
    # a folder that the disk could not tell of while a deployment file was read was said to be a file
    (10, Kind.QUERIES, Aim("stat", "located:_refuse_no_folder", Fault.BROKEN)),
    # a moment later, that was an error without plain words
    (10, Kind.QUERIES, Aim("stat", "located:_refuse_no_folder", Fault.BROKEN, 1)),
    # an error at the end of a run came without plain words
    (4, Kind.FILES, Aim("stat", "checkpoint_record:remove_unused", Fault.BROKEN, 2)),
]
"""Worlds and the call that had to fail in each, for something to be wrong."""


def test_a_story_really_happens() -> None:
    assert tell_really(22, "local").problems == []  # a life that is killed, and one that continues


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_survives_what_happens_to_it(seed: int) -> None:
    story = tell(seed, has_care=seed not in WRONG_ONCE)
    assert not story.problems, story.text()


@pytest.mark.parametrize(
    ("seed", "kind", "aim"), FOUND, ids=lambda value: value.function if isinstance(value, Aim) else value
)
def test_a_fault_that_was_found_does_not_come_back(seed: int, kind: Kind, aim: Aim) -> None:
    story = tell(seed, aim=aim, kind=kind)
    assert any(aim.fault in line for line in story.lines), f"{aim.function} was not called so often"
    assert not story.problems, story.text()


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        (67, Kind.TOPICS),  # a backup was restored whose topic had later results: no start was possible any more
        (48, Kind.TOPICS),  # a power cut brought back the results that a restore had removed
        (2, Kind.FILES),
        (18288, None),  # a query ended before all records, and was given a control event that came before the others
        (26737, None),  # a query was replaced before its first record, and records were counted in its next epoch, too
        (25661, None),  # a file was archived whose commit was seen, and went with a power cut
        (26004, None),  # a checkpoint of a log of Delta went with a power cut, and its name stayed
        (24868, None),  # another writer shortened the log of a table while a micro-batch was committed
        (34727, None),  # a power cut brought back a draft that a repeated micro-batch had removed
        (21192, None),  # what became of changes stayed untold where nothing was ever read
    ],
)
def test_what_went_wrong_between_two_lives_does_not_come_back(seed: int, kind: Kind | None) -> None:
    story = tell(seed, kind=kind)
    assert not story.problems, story.text()


def test_what_a_problem_does_not_need_is_left_out() -> None:
    def told(seed: int, less: Less) -> Story:
        """A world that goes wrong by its fault 5 in its second life, with three rows."""
        rows, lives = 40 if less.rows is None else less.rows, 7 if less.lives is None else less.lives
        is_wrong = 5 not in less.muted and lives >= 2 and rows >= 3
        return Story(seed, problems=["lost"] if is_wrong else [], lives=lives + 1, rows=rows, faults=12)

    (line,) = shrunk(17, tells=told).lines
    assert line == f"with {Less(3, 2, frozenset(range(12)) - {5})}"


def test_less_of_a_world_happens() -> None:
    all_of_it = tell(1, has_care=False)
    less = tell(1, less=Less(rows=3, lives=1, muted=frozenset(range(1000))), has_care=False)
    assert all_of_it.faults
    assert all_of_it.lives > 2
    assert (less.rows, less.lives) == (3, 2)
    assert not any("before" in line or "after" in line for line in less.lines)


def test_a_hunt_continues_where_its_record_ends(tmp_path: Path) -> None:
    record = tmp_path / "hunt.jsonl"
    assert next_seed(parts_of(record)) == 0
    parts = [Part("abc", 0, 40, 150, 90, 360.0, []), Part("abc", 40, 40, 140, 80, 360.0, [57])]
    lines = [json.dumps(asdict(part)) for part in parts]
    record.write_text("\n".join([*lines, lines[0][:20]]), "utf-8")  # the machine was switched off
    assert parts_of(record) == parts
    assert next_seed(parts) == 80
    assert [*summary(parts)] == ["abc: 80 worlds from seed 0 on, 290 lives, 170 faults, 0.2 h, with problems: [57]"]


def test_a_hunt_counts_what_it_has_met_over_all_its_runs(tmp_path: Path) -> None:
    record = tmp_path / "hunt.jsonl"
    Coverage(record).add(Met({("write", "job:File.save", ""): 9, ("write", "job:File.save", "disk full"): 2}))
    counted = Coverage(record)
    counted.add(Met({("write", "job:File.save", ""): 1}))
    first, last = Coverage(record).lines()
    assert first.startswith("write of job:File.save: 12 calls; disk full 2; never: ")
    assert last.startswith("1 of ")


def test_call_sites_are_found_in_the_code() -> None:
    text = """\
from job_engine.durable_files import sync
class Log:
    def begin(self, path):
        def inner():
            return path.read_bytes()
        return "a".replace("a", "b")
    def commit(self, path):
        sync(path)
    def other(self):
        self.sync(1)
"""
    assert sites_of(text) == ["Log.begin.<locals>.inner", "Log.commit"]


def test_worlds_meet_what_the_code_has() -> None:
    met = Met()
    tell(2, met, kind=Kind.FILES)
    tell(2, met, kind=Kind.TOPICS)
    functions = {function for _, function, _ in met}
    missing = unmet(functions)
    assert len([*sites()]) - len(missing) > 50
    assert "job_engine/local/run_log:RunLog.begin" not in missing
    assert "job_engine/kafka_broker:AskedBroker._connect" not in missing


def test_a_fork_has_no_other_threads_to_hand_on_to() -> None:
    scheduler = Scheduler(random.Random(1))
    scheduler.start(lambda: [scheduler.step() for _ in range(50)], "second")

    def attempt() -> None:
        signal.alarm(60)
        for _ in range(50):
            scheduler.step()

    assert death_of(attempt) is None
    scheduler.finish()


def test_each_deliberate_mistake_is_one_place_of_the_code() -> None:
    wrong = [mistake for mistake in MISTAKES if (ROOT / mistake.file).read_text("utf-8").count(mistake.right) != 1]
    assert not wrong
