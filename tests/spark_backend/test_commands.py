"""Commands to jobs: written, taken exactly once and in order, answered; without Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from job_engine.job.commands import refuse_unheeded
from job_engine.operator.step import run_step
from job_engine.sources.listing.command_folder import CHANGE, ERROR, TAKEN, Answer, Command, CommandFolder
from job_engine.sources.listing.manifests import KEPT, Manifest
from job_engine.sources.task_reading import control_records, packed_commands
from job_engine.wire.packed_rows import pack_arrivals
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag, TaggedRow
from querylang.errors import InputError
from runtime.columns.arrivals import Arrivals
from tests.spark_backend.samples import PLAN, SEVERAL, arrivals_of
from tests.support.buckets import rows_of
from tests.support.listed_job import Job, paths

BEAT = 'Heartbeat("A", 1000040.0)'


def texts(manifest: Manifest | None) -> list[str]:
    return [] if manifest is None else [command.text for command in manifest.commands]


def test_commands_that_are_written_at_once_are_all_there(tmp_path: Path) -> None:
    folder = CommandFolder(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        sent = list(threads.map(lambda number: folder.send(f"e{number}"), range(40)))
    assert len({command.number for command in sent}) == 40
    assert {read.text for number in folder.pending() if (read := folder.read(number))} == {f"e{n}" for n in range(40)}


def test_commands_come_in_order_in_a_manifest_without_records(tmp_path: Path) -> None:
    job, folder = Job(tmp_path), CommandFolder(tmp_path / "state")
    job.add("1.csv")
    folder.send("first")
    folder.send("second", at=5)
    job.start(at_start="start")
    manifest = job.step()
    assert (texts(manifest), paths(manifest)) == (["first", "second"], [])
    assert manifest is not None
    assert manifest.signal == "start"
    assert [command.at for command in manifest.commands] == [None, 5]
    assert paths(job.step()) == ["1.csv"]
    folder.send("third")
    assert texts(job.step()) == ["third"]
    assert job.step() is None


def test_a_killed_run_neither_loses_nor_repeats_a_command(tmp_path: Path) -> None:
    job, folder = Job(tmp_path), CommandFolder(tmp_path / "state")
    folder.send("e")
    job.start()
    assert texts(job.ask()) == ["e"]
    job.start()  # Spark did not know of it
    assert texts(job.step()) == ["e"]
    job.start()  # killed before it was answered
    assert job.step() is None
    folder.add(0, [Answer(folder.pending()[0], "", 1, TAKEN, 7)])
    assert folder.pending() == []


def test_a_command_is_taken_once_however_long_the_list(tmp_path: Path) -> None:
    job, folder = Job(tmp_path), CommandFolder(tmp_path / "state")
    folder.send("e")
    job.start()
    job.step()
    for number in range(2 * KEPT + 10):
        job.add(f"{number}.csv")
        job.step()
    job.start()
    assert job.step() is None


def test_what_is_behind_a_change_waits_for_it(tmp_path: Path) -> None:
    job, folder = Job(tmp_path), CommandFolder(tmp_path / "state")
    folder.send("before")
    change = folder.send("UndeployQuery(...)", kind=CHANGE)
    folder.send("behind")
    job.start()
    assert texts(job.step()) == ["before"]
    assert job.step() is None
    folder.add(1, [Answer(change.number, "job", 1, "undeployed", 7)])
    assert texts(job.step()) == ["behind"]


def test_a_damaged_command_is_answered_with_what_is_wrong(tmp_path: Path) -> None:
    folder = CommandFolder(tmp_path)
    number = folder.send("e").number
    (tmp_path / f"ensue/commands/{number:020d}.json").write_text("{")
    damaged = folder.read(number)
    assert damaged is not None
    assert damaged.kind == ERROR
    assert "is damaged" in damaged.text
    answers = rows_of(steps(Program.of(PLAN, buckets=2), [damaged]), Tag.ANSWER)
    assert [(row["number"], row["kind"]) for row in answers] == [(number, ERROR)]


def test_answers_of_a_repeated_micro_batch_count_once(tmp_path: Path) -> None:
    folder = CommandFolder(tmp_path)
    number = folder.send("e").number
    taken, answer = Answer(number, "", 2, TAKEN, 7), Answer(number, "0", 2, "control", 7, count=3)
    for _ in range(2):
        folder.add(4, [taken, answer])
    outcome = folder.outcome(number)
    assert outcome is not None
    assert (outcome.batch, outcome.time, outcome.count, outcome.is_complete) == (4, 7, 3, False)
    folder.add(5, [Answer(number, "1", 2, "control", 9, count=1)])
    complete = folder.outcome(number)
    assert complete is not None
    assert (complete.batch, complete.count, complete.is_complete) == (4, 4, True)


def test_a_control_event_takes_place_where_sources_have_been_read_to() -> None:
    """The answer is that of one run in which the event has that arrival."""
    program, arrivals = Program.of(SEVERAL, buckets=3), arrivals_of(600, plan=SEVERAL)
    place = int(arrivals.system("arrival")[299])
    commands = [Command(5, BEAT), Command(6, "Nothing(1)")]
    parts = [pack_arrivals(arrivals.take(rows), program.groups(), 3) for rows in np.array_split(np.arange(600), 2)]
    tagged = run(program, [[parts[0]], list(packed_commands(commands, program, 1)), [parts[1]]])
    control = control_records([Command(5, BEAT, at=place)], SEVERAL, 1)
    whole = Arrivals.concat([arrivals, control])
    alone = run(Program.of(SEVERAL, buckets=1), [[pack_arrivals(whole, Program.of(SEVERAL, buckets=1).groups(), 1)]])
    assert ids(tagged) == ids(alone) != ids(run(program, [[part] for part in parts]))
    answers = [(row["number"], row["part"], row["kind"], row["time"]) for row in rows_of(tagged, Tag.ANSWER)]
    assert answers[:2] == [(5, "", TAKEN, place), (6, "", ERROR, place)]
    assert [answer for answer in answers if answer[0] == 5][1:] == [
        (5, "0", "control", place),
        (5, "1", "control", place),
    ]


@pytest.mark.parametrize(
    "text", ['Heartbeat("C", 5)', 'Heartbeat("D", 5)', "Foo(1)", "SetDelayedEventsLeeway(5, 20)", 'UndeployQuery("Q")']
)
def test_control_events_that_no_query_heeds_are_refused(text: str) -> None:
    """The inputs of PLAN are out of order: no record advances their timelines."""
    with pytest.raises(InputError):
        refuse_unheeded(text, PLAN)
    refuse_unheeded('Heartbeat("A", 5)', PLAN)


def steps(program: Program, commands: list[Command]) -> list[TaggedRow]:
    return run(program, [list(packed_commands(commands, program, 1))])


def run(program: Program, batches: list[list[object]]) -> list[TaggedRow]:
    states: dict[int, bytes] = {}
    out: list[TaggedRow] = []
    for number, packed in enumerate(batches):
        rows = [row for batch in packed for row in batch.to_pylist()]  # type: ignore[attr-defined]
        for bucket in range(program.buckets):
            own = [row["data"] for row in rows if row["bucket"] == bucket]
            step = run_step(program, bucket, states.get(bucket), own, number)
            states[bucket] = step.state
            out.extend(step.rows)
    return out


def ids(tagged: list[TaggedRow]) -> list[str]:
    return sorted(str(row["match_id"]) for row in rows_of(tagged, Tag.MATCH))
