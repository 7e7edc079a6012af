"""Changes of the queries in the control stream: refused, or with `live: true` done once; without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import querylang
from job_engine.deployment_file import load_deployment
from job_engine.job.journal import Journal, Taking
from job_engine.job.written_journal import asked_of_text
from job_engine.sources.listing.command_folder import CHANGE, PAUSE, CommandFolder, CommandWatch
from job_engine.wire.program import Program, load_program
from job_engine.wire.tagged_rows import Tag
from querylang.changes import Moment
from querylang.errors import FileErrors
from querylang.running import Running
from runtime.columns.arrivals import Arrivals
from runtime.replay.replay import read_records
from tests.support.buckets import Stream, rows_of
from tests.support.embedded import ledger_of

RISING = """query Rising {
  inputs { Reading() key sensor within 60 seconds; }
  find Reading:a -> Reading:b where b.value > a.value
}"""
EVENT = "event Reading { string sensor; float value; }\n"
START = querylang.compile_text(EVENT + RISING).plan
DEPLOY = json.dumps({"DeployQuery": [RISING.replace("Rising", "Falling").replace("b.value >", "b.value <")]})
UNDEPLOY = 'UndeployQuery("Falling")'
LEEWAY = "SetDelayedEventsLeeway(3.0, 1.0)"


def records(rows: list[tuple[float, str]]) -> Arrivals:
    """Control events with their arrivals; other rows are readings."""
    given = [
        {"at": at, "event": text, "sensor": None, "value": None}
        if "(" in text or "{" in text
        else {"at": at, "event": "Reading", "sensor": text, "value": at}
        for at, text in rows
    ]
    return read_records([given], START).arrivals


def taken(rows: list[tuple[float, str]], *, live: bool, buckets: int = 3) -> Stream:
    """A job whose control stream has rows."""
    stream = Stream(load_program(replace(Program.of(START, buckets=buckets), live=live).to_text()))
    stream.take({"events": records([(1.0, "s"), (2.0, "s"), (9.0, "s")])}, 1)
    stream.take({"control": records(rows)}, 2)
    return stream


def test_a_change_of_the_control_stream_is_an_error_that_says_what_lets_it_in() -> None:
    stream = taken([(3.0, DEPLOY)], live=False)
    (error,) = rows_of(stream.tagged, Tag.ERROR)
    assert "live: true" in str(error["text"])
    assert rows_of(stream.tagged, Tag.ASKED) == []


def test_live_changes_are_asked_for_once_in_order_of_arrival_and_other_control_events_work() -> None:
    stream = taken([(5.0, UNDEPLOY), (3.0, DEPLOY), (4.0, LEEWAY), (6.0, 'DeployQuery("")')], live=True)
    asked = rows_of(stream.tagged, Tag.ASKED)
    assert [(row["at"], row["text"]) for row in asked] == [(3_000_000, DEPLOY), (5_000_000, UNDEPLOY)]
    assert len({row["origin"] for row in asked}) == 2
    (error,) = rows_of(stream.tagged, Tag.ERROR)
    assert str(error["text"]).startswith("DeployQuery: ")
    (control,) = [row for row in rows_of(stream.tagged, Tag.OUTPUT) if row["kind"] == "control"]
    assert control["text"] == LEEWAY


def test_the_account_is_that_of_a_job_without_the_changes() -> None:
    with_changes, without = taken([(3.0, DEPLOY), (4.0, LEEWAY)], live=True), taken([(4.0, LEEWAY)], live=True)
    accounts = [ledger_of(rows_of(stream.tagged, Tag.LEDGER)) for stream in (with_changes, without)]
    assert accounts[0] == accounts[1]


def test_a_repeated_micro_batch_asks_once(tmp_path: Path) -> None:
    folder = CommandFolder(tmp_path)
    asked = [
        {"origin": f"control/c.json/{row}", "at": row, "text": text} for row, text in enumerate([DEPLOY, UNDEPLOY])
    ]
    folder.send_changes(asked[:1])  # then it was killed
    folder.send("SetDelayedEventsLeeway(1, 1)")
    folder.send_changes(asked)
    folder.send_changes(asked)
    commands = [folder.read(number) for number in folder.pending()]
    assert [(item.text, item.kind, item.at) for item in commands if item is not None and item.origin] == [
        (DEPLOY, CHANGE, 0),
        (UNDEPLOY, CHANGE, 1),
    ]
    assert len(commands) == 3


def test_a_run_that_ends_looks_for_changes_also_where_each_look_is_a_request(tmp_path: Path) -> None:
    """A checkpoint in a store is looked at every few seconds only."""
    watch = CommandWatch(tmp_path, lambda: 0)
    watch._pause = PAUSE
    assert watch.new(()) == ()
    CommandFolder(tmp_path).send_changes([{"origin": "control/c.json/0", "at": 0, "text": DEPLOY}])
    watch.new(())
    assert not watch.has_change
    watch.new((), at_once=True)
    assert watch.has_change


def test_changes_keep_their_order_where_an_earlier_one_takes_place_later() -> None:
    journal = Journal.begin(Running.of(START, START), START)
    for number, (text, place) in enumerate([(DEPLOY, 50), (UNDEPLOY, 10)], 1):
        journal = journal.changed(asked_of_text(text), Taking(number, Moment(place, place), 0, lambda plan: plan))
    assert [epoch.begins for epoch in journal.epochs] == [None, 50, 50]
    assert [item.place for item in journal.taken] == [50, 50]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("control: {format: json, path: c}\nlive: yes please", "'live'"),
        ("live: true", "'live' lets the control stream change queries; there is no 'control'"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(FileErrors, match=message):
        load_deployment(deployment(tmp_path, lines))


def test_control_streams_change_nothing_by_default(tmp_path: Path) -> None:
    for lines, expected in (("", False), ("live: false", False), ("live: true", True)):
        file = deployment(tmp_path, f"control: {{format: json, path: c}}\n{lines}")
        assert load_deployment(file).live is expected


def deployment(folder: Path, lines: str) -> Path:
    for name in ("in", "c"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "q.query").write_text(EVENT + RISING, "utf-8")
    file = folder / "job.yaml"
    file.write_text(
        "name: readings\nqueries: q.query\nsources: {readings: {path: in, format: csv, event: Reading}}\n"
        f"sinks: {{matches: {{path: out, format: json}}}}\ncheckpoint: state\n{lines}\n",
        "utf-8",
    )
    return file
