"""`ensue why JOB`: what it says holds a match back does, and what it says lets it come does so."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import ensue
from ensue.asking_jobs import why_job, why_of_job
from job_engine.job.stages.start import RunKind
from job_engine.job.upkeep.keys import job_state
from querylang.errors import FileErrors, InputError
from querylang.printable import forget_secrets, keep_secret
from runtime.why import Status
from tests.ensue.command import runner
from tests.support.local_jobs import begun
from tests.support.waiting import LONGEST

QUERY = """@OutOfOrder()
event Report { string device; }

query Silent {
    inputs { Report() key device within 10 minutes wait 10 seconds; }
    find Report as last -> wait(5 minutes) without Report as next
}
"""
JOB = """name: silent
queries: [silent.query]
engine: local
sources:
  reports: {format: csv, path: in, arrival: at}
sinks:
  matches: {format: json, path: out/matches}
  discarded: {format: json, path: out/discarded}
buckets: 2
checkpoint: state
"""
ROWS = """at,ts,device
2026-01-01T12:00:00Z,2026-01-01T12:00:00Z,d1
2026-01-01T12:01:00Z,2026-01-01T12:01:00Z,d2
2026-01-01T12:02:00Z,2026-01-01T12:00:10Z,d2
2026-01-01T12:03:00Z,2026-01-01T12:02:55Z,device-three
"""


def read(path: Path) -> int:
    """Runs the job over what is new, without letting time advance behind it; gives how many matches came."""
    handle, batches = begun(path, kind=RunKind(is_bounded=True, flush=False))
    assert handle.await_termination(LONGEST)
    return sum(sum(batch.matches.values()) for batch in batches)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "silent.query").write_text(QUERY)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text(ROWS)
    return tmp_path / "job.yaml"


def test_a_match_comes_at_the_latest_when_it_says(job: Path) -> None:
    assert read(job) == 0
    answers = [answer for answer in why_job(job, ["d1"]) if answer.status is Status.NOT_YET]
    (awaited,) = [answer.awaited for answer in answers]
    assert awaited is not None
    assert awaited.due == "2026-01-01T12:05:00.000000Z"
    assert awaited.latest == "2026-01-01T12:05:10.000000Z"
    before = "2026-01-01T12:05:09.999999Z"
    (job.parent / "in" / "2.csv").write_text(f"at,ts,device\n{before},{before},d9\n")
    assert read(job) == 0
    (job.parent / "in" / "3.csv").write_text(f"at,ts,device\n{awaited.latest},{awaited.latest},d9\n")
    assert read(job) == 1


def test_all_that_waits_and_all_that_was_discarded_is_said(job: Path) -> None:
    read(job)
    answer = why_job(job)
    waits, counts, row = answer
    assert waits.says == "2 matches wait and 1 event is held until time is definitive; 2 events in windows, 3 keys"
    assert counts.says == "discarded as late: 1 of `reports`"
    assert row.event is not None
    assert (row.event.source, row.event.offset) == ("1.csv", 3)
    assert row.reason is not None
    assert row.reason.by == 100.0
    assert row.says.endswith("is a `wait`, or a delay of its ordering policy, of 1 minute 50 seconds")
    assert answer.remarks == ("as of micro-batch 0; the job does not run",)


def test_the_wait_that_it_names_lets_the_late_record_in(job: Path) -> None:
    (job.parent / "silent.query").write_text(QUERY.replace("wait 10 seconds", "wait 1 minute 50 seconds"))
    read(job)
    assert [answer.status for answer in why_job(job)] == [Status.NOT_YET]


def test_what_is_pending_of_a_key_and_what_is_in_windows(job: Path) -> None:
    read(job)
    (pending,) = why_job(job, ["device-three"])
    assert pending.event is not None
    assert pending.event.fields == {"device": "device-three"}
    assert pending.says.startswith("it is held until its time is definitive")
    *_, kept = why_job(job, ["d1"])
    assert kept.says.startswith("1 event in windows may be part of a later match")
    (nothing,) = why_job(job, ["d8"])
    assert nothing.says.startswith("nothing is kept of this key")


def test_a_source_that_is_behind_is_named_and_its_next_record_lets_time_advance(job: Path) -> None:
    text = JOB.replace(
        "  reports: {format: csv, path: in, arrival: at}\n",
        "  reports: {format: csv, path: in, arrival: at, event: Report}\n"
        "  others: {format: csv, path: others, arrival: at, event: Report}\nidle: none\n",
    )
    job.write_text(text)
    others = job.parent / "others"
    others.mkdir()
    (others / "1.csv").write_text("at,ts,device\n2026-01-01T12:00:30Z,2026-01-01T12:00:30Z,e1\n")
    (job.parent / "in" / "2.csv").write_text("at,ts,device\n2026-01-01T12:06:00Z,2026-01-01T12:06:00Z,d1\n")
    handle, batches = begun(job, kind=RunKind(is_bounded=False, flush=False))
    try:
        for _ in range(600):
            handle.await_termination(0.1)
            if sum(batch.records for batch in batches) == 6:
                break
    finally:
        handle.stop()
    assert sum(sum(batch.matches.values()) for batch in batches) == 0
    (answer,) = [item for item in why_job(job) if item.status is Status.NOT_YET]
    assert answer.awaited is not None
    assert answer.awaited.held_by.startswith("others, whose last record arrived at 2026-01-01T12:00:30")
    assert answer.awaited.setting.startswith("`idle` of `others`")
    (others / "2.csv").write_text("at,ts,device\n2026-01-01T12:06:00Z,2026-01-01T12:06:00Z,e1\n")
    assert read(job) > 0


def test_nothing_is_changed_by_asking(job: Path) -> None:
    read(job)
    before = {path: path.read_bytes() for path in job.parent.rglob("*") if path.is_file()}
    why_job(job)
    why_job(job, ["d1"])
    why_of_job(job, key=["d1"], at="2026-01-01T12:00:00Z")
    why_of_job(job, row=1)
    assert {path: path.read_bytes() for path in job.parent.rglob("*") if path.is_file()} == before


def found(job: Path) -> list[dict[str, Any]]:
    """The matches in the sink."""
    files = sorted((job.parent / "out" / "matches").rglob("*.json*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_each_match_of_a_job_is_explained_with_its_own_events(job: Path) -> None:
    chance = random.Random(3)
    begin = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for number in range(2, 5):
        rows = []
        for _ in range(12):
            begin += timedelta(seconds=chance.choice((0, 20, 90, 200)))
            happened = begin - timedelta(seconds=chance.choice((0, 0, 5, 30)))
            rows.append(f"{begin.isoformat()},{happened.isoformat()},d{chance.randint(1, 3)}")
        (job.parent / "in" / f"{number}.csv").write_text("\n".join(["at,ts,device", *rows, ""]))
        read(job)
    matches = found(job)
    assert len(matches) > 3
    for match in matches:
        (answer,) = why_of_job(job, match["match_id"])
        assert (answer.status, answer.match_id) == (Status.MATCHED, match["match_id"])
        last = match["last"]
        assert [(event.source, event.offset) for event in answer.events] == [(last["source"], last["offset"])]
    refused = [json.loads(line) for file in (job.parent / "out" / "discarded").rglob("*.json*") for line in file.open()]
    assert refused
    for row in refused:
        (answer,) = why_of_job(job, row=row["offset"], source=row["source"])
        assert (answer.status, answer.reason and answer.reason.what) == (Status.REFUSED, row["reason"])


def test_what_a_key_of_a_job_lacked_at_a_moment_is_said(job: Path) -> None:
    (job.parent / "in" / "1.csv").write_text(
        ROWS.replace("12:02:00Z,2026-01-01T12:00:10Z", "12:02:00Z,2026-01-01T12:02:00Z")
    )
    (job.parent / "in" / "2.csv").write_text("at,ts,device\n2026-01-01T12:30:00Z,2026-01-01T12:30:00Z,d9\n")
    read(job)
    (answer,) = why_of_job(job, key=["d2"], at="2026-01-01T12:01:00Z")
    assert answer.reason is not None
    assert answer.reason.event is not None
    assert (answer.status, answer.reason.what) == (Status.NOT, "without")
    assert (answer.reason.event.source, answer.reason.event.offset) == ("1.csv", 3)


@pytest.mark.parametrize("instances", [(), ("one", "two")])
def test_what_the_clock_has_moved_is_said(job: Path, instances: tuple[str, ...]) -> None:
    if instances:
        with_length = QUERY.replace("inputs", "parameters { float length := 300.0; } inputs").replace(
            "5 minutes", "length"
        )
        (job.parent / "silent.query").write_text(with_length)
        given = {name: {"length": 300.0 + number} for number, name in enumerate(instances)}
        job.write_text(JOB + f"parameters: {json.dumps({'Silent': given})}\n")
    read(job)
    early = "at,ts,device\n2026-01-01T12:09:00Z,2026-01-01T12:09:00Z,d9\n"
    (job.parent / "in" / "2.csv").write_text(early)
    read(job)
    says = "arrived before the job's clock"
    assert not any(says in remark for remark in why_of_job(job, row=1, source="2.csv").remarks)
    (job.parent / "in" / "3.csv").write_text(early.replace("12:09", "12:01"))
    read(job)
    why = why_of_job(job, row=1, source="3.csv")
    assert any(remark.startswith(f"1 record or more of 'reports' {says}") for remark in why.remarks)
    assert "of offset 1 of 3.csv" in str(why)
    with pytest.raises(InputError, match=f"there is no match 'none' .*; 1 record or more of 'reports' {says}"):
        why_of_job(job, "none")


def test_a_file_that_is_gone_is_named(job: Path) -> None:
    read(job)
    (job.parent / "in" / "1.csv").unlink()
    with pytest.raises(InputError, match=r"1\.csv.*`ensue why QUERY FILES`"):
        why_of_job(job, row=1)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"match": "none"}, "there is no match 'none' in what the job has read"),
        ({"row": 9}, "there is no record with the offset 9 in what the job has read"),
        ({"row": 1, "query": "Silnt"}, "there is no query 'Silnt'; did you mean 'Silent'?"),
        ({"row": 1, "key": ["d1"]}, "ask by one of --match, --key and --row"),
        ({"key": ["d1"], "at": "soon"}, "at: 'soon' is not a time"),
    ],
)
def test_a_question_that_a_job_has_no_answer_to_is_refused(job: Path, asked: dict[str, Any], message: str) -> None:
    read(job)
    with pytest.raises(InputError) as caught:
        why_of_job(job, **asked)
    assert str(caught.value).startswith(message)


def test_a_job_whose_records_arrive_when_they_are_read_cannot_read_them_again(job: Path) -> None:
    job.write_text(JOB.replace("name: silent\n", "name: silent\nclock: processing\n"))
    read(job)
    with pytest.raises(InputError, match="ask files of its sources"):
        why_of_job(job, row=1)


def test_the_command_prints_text_or_json(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(monkeypatch, capsys)
    assert run("why", str(job)).stdout.startswith("(the job has not run yet")
    read(job)
    assert "Silent, device d1: not yet" in run("why", str(job), "--key", "d1").stdout
    assert json.loads(run("why", str(job), "--key", "d1", "--json").stdout)["answers"][0]["status"] == "not yet"
    assert "Silent, device d2: refused" in run("why", str(job), "--row", "3", "--source", "1.csv").stdout


def test_secrets_are_masked(job: Path) -> None:
    read(job)
    answer = why_job(job, ["device-three"])
    keep_secret("PIN", "device-three")
    try:
        shown = str(answer) + json.dumps(answer.to_plain())
        assert "${PIN}" in shown
        assert "device-three" not in shown
    finally:
        forget_secrets()


HIDING = """event Payment { string user; string card; float sum; }

query Twice {
    inputs { Payment(card != "c-blocked") key user within 10 minutes wait 1 minute; }
    find Payment as first -> Payment as second
        where second.sum > first.sum * 2.0 and second.card = first.card
        without Payment as other where other.sum < 1.0
}
"""


def payments(chance: random.Random) -> tuple[str, list[str]]:
    """A file of payments, and all that must not be seen of it."""
    rows, secret, begin = [], list[str](), datetime(2026, 1, 1, 12, tzinfo=UTC)
    for _ in range(40):
        begin += timedelta(seconds=chance.choice((1, 30, 90)))
        happened = begin - timedelta(seconds=chance.choice((0, 0, 20, 200)))
        card = chance.choice(("c-4917", "c-5500", "c-blocked"))
        total = chance.choice((0.4417, 31.7719, 78.1193, 913.2281))
        rows.append(f"{begin.isoformat()},{happened.isoformat()},u-{chance.choice('ab')}17,{card},{total}")
        secret += [card, str(total)]
    rows.append(f"{begin.isoformat()},soon,u-a17,c-4917,78.1193")
    return "\n".join(["at,ts,user,card,sum", *rows, ""]), sorted({*secret, "u-a17", "u-b17"} - {"c-blocked"})


def test_hidden_fields_are_in_no_answer(job: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (job.parent / "silent.query").write_text(HIDING)
    text, secret = payments(random.Random(5))
    (job.parent / "in" / "1.csv").write_text(text)
    plain = JOB.replace("{format: csv,", "{format: csv, event: Payment,")
    job.write_text(plain)
    read(job)
    run = runner(monkeypatch, capsys)

    def asked() -> str:
        whys = [why_job(job), why_job(job, ["u-a17"])]
        matches = found(job)
        assert matches
        whys += [why_of_job(job, match["match_id"]) for match in matches]
        blocked = [number for number, line in enumerate(text.splitlines()) if "c-blocked" in line]
        whys += [why_of_job(job, row=row) for row in range(1, 42) if row not in blocked]
        with pytest.raises(InputError, match="or more that filters refused"):
            why_of_job(job, row=blocked[0])
        shown = "".join(str(why) + json.dumps(why.to_plain()["answers"]) for why in whys)
        return shown + run("state", str(job), "--key", "u-a17", "--json").stdout

    before = asked()
    assert [token for token in secret if token not in before] == []
    assert "the least change" in before
    job.write_text(plain + "hide: [user, Payment.card, sum]\n")
    after = asked()
    assert [token for token in secret if token in after] == []
    assert "is hidden" in after
    assert "(hidden)" in after


def test_keys_that_are_nearly_a_hidden_one_are_not_shown(job: Path) -> None:
    job.write_text(JOB + "hide: [device]\n")
    read(job)
    answer = why_of_job(job, key=["Device-THREE"])
    assert "there is hidden" in str(answer)
    assert "device-three" not in str(answer) + json.dumps(answer.to_plain()["answers"])


def test_records_that_several_queries_got_count_once(job: Path) -> None:
    (job.parent / "silent.query").write_text(
        QUERY + "\nquery All { inputs { Report() within 10 minutes; } find Report as a -> Report as b }\n"
    )
    read(job)
    assert "4 records that the job has read were read again" in why_of_job(job, key=["d1"]).remarks


CHAIN = """event Login { string host; string user; }
event Burst { string host; integer count; }

query Bursts {
    inputs { Login() key user within 1 minute; }
    find Login as a -> Login as b { route Burst(b.host, 2); }
}
query Taken {
    inputs { Burst() key host within 5 minutes; Login() key host within 5 minutes; }
    find Burst as burst -> Login as next
}
"""


def test_a_chain_that_goes_from_bucket_to_bucket_is_followed(job: Path) -> None:
    (job.parent / "silent.query").write_text(CHAIN)
    rows = [("12:00:00", "Login", "h1", "u1"), ("12:00:10", "Login", "h2", "u1"), ("12:00:20", "Login", "h2", "u2")]
    rows += [("12:00:30", "Login", "h3", "u1"), ("12:00:40", "Login", "h1", "u9")]
    lines = [f"2026-01-01T{at}Z,{event},{host},{user}" for at, event, host, user in rows]
    text = "\n".join(["at,event,host,user", *lines]) + "\n"
    (job.parent / "in" / "1.csv").write_text(text)
    assert read(job) == 3
    replay = ensue.replay(CHAIN, job.parent / "in" / "1.csv")
    (match,) = replay.matches[replay.matches["query"] == "Taken"]["match_id"]
    of_job, of_files = why_of_job(job, match=match), replay.why(match=match)
    assert [answer.status for answer in of_job.answers] == [Status.MATCHED]
    assert "routed by Bursts" in of_job.answers[0].says
    (cause,), (same,) = of_job.answers[0].causes, of_files.answers[0].causes
    assert (cause.title, cause.match_id, cause.key) == (same.title, same.match_id, same.key)
    assert [event.text for event in cause.events] == [event.text for event in same.events]
    (missed,) = [answer for answer in why_of_job(job, key=["host=h3"]).answers if answer.title == "Taken"]
    assert missed.status is Status.NOT


def test_a_field_to_hide_that_no_event_has_is_refused(job: Path) -> None:
    hiding = JOB + "hide: [Report.device, devise, Report.other]\n"
    job.write_text(hiding)
    with pytest.raises(FileErrors, match="'devise'"):
        read(job)
    job.write_text(JOB)
    read(job)
    job.write_text(hiding)
    actions: list[Callable[[], Any]] = [
        lambda: why_job(job),
        lambda: why_of_job(job, row=1),
        lambda: job_state(job),
    ]
    for action in actions:
        with pytest.raises(FileErrors) as caught:
            action()
        assert "hide: no event type has a field 'devise'; did you mean 'device'?" in str(caught.value)
        assert "hide: no event type has a field 'Report.other'" in str(caught.value)


def test_what_a_job_cannot_answer_has_a_way_out(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(monkeypatch, capsys)
    assert "other options are for files: `ensue why QUERY FILES`" in run("why", str(job), "--no-flush").stderr
    assert "name event tables behind the query" in run("why", str(job.parent / "silent.query")).stderr
    read(job)
    with pytest.raises(InputError):
        why_job(job, ['{"other": 2}'])
