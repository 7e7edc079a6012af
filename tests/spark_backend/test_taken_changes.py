"""Changes of the queries that users send to jobs: taken once, whatever is killed; without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.checkpoint_record import write_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.commands import send_change, send_control, what_it_waits_for
from job_engine.job.preflight import Checked, checked
from job_engine.job.stages import between_batches as taking
from job_engine.job.stages.between_batches import has_change
from job_engine.job.written_journal import journal_file, read_journal, write_journal
from job_engine.sources.listing.command_folder import CHANGE, CommandFolder
from job_engine.wire.plan_text import load_plan
from job_engine.wire.program import Notice, Program
from querylang.errors import InputError
from runtime.json_reader import shaped
from tests.support.job_without_spark import started
from tests.support.readings_job import let_it_have_read, write_job

EVENT = "event Reading { string sensor; float value; }\nevent Other { string sensor; }\n"
RISING = "query Rising { parameters { float least := 1.0; } inputs { Reading() key sensor within 60 seconds; } find Reading:a -> Reading:b where b.value > a.value + least }"
FALLING = RISING.replace("Rising", "Falling").replace("> a.value + least", "< a.value - least")


@pytest.fixture
def ready(tmp_path: Path) -> Checked:
    (tmp_path / "in").mkdir()
    found = checked(load_deployment(write_job(tmp_path, EVENT + RISING)))
    found.deployment.checkpoint.mkdir(exist_ok=True)
    write_record(found.deployment.checkpoint, found.record)
    return found


def queries(program: Program) -> list[str]:
    return [query.title for query in program.running().queries]


def send(ready: Checked, name: str, *arguments: object) -> int:
    return send_change(ready.deployment, json.dumps({name: arguments}), wait=False).command.number


def folder(ready: Checked) -> CommandFolder:
    return CommandFolder(ready.deployment.checkpoint)


def test_changes_are_done_in_order_and_answered(ready: Checked) -> None:
    sent = [
        send(ready, "DeployQuery", FALLING),
        send(ready, "SetParameters", "Falling", "", {"least": 3.0}),
        send(ready, "UndeployQuery", "Rising"),
    ]
    program = started(ready)
    assert queries(program) == ["Falling"]
    assert [epoch.number for epoch in program.epochs] == [0, 1, 2, 3]
    outcomes = [folder(ready).outcome(number) for number in sent]
    kinds = [next(iter(outcome.answers.values())).kind for outcome in outcomes if outcome is not None]
    assert kinds == ["deployed", "set", "undeployed"]
    assert not has_change(ready.deployment.checkpoint)
    assert queries(started(ready)) == ["Falling"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("DeployQuery", RISING), "'Rising' runs already; replace or undeploy first"),
        (("DeployQuery", "query Q { inputs { Reading() within 1 s; } }"), "line 1"),
        (
            ("DeployQuery", "query Q { inputs { Other() within 1 seconds; } find Other:a -> Other:b }"),
            "no source of the job brings events of 'Other'",
        ),
        (("DeployQuery", "query Q { inputs { Gone() within 1 seconds; } find Gone:a -> Gone:b }"), "Gone"),
        (("SetParameters", "Rising", "", {"least": "much"}), "least"),
        (("SetParameters", "Rising", "", {"leastt": 2.0}), "did you mean 'least'?"),
        (("RemoveInstance", "Rising", "eu"), "query 'Rising' has no instance 'eu'"),
        (("UndeployQuery", "Risin"), "there is no query 'Risin'; did you mean 'Rising'?"),
    ],
)
def test_wrong_changes_change_nothing_and_say_why(ready: Checked, change: tuple[object, ...], message: str) -> None:
    number = send(ready, str(change[0]), *change[1:])
    program = started(ready)
    assert queries(program) == ["Rising"]
    outcome = folder(ready).outcome(number)
    assert outcome is not None
    assert [message in error for error in outcome.errors] == [True], outcome.errors
    assert [item.kind for notice in program.notices for item in notice.outcomes] == ["error"]


def test_a_text_that_runs_already_is_said_to_be_unchanged(ready: Checked) -> None:
    number = send(ready, "ReplaceQuery", RISING)
    assert queries(started(ready)) == ["Rising"]
    outcome = folder(ready).outcome(number)
    assert outcome is not None
    assert [(answer.kind, answer.text) for answer in outcome.answers.values()] == [
        ("unchanged", "'Rising' has this text already")
    ]


def test_a_job_may_be_left_without_queries(ready: Checked) -> None:
    send(ready, "UndeployQuery", "Rising")
    program = started(ready)
    assert queries(program) == []
    assert [query.name for query in program.plan().queries] == ["Rising"]
    assert queries(started(ready)) == []
    send(ready, "DeployQuery", FALLING)
    assert queries(started(ready)) == ["Falling"]


def test_a_change_is_refused_at_once_if_it_is_not_one(ready: Checked) -> None:
    with pytest.raises(InputError, match="DeployQuery"):
        send_change(ready.deployment, 'DeployQuery("")')


def test_a_control_event_may_concern_a_query_that_was_deployed_later(ready: Checked) -> None:
    control = "SetDelayedEventsLeeway(3.0, 1.0)"
    with pytest.raises(InputError, match="no query heeds SetDelayedEventsLeeway"):
        send_control(ready.deployment, control, wait=False)
    send(ready, "DeployQuery", FALLING.replace("60 seconds", "60 seconds wait 2 seconds"))
    started(ready)
    assert not send_control(ready.deployment, control, wait=False).is_running


def test_a_killed_start_does_a_change_once(ready: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    number = send(ready, "DeployQuery", FALLING)
    with monkeypatch.context() as patch:
        patch.setattr(taking, "write_journal", _killed)
        with pytest.raises(KeyboardInterrupt):
            started(ready)
    assert folder(ready).pending() == [number]
    assert read_journal(ready.deployment) is None
    with monkeypatch.context() as patch:
        patch.setattr(taking, "_answer", _killed)
        with pytest.raises(KeyboardInterrupt):
            started(ready)
    assert folder(ready).pending() == [number]
    program = started(ready)
    assert queries(program) == ["Rising", "Falling"]
    assert len(program.notices) == 1
    assert folder(ready).pending() == []


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_change_whose_file_is_back_behind_a_power_cut_is_not_done_again(ready: Checked) -> None:
    number, checkpoint = send(ready, "UndeployQuery", "Rising"), ready.deployment.checkpoint
    (file,) = (path for path in folder(ready).path.iterdir() if str(number) in path.name)
    data = file.read_text()
    started(ready)
    send(
        ready, "DeployQuery", EVENT + RISING.replace(" parameters { float least := 1.0; }", "").replace(" + least", "")
    )
    started(ready)
    journal = read_journal(ready.deployment)
    assert journal is not None
    write_journal(checkpoint, replace(journal, taken=()))  # all of it was reported
    file.write_text(data)
    assert has_change(checkpoint)
    assert queries(started(ready)) == ["Rising#1"]
    assert not folder(ready).pending()


def test_no_change_is_done_while_a_micro_batch_is_open(ready: Checked) -> None:
    checkpoint = ready.deployment.checkpoint
    for name in ("offsets/0", "commits/0", "offsets/1"):
        (checkpoint / name).parent.mkdir(exist_ok=True)
        (checkpoint / name).write_text("v1\n{}", "utf-8")
    send(ready, "DeployQuery", FALLING)
    assert queries(started(ready)) == ["Rising"]
    assert has_change(checkpoint)
    (checkpoint / "commits" / "1").write_text("v1\n{}", "utf-8")
    assert queries(started(ready)) == ["Rising", "Falling"]


def test_later_commands_wait_for_changes(ready: Checked) -> None:
    own = folder(ready)
    own.send("first", kind=CHANGE)
    own.send("SetDelayedEventsLeeway(5, 20)")
    assert has_change(ready.deployment.checkpoint)
    started(ready)
    assert len(own.pending()) == 1
    assert not has_change(ready.deployment.checkpoint)


def test_a_damaged_journal_is_named(ready: Checked) -> None:
    send(ready, "DeployQuery", FALLING)
    started(ready)
    file = cast("Path", journal_file(ready.deployment.checkpoint).place)
    file.write_text(file.read_text("utf-8")[:-20], "utf-8")
    with pytest.raises(InputError, match=r"program.json: is damaged"):
        started(replace(ready))


def test_the_plans_of_a_journal_are_read_back(ready: Checked) -> None:
    send(ready, "DeployQuery", FALLING)
    program = started(ready)
    journal = read_journal(ready.deployment)
    assert journal is not None
    assert journal.running.plan().queries == load_plan(program.epochs[-1].plan).queries


def test_a_notice_of_an_older_journal_belongs_to_the_first_epoch() -> None:
    assert shaped({"number": 3, "place": 7, "outcomes": []}, Notice) == Notice(3, 7, (), 0)


def test_an_old_text_that_never_ends_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    ordering = {"policy": "stream_analytics", "late": "5s", "out_of_order": "2s", "action": "adjust"}
    source = {"path": "in", "format": "csv", "event": "Reading", "source_time": "ts", "ordering": ordering}
    ready = checked(load_deployment(write_job(tmp_path, EVENT + RISING, sources={"readings": source})))
    ready.deployment.checkpoint.mkdir(exist_ok=True)
    write_record(ready.deployment.checkpoint, ready.record)
    let_it_have_read(tmp_path / "state")
    number = send(ready, "ReplaceQuery", RISING.replace("60 seconds", "90 seconds"))
    started(ready)
    outcome = folder(ready).outcome(number)
    assert outcome is not None
    (answer,) = outcome.answers.values()
    assert "so it runs on beside the new one; a replacement with `--now` ends it" in answer.text
    send(ready, "ReplaceQuery", RISING.replace("60 seconds", "120 seconds"), "now")
    assert len(started(ready).running().queries) == 1


def test_a_command_that_waits_says_for_what(ready: Checked) -> None:
    job = JobFolder(ready.deployment.checkpoint)
    first = send_change(ready.deployment, json.dumps({"UndeployQuery": ["Rising"]}), wait=False).command
    second = send_change(ready.deployment, json.dumps({"DeployQuery": [RISING]}), wait=False).command
    assert what_it_waits_for(job, first).startswith("the first micro-batch: ")
    assert what_it_waits_for(job, second) == f"command {first.number}, which was sent before it"
    spark = ready.deployment.checkpoint
    for name in ("offsets/0", "commits/0", "offsets/1"):
        (spark / name).parent.mkdir(parents=True, exist_ok=True)
        (spark / name).write_text("v1\n")
    assert what_it_waits_for(job, first) == "the end of micro-batch 1, which is being processed"
    (spark / "commits/1").write_text("v1\n")
    assert what_it_waits_for(job, first).startswith("the next micro-batch; ")
