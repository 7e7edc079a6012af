"""Starts of jobs whose files of queries and values have changed; without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.job import file_changes
from job_engine.job.checkpoint.checkpoint_record import read_record, write_record
from job_engine.job.commands import send_change, send_shadow
from job_engine.job.file_changes import take_files
from job_engine.job.preflight import StartPlan, checked, note_release, plan_of
from job_engine.job.status import status_of
from job_engine.job.written_journal import read_files, read_journal
from job_engine.wire.program import Program
from querylang.errors import InputError
from tests.support.job_without_spark import started
from tests.support.readings_job import let_it_have_read, write_job

EVENT = "event Reading { string sensor; float value; }\n"
RISING = "query Rising { parameters { float least := 1.0; } inputs { Reading() key sensor within 60 seconds; } find Reading:a -> Reading:b where b.value > a.value + least }\n"
FALLING = RISING.replace("Rising", "Falling").replace("> a.value + least", "< a.value - least")


class Folder:
    """A job in a folder, whose starts do all but read records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "in").mkdir()
        self.say(RISING)

    @property
    def job(self) -> Path:
        return self.path / "job.yaml"

    def say(self, *queries: str, **values: Any) -> None:
        """Let the files say this."""
        write_job(self.path, EVENT + "".join(queries), **({"parameters": values} if values else {}))

    def start(self, *, apply: bool = False) -> Program:
        ready = checked(load_deployment(self.job), apply=apply)
        if ready.is_new:
            write_record(ready.deployment.checkpoint, ready.record)
        note_release(ready.deployment.checkpoint)
        take_files(ready.deployment, ready.files, ready.program, is_written=ready.is_written)
        if ready.has_other_files:
            write_record(ready.deployment.checkpoint, ready.record)
        return started(ready)

    def send(self, name: str, *arguments: object) -> None:
        send_change(load_deployment(self.job), json.dumps({name: arguments}), wait=False)

    def plan(self) -> StartPlan:
        return plan_of(self.job)

    def written(self) -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in (self.path / "state").rglob("*") if file.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    found = Folder(tmp_path)
    found.start()
    return found


def queries(program: Program) -> list[str]:
    return [query.title for query in program.running().queries]


def test_a_start_with_the_same_files_has_no_journal(folder: Folder) -> None:
    assert queries(folder.start()) == ["Rising"]
    assert read_journal(load_deployment(folder.job)) is None
    assert folder.plan() == StartPlan(is_new=False)


def test_a_new_checkpoint_has_nothing_to_change(tmp_path: Path) -> None:
    assert Folder(tmp_path).plan() == StartPlan(is_new=True)


def test_a_start_with_changed_files_shows_what_would_change_and_stops(folder: Folder) -> None:
    folder.say(RISING, FALLING, Rising={"eu": {"least": 4.0}})
    before = folder.written()
    with pytest.raises(InputError) as refused:
        folder.start()
    job = folder.job
    assert str(refused.value) == (
        f"{folder.path / 'state'}: the files have changed since they were last applied: deploy: instance 'eu' of"
        " 'Rising' has least=4.0; remove 'Rising'; deploy 'Falling'."
        f" Nothing was changed. `ensue plan {job}` shows what would change; `ensue run {job} --apply` does it"
    )
    assert list(folder.plan().changes) == [
        "deploy: instance 'eu' of 'Rising' has least=4.0",
        "remove 'Rising'",
        "deploy 'Falling'",
    ]
    assert folder.written() == before


def test_apply_does_what_was_shown_once(folder: Folder) -> None:
    folder.say(RISING, FALLING, Rising={"eu": {"least": 4.0}})
    program = folder.start(apply=True)
    assert queries(program) == ["Rising/eu", "Falling"]
    assert [epoch.number for epoch in program.epochs] == [0, 1]
    assert folder.plan() == StartPlan(is_new=False)
    assert queries(folder.start()) == ["Rising/eu", "Falling"]
    assert len(folder.start(apply=True).epochs) == 2


def test_live_changes_win_over_files_that_stay(folder: Folder) -> None:
    folder.send("DeployQuery", FALLING)
    folder.send("SetParameters", "Rising", "", {"least": 3.0})
    folder.send("UndeployQuery", "Rising")
    folder.send("DeployQuery", RISING)
    folder.send("SetParameters", "Rising", "", {"least": 7.0})
    folder.start()
    assert queries(folder.start()) == ["Falling", "Rising#2"] or len(folder.start().running().queries) == 2
    plan = folder.plan()
    assert plan.changes == ()
    assert "keep 'Falling': its text is live" in plan.live
    assert "keep 'Rising': its values are live: least=7.0" in plan.live


def test_a_query_that_was_removed_live_comes_back_with_apply_only(folder: Folder) -> None:
    folder.send("DeployQuery", FALLING)
    folder.send("UndeployQuery", "Rising")
    assert queries(folder.start()) == ["Falling"]
    assert queries(folder.start()) == ["Falling"]
    plan = folder.plan()
    assert (plan.changes, plan.is_needed) == (("deploy 'Rising'",), False)
    back = folder.start(apply=True).running().queries
    assert [query.public_title for query in back] == ["Falling", "Rising"]


def test_changes_that_wait_are_done_before_the_files(folder: Folder) -> None:
    folder.send("DeployQuery", FALLING)
    folder.say(RISING, FALLING)
    assert folder.plan().changes == ()
    assert queries(folder.start()) == ["Rising", "Falling"]


def test_files_in_another_order_are_the_same_files(folder: Folder) -> None:
    folder.say(RISING, FALLING)
    folder.start(apply=True)
    folder.say(FALLING, RISING)
    assert queries(folder.start()) == ["Rising", "Falling"]


def test_a_replaced_text_says_how_it_hands_over(folder: Folder) -> None:
    folder.say(RISING.replace("60 seconds", "90 seconds"))
    assert folder.plan().changes == ("replace 'Rising': it begins with the first record",)
    let_it_have_read(folder.path / "state")
    (line,) = folder.plan().changes
    assert line.startswith("replace 'Rising': the old text gives the matches before ")
    folder.say(RISING.replace("within 60 seconds", "retain 3"))
    (line,) = folder.plan().changes
    assert line.endswith("with empty windows")
    folder.say(RISING.replace("least }", 'least { print "found"; } }'))
    assert folder.plan().changes == ("replace 'Rising': it keeps all state",)


@pytest.mark.parametrize(
    ("event", "query", "message"),
    [
        (EVENT.replace("value;", "value; float more;"), RISING, "event type 'Reading' is known with other fields"),
        (EVENT + "event Other { string k; }\n", "query O { inputs { Other() within 5 seconds; } find Other:a }", "no source of the job brings events of 'Other'"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_applied_are_refused_and_change_nothing(
    folder: Folder, event: str, query: str, message: str
) -> None:
    folder.say(query)
    (folder.path / "q.query").write_text(event + query, "utf-8")
    before = folder.written()
    for apply in (True, False):
        with pytest.raises(InputError, match=message):
            folder.start(apply=apply)
    with pytest.raises(InputError, match=message):
        folder.plan()
    assert folder.written() == before


def test_an_open_micro_batch_is_repeated_as_it_was_before_the_files_are_applied(folder: Folder) -> None:
    state = folder.path / "state"
    for name in ("offsets/0", "commits/0", "offsets/1"):
        (state / name).parent.mkdir(exist_ok=True)
        (state / name).write_text("v1\n{}", "utf-8")
    folder.say(FALLING)
    assert queries(folder.start(apply=True)) == ["Rising"]
    assert queries(folder.start()) == ["Rising"]
    (state / "commits" / "1").write_text("v1\n{}", "utf-8")
    assert queries(folder.start()) == ["Falling"]


def test_a_status_shows_a_handover_in_progress(folder: Folder) -> None:
    let_it_have_read(folder.path / "state")
    folder.say(RISING.replace("60 seconds", "90 seconds"))
    folder.start(apply=True)
    (running,) = status_of(folder.job).running
    journal = read_journal(load_deployment(folder.job))
    assert journal is not None
    assert running.handover == journal.running.queries["Rising"].current.starts is not None


@pytest.mark.parametrize("step", ["write_journal", "files_text", "write_files"])
def test_a_killed_start_loses_and_doubles_nothing(folder: Folder, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.say(RISING, FALLING)
    with monkeypatch.context() as patch:
        patch.setattr(file_changes, step, killed_at(step))
        with pytest.raises(KeyboardInterrupt):
            folder.start(apply=True)
    program = folder.start(apply=True)
    assert queries(program) == ["Rising", "Falling"]
    assert [item.kind for notice in program.notices for item in notice.outcomes] == ["deployed"]
    assert folder.plan() == StartPlan(is_new=False)


def killed_at(_: str) -> Callable[..., Any]:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    return killed


def test_a_checkpoint_without_the_texts_of_its_files_learns_them_at_its_next_start(folder: Folder) -> None:
    file = folder.path / "state" / "ensue" / "files.json"
    file.unlink()
    folder.say(RISING, FALLING)
    with pytest.raises(InputError, match="queries with Falling"):
        folder.start(apply=True)
    folder.say(RISING)
    folder.start()
    assert read_files(load_deployment(folder.job)) is not None
    folder.say(RISING, FALLING)
    assert queries(folder.start(apply=True)) == ["Rising", "Falling"]
    record = read_record(folder.path / "state")
    assert record is not None
    assert record.queries == ("Rising", "Falling")


SECRET = "query Alerts { parameters { string token; float least := 1.0; } inputs { Reading() key sensor within 60 seconds; } find Reading:a -> Reading:b where b.value > a.value + least { send Alert(token) to token; } }\nevent Alert { string token; }\n"
SAFE = {"eu": {"token": "Bearer ${ALERT_TOKEN}", "least": "${LEAST}"}, "us": {"token": "${file:token.txt}"}}
KEPT = ("s3cr3t-of-eu", "s3cr3t-of-us", "31.25", "an0ther-one")


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("ALERT_TOKEN", KEPT[0])
    monkeypatch.setenv("LEAST", KEPT[2])
    (tmp_path / "token.txt").write_text(KEPT[1] + "\n", "utf-8")
    found = Folder(tmp_path)
    found.say(RISING, SECRET, Alerts=SAFE)
    found.start()
    return found


def shown(folder: Folder) -> list[str]:
    """The files of the checkpoint that have one of the values."""
    written = folder.written()
    assert written
    return [file.name for file, data in written.items() if any(value.encode() in data for value in KEPT)]


def tokens(program: Program, title: str = "Alerts/eu") -> list[object]:
    (query,) = (query for query in program.running().queries if query.title == title)
    return [item.default.value for item in query.parameters if item.default is not None]


def test_values_of_variables_and_files_are_never_written_down(secret: Folder) -> None:
    assert tokens(secret.start()) == ["Bearer " + KEPT[0], 31.25]
    let_it_have_read(secret.path / "state")
    secret.send("DeployQuery", FALLING)
    secret.send("ReplaceQuery", SECRET.replace("60 seconds", "90 seconds").partition("event")[0])
    secret.send("SetParameters", "Alerts", "us", {"least": 3.0})
    send_shadow(load_deployment(secret.job), SECRET.replace("+ least", "+ 2.0 * least"), "shadow", wait=False)
    program = secret.start()
    assert len(program.epochs) == 7
    for title in ("Alerts/eu#1", "Alerts_shadow/eu"):
        assert tokens(program, title) == ["Bearer " + KEPT[0], 31.25]
    assert tokens(program, "Alerts/us#1") == [KEPT[1], 3.0]
    assert tokens(program, "Alerts_shadow/us") == [KEPT[1], 3.0]
    assert shown(secret) == []
    assert secret.start().epochs == program.epochs
    values = {(item.query, item.instance): item.values for item in status_of(secret.job).running}
    assert values["Alerts", "eu"] == '{"token": "Bearer ${ALERT_TOKEN}", "least": "${LEAST}"}'
    secret.say(RISING, Alerts=SAFE)
    with pytest.raises(InputError):
        secret.start()
    secret.say(RISING, SECRET, Alerts={"us": {"token": "${file:token.txt}", "least": "${LEAST}"}})
    secret.start(apply=True)
    assert shown(secret) == []


def test_a_variable_with_another_value_is_a_changed_value(secret: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    secret.send("DeployQuery", FALLING)
    secret.start()
    monkeypatch.setenv("ALERT_TOKEN", KEPT[3])
    assert secret.plan().changes == ("set: instance 'eu' of 'Alerts' has token=Bearer ${ALERT_TOKEN}",)
    with pytest.raises(InputError, match="files have changed") as refused:
        secret.start()
    assert not any(value in str(refused.value) for value in KEPT)
    program = secret.start(apply=True)
    assert tokens(program) == ["Bearer " + KEPT[3], 31.25]
    texts = [item.text for notice in program.notices for item in notice.outcomes]
    assert texts[-1] == "instance 'eu' of 'Alerts' has token=Bearer ${ALERT_TOKEN}"
    assert shown(secret) == []
    assert secret.plan().changes == ()
    assert tokens(secret.start()) == ["Bearer " + KEPT[3], 31.25]


def test_a_variable_that_is_not_set_any_more_is_named(secret: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    secret.say(RISING, SECRET, Alerts={"us": {"token": "known"}})
    monkeypatch.delenv("ALERT_TOKEN")
    with pytest.raises(InputError, match=r"'token' of instance 'eu' of 'Alerts' .*ALERT_TOKEN, which is not set"):
        secret.start(apply=True)
    monkeypatch.setenv("ALERT_TOKEN", "any")
    assert tokens(secret.start(apply=True), "Alerts/us") == ["known", 1.0]
    assert shown(secret) == []


def test_a_variable_may_have_another_name(secret: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", KEPT[0])
    secret.say(RISING, SECRET, Alerts={**SAFE, "eu": {"token": "Bearer ${OTHER}", "least": "${LEAST}"}})
    assert tokens(secret.start()) == ["Bearer " + KEPT[0], 31.25]
    secret.start()
    monkeypatch.delenv("ALERT_TOKEN")
    assert tokens(secret.start()) == ["Bearer " + KEPT[0], 31.25]
    assert shown(secret) == []
