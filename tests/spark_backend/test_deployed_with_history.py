"""Deploying queries with history: what the command reads, and what a start makes of it; without Spark."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from ensue.commands.changes import deploy
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.job.commands import send_change
from job_engine.job.history import running as history_running
from job_engine.job.history.running import send_with_history, write_history
from job_engine.job.stages import between_batches as taking
from job_engine.place import Place
from job_engine.sources.folder import running as folder_running
from job_engine.sources.listing.manifests import ReadList
from querylang.errors import InputError
from tests.support.job_without_spark import EVENT, FALLING, RISING, JobWithoutSpark


@pytest.fixture
def job(tmp_path: Path) -> JobWithoutSpark:
    """It has read one source to 160, and the other one, which comes first, to 100 only."""
    return has_read(JobWithoutSpark(tmp_path))


def has_read(job: JobWithoutSpark) -> JobWithoutSpark:
    """The job, when it has read that."""
    job.bring("slow", 1, range(10, 60, 2))
    job.bring("swift", 1, range(11, 120, 3))
    job.run()
    job.bring("slow", 2, range(60, 102, 2))
    job.bring("swift", 2, range(120, 161, 3))
    job.run()
    return job


def at_the_end(job: JobWithoutSpark) -> None:
    job.bring("slow", 3, range(102, 240, 2))
    job.bring("swift", 3, range(161, 240, 3))
    job.run()


def always(path: Path) -> list[tuple[str, Any]]:
    """What a job gives that has the query from its beginning, behind the place of the others."""
    (path / "always").mkdir()
    whole = JobWithoutSpark(path / "always", RISING + FALLING.removeprefix(EVENT))
    whole.bring("slow", 1, range(10, 60, 2))
    whole.bring("swift", 1, range(11, 120, 3))
    whole.bring("slow", 2, range(60, 102, 2))
    whole.bring("swift", 2, range(120, 161, 3))
    at_the_end(whole)
    return [row for row in whole.found("Falling") if row[1].timestamp() > 159]


def test_a_query_answers_as_if_it_had_always_been_there(job: JobWithoutSpark, tmp_path: Path) -> None:
    sent = send_with_history(job.deployment, FALLING, "start")
    assert not sent.is_running
    job.start()
    at_the_end(job)
    found = job.found("Falling")
    assert found == always(tmp_path)
    assert len(found) > 10
    histories = job.deployment.checkpoint / "ensue" / "history"
    assert len([*histories.iterdir()]) == 1
    job.start()
    assert not [*histories.iterdir()]


def test_what_the_job_reads_after_the_command_is_history_too(
    job: JobWithoutSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_before_it_is_sent(job, monkeypatch, range(102, 130, 2))
    send_with_history(job.deployment, FALLING, "start")
    job.start()
    job.bring("slow", 5, range(130, 240, 2))
    job.bring("swift", 3, range(161, 240, 3))
    job.run()
    moments = [sorted(moment for _, moment in rows) for rows in (job.found("Falling"), always(tmp_path))]
    assert moments[0] == moments[1]


def read_before_it_is_sent(job: JobWithoutSpark, monkeypatch: pytest.MonkeyPatch, moments: range) -> None:
    """Let the job read more once the history was read, before the job knows of the command."""

    def written(*given: Any) -> None:
        write_history(*given)
        job.bring("slow", 4, moments)
        job.run()

    monkeypatch.setattr(history_running, "write_history", written)


def test_records_before_the_time_are_left_out(job: JobWithoutSpark) -> None:
    job.bring("slow", 3, range(102, 158, 2))
    job.run()
    send_with_history(job.deployment, FALLING, "150.0")
    job.start()
    job.bring("slow", 4, range(158, 240, 2))
    job.bring("swift", 3, range(161, 240, 3))
    job.run()
    members = [row["members"]["a"]["arrival"].timestamp() for row in job.matches if row["query"] == "Falling"]
    assert min(members) >= 150


@pytest.mark.parametrize("place", ["write_journal", "_answer"])
def test_a_killed_start_does_it_once(
    job: JobWithoutSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    send_with_history(job.deployment, FALLING, "start")
    with monkeypatch.context() as patch:
        patch.setattr(taking, place, _killed)
        with pytest.raises(KeyboardInterrupt):
            job.start()
    job.start()
    at_the_end(job)
    assert job.found("Falling") == always(tmp_path)


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def overlapping(path: Path, text: str = RISING) -> JobWithoutSpark:
    """It has read some of the files of the same time, and others are listed."""
    path.mkdir()
    job = JobWithoutSpark(path, text, limit=2)
    for number in range(1, 6):
        job.bring("slow", number, range(9 + number, 100, 5))
        job.bring("swift", number, range(10 + 7 * number, 110, 4 + number))
    for _ in range(2):
        job.run()
    return job


def test_files_of_the_same_time_are_history_up_to_those_that_are_still_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_running, "MOST_FILES", 1)
    whole = overlapping(tmp_path / "whole", RISING + FALLING.removeprefix(EVENT))
    job = overlapping(tmp_path / "job")
    send_with_history(job.deployment, FALLING, "start")
    job.start()
    place = job.folder.last_progress().furthest
    assert place is not None
    for each in (whole, job):
        each.run()
        each.bring("slow", 6, range(102, 240, 2))
        each.bring("swift", 6, range(110, 240, 3))
        each.run()
    assert job.found("Falling") == [row for row in whole.found("Falling") if row[1].timestamp() > place / 1e6]
    assert len(job.found("Falling")) > 10


def test_partitions_are_asked_for_behind_what_was_read(job: JobWithoutSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that a running job finds in between holds its time back: the history would get ahead of it."""
    asked: list[str] = []
    list_of, progress_of = history_running.what_was_read, JobFolder.last_progress

    def lists(checkpoint: Place) -> ReadList:
        asked.append("list")
        return list_of(checkpoint)

    def tells(folder: JobFolder) -> JobProgress:
        asked.append("progress")
        return progress_of(folder)

    monkeypatch.setattr(history_running, "what_was_read", lists)
    monkeypatch.setattr(JobFolder, "last_progress", tells)
    send_with_history(job.deployment, FALLING, "start", wait=False)
    behind = [later for one, later in pairwise(asked) if one == "list"]
    assert behind == ["progress"] * asked.count("list")
    assert len(behind) >= 2


def test_a_gap_is_refused_with_its_bounds(job: JobWithoutSpark) -> None:
    (job.path / "slow" / "1.csv").unlink()
    with pytest.raises(InputError, match=r"has a gap: source 'slow': 1 file .*'1.csv', written from 2"):
        send_with_history(job.deployment, FALLING, "start")
    assert not job.folder.commands.pending()
    send_with_history(job.deployment, FALLING, "start", accepts_gap=True)
    job.start()
    at_the_end(job)
    assert job.found("Falling")


def runs_twice_more(job: JobWithoutSpark) -> None:
    """Two micro-batches, behind which nothing of what ran before is to be processed."""
    for number in (7, 8):
        job.bring("slow", number, range(100 * number, 100 * number + 90, 2))
        job.bring("swift", number, range(100 * number, 100 * number + 90, 3))
        job.run()


def test_a_query_that_has_ended_is_deployed_again_with_its_history(job: JobWithoutSpark) -> None:
    send_with_history(job.deployment, FALLING, "start")
    job.start()
    send_change(job.deployment, 'UndeployQuery("Falling")', wait=False)
    job.start()
    runs_twice_more(job)
    before = job.account("Falling")
    send_with_history(job.deployment, FALLING, "start")
    job.start()
    assert [query.name for query in job.program.running().queries] == ["Rising", "Falling"]
    job.bring("slow", 9, range(900, 990, 2))
    job.run()
    counts = [
        sum(count for (_, what), count in each.items() if what == "received")
        for each in (before, job.account("Falling"))
    ]
    assert counts[1] - counts[0] == sum(
        count for (_, what), count in job.account("Rising").items() if what == "received"
    )


def test_a_file_that_goes_while_the_history_is_read_is_a_gap(
    job: JobWithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = history_running.pieces_between

    def goes_behind(*given: Any, **more: Any) -> Any:
        found = chosen(*given, **more)
        (job.path / "slow" / "1.csv").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(history_running, "pieces_between", goes_behind)
    with pytest.raises(
        InputError,
        match=r"^the history has a gap: source 'slow': 1 file .* is gone or changed: '1.csv', .*\. `--accept-gap` deploys",
    ):
        send_with_history(job.deployment, FALLING, "start")
    assert not job.folder.commands.pending()


def test_a_file_that_is_archived_while_the_history_is_read_is_found_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {
        name: {"format": "csv", "path": name, "after": f"archive {tmp_path / 'old' / name}"}
        for name in ("slow", "swift")
    }
    job = has_read(JobWithoutSpark(tmp_path, sources=sources))
    chosen, moved = history_running.pieces_between, list[Path]()

    def archives(*given: Any, **more: Any) -> Any:
        found = chosen(*given, **more)
        if not moved:
            moved.append((tmp_path / "slow" / "2.csv").rename(tmp_path / "old" / "slow" / "2.csv"))
        return found

    monkeypatch.setattr(history_running, "pieces_between", archives)
    send_with_history(job.deployment, FALLING, "start", wait=False)
    job.start()
    at_the_end(job)
    assert job.found("Falling") == always(tmp_path)


def test_a_file_that_goes_before_the_start_is_an_error(job: JobWithoutSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    read_before_it_is_sent(job, monkeypatch, range(102, 120, 2))
    number = send_with_history(job.deployment, FALLING, "start").command.number
    (job.path / "slow" / "4.csv").unlink()
    job.start()
    assert ["gap" in error for error in job.refused(number)] == [True]
    assert [query.name for query in job.program.running().queries] == ["Rising"]


def test_what_is_deployed_in_between_makes_it_an_error(job: JobWithoutSpark) -> None:
    send_change(job.deployment, json.dumps({"DeployQuery": [FALLING]}), wait=False)
    number = send_with_history(job.deployment, FALLING, "start").command.number
    job.start()
    assert ["runs already" in error for error in job.refused(number)] == [True]


@pytest.mark.parametrize(
    ("text", "since", "message"),
    [
        (FALLING, "yesterday", "--from 'yesterday' is not"),
        (FALLING, "2031-01-01", "lies behind all that the job has read"),
        (RISING, "start", "'Rising' runs already"),
        (FALLING.replace("b.value <", "b.level <"), "start", "level"),
        (FALLING.replace("Reading", "Other"), "start", "no source of the job brings events of 'Other'"),
        (FALLING.replace("float value;", "float value; float more;"), "start", "known with other fields"),
        (FALLING.replace("{ inputs", "{ parameters { float x; } inputs"), "start", "values for all parameters"),
    ],
)
def test_wrong_input_is_refused_at_once(job: JobWithoutSpark, text: str, since: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        send_with_history(job.deployment, text, since)
    assert message in str(error.value)
    assert not job.folder.commands.pending()


def rows_of_past(until: float) -> list[dict[str, Any]]:
    """The records of both sources up to a time, as a table keeps them, with their coordinates."""
    files = {
        "slow/1.csv": range(10, 60, 2),
        "swift/1.csv": range(11, 120, 3),
        "slow/2.csv": range(60, 102, 2),
    }
    return [
        {"at": float(at), "ts": float(at), "sensor": f"s{at % 3}", "value": float((at * 7 + at // 9) % 10)}
        | {"source": name, "partition": 0, "offset": number}
        for name, moments in files.items()
        for number, at in enumerate(moments, 1)
        if at <= until
    ]


def write_past(folder: Path, format_: str, rows: list[dict[str, Any]]) -> None:
    """Some data files, whose rows are in no order, and which overlap."""
    parts = [rows[::3], rows[1::3][::-1], rows[2::3]]
    for number, part in enumerate(parts):
        if format_ == "delta":
            write_deltalake(folder, pa.Table.from_pylist(part), mode="append")
        else:
            folder.mkdir(exist_ok=True)
            pq.write_table(pa.Table.from_pylist(part), folder / f"{number}.parquet")


PAST = {"format": "parquet", "path": "past", "event": "Reading", "arrival": "at", "source_time": "ts"}


def a_late_job(path: Path, history: dict[str, str] = PAST) -> JobWithoutSpark:
    """A job whose sources have lost their first files, in the state of `job`."""
    job = JobWithoutSpark(path, history=history)
    job.bring("slow", 1, range(10, 60, 2))
    job.bring("swift", 1, range(11, 120, 3))
    job.run()
    job.bring("slow", 2, range(60, 102, 2))
    job.bring("swift", 2, range(120, 161, 3))
    job.run()
    return job


@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_a_table_has_what_the_sources_no_longer_have(tmp_path: Path, format_: str) -> None:
    job = a_late_job(tmp_path, PAST | {"format": format_})
    (tmp_path / "slow" / "1.csv").unlink()
    write_past(tmp_path / "past", format_, rows_of_past(71.0))
    send_with_history(job.deployment, FALLING, uses_table=True)
    job.start()
    at_the_end(job)
    found = job.found("Falling")
    assert found == always(tmp_path)
    assert len(found) > 10


def test_of_a_table_that_goes_further_than_the_slowest_source_the_rest_is_left(tmp_path: Path) -> None:
    job = a_late_job(tmp_path)
    write_past(tmp_path / "past", "parquet", rows_of_past(1000.0))
    send_with_history(job.deployment, FALLING, uses_table=True)
    job.start()
    at_the_end(job)
    assert job.found("Falling") == always(tmp_path)


def test_rows_without_coordinates_are_found_by_their_place_in_the_table(tmp_path: Path) -> None:
    job = a_late_job(tmp_path)
    rows = [{key: row[key] for key in ("at", "ts", "sensor", "value")} for row in rows_of_past(71.0)]
    write_past(tmp_path / "past", "parquet", rows)
    send_with_history(job.deployment, FALLING, uses_table=True)
    job.start()
    at_the_end(job)
    assert [moment for _, moment in sorted(job.found("Falling"))] != []
    assert sorted(at for _, at in job.found("Falling")) == sorted(at for _, at in always(tmp_path))
    members = [row["members"]["a"] for row in job.matches if row["query"] == "Falling"]
    assert {member["source"] for member in members} >= {"swift/2.csv"}


def test_the_command_reads_the_table(tmp_path: Path) -> None:
    job = a_late_job(tmp_path)
    write_past(tmp_path / "past", "parquet", [*rows_of_past(71.0), ROW | {"partition": 0, "offset": None}])
    (tmp_path / "falling.query").write_text(FALLING, "utf-8")
    deploy(tmp_path / "job.yaml", tmp_path / "falling.query", history=True)
    assert len(job.folder.commands.pending()) == 1


def test_rows_that_cannot_be_read_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = a_late_job(tmp_path)
    text = [
        row | {"offset": "one" if row["at"] == 40.0 else str(row["at"] * 10).partition(".")[0]}
        for row in rows_of_past(71.0)
    ]
    write_past(tmp_path / "past", "parquet", text)
    send_with_history(job.deployment, FALLING, uses_table=True)
    assert "the history has 1 row that cannot be read, such as row 6: 'one' in 'offset'" in caplog.text


def test_sources_that_begin_behind_the_table_leave_a_gap(tmp_path: Path) -> None:
    job = a_late_job(tmp_path)
    for name in ("slow", "swift"):
        (tmp_path / name / "1.csv").unlink()
    write_past(tmp_path / "past", "parquet", rows_of_past(50.0))
    with pytest.raises(InputError) as error:
        send_with_history(job.deployment, FALLING, uses_table=True)
    assert str(error.value) == (
        "the history has a gap: source 'slow': from 1970-01-01T00:00:50.000000Z, where the history ends, to"
        " 1970-01-01T00:01:00.000000Z, where what can be read again begins; source 'swift': from"
        " 1970-01-01T00:00:50.000000Z, where the history ends, to 1970-01-01T00:02:00.000000Z, where what can be read"
        " again begins. `--accept-gap` deploys without what is missing"
    )
    assert not job.folder.commands.pending()
    send_with_history(job.deployment, FALLING, uses_table=True, accepts_gap=True)
    job.start()
    at_the_end(job)
    assert job.found("Falling")


ROW = {"at": 50.0, "ts": 50.0, "sensor": "s", "value": 1.0}


@pytest.mark.parametrize(
    ("history", "rows", "since", "message"),
    [
        (PAST | {"path": "nowhere"}, rows_of_past(71.0), "start", "nowhere: is not a folder"),
        (PAST | {"format": "delta"}, rows_of_past(71.0), "start", "is not a Delta table"),
        (PAST | {"arrival": "received"}, rows_of_past(71.0), "start", "has no column 'received' of arrival times"),
        (PAST, [{"at": 20.0, "ts": 20.0, "sensor": "s"}], "start", "value"),
        (PAST, [], "start", "past: has no rows"),
        (PAST, [{"at": 500.0, "ts": 1.0, "sensor": "s", "value": 1.0}], "start", "all rows arrived after"),
        (PAST, [{"at": 50.0, "ts": 1.0, "sensor": "s", "value": "high"}], "start", "column 'value' is string"),
        (PAST, [ROW | {"offset": "one"}], "start", "none of its rows can be read: "),
        (PAST, rows_of_past(71.0), "80.0", "lies behind the history, which counts up to 1970-01-01T00:01:11"),
        (PAST | {"source": "slow"}, rows_of_past(71.0), "start", "source 'swift': the history has no records of it"),
        (None, rows_of_past(71.0), "start", "has no 'history', which says where the table is"),
    ],
)
def test_a_table_that_cannot_be_the_history_is_refused(
    tmp_path: Path, history: dict[str, str] | None, rows: list[dict[str, Any]], since: str, message: str
) -> None:
    job = a_late_job(tmp_path, history)
    write_past(tmp_path / "past", "parquet", rows)
    with pytest.raises(InputError) as error:
        send_with_history(job.deployment, FALLING, since, uses_table=True)
    assert message in str(error.value)
    assert not job.folder.commands.pending()


# Queries that others feed.

ALARM = "event Alarm { string sensor; float value; }\n"
RAISING = RISING.removesuffix("}") + "{ route Alarm(b.sensor, b.value); } }"
"""Feeds who takes alarms, along the key."""

AFTER = "query After { inputs { Alarm() key sensor within 60.0; Reading() key sensor within 60.0; } find Alarm:a -> Reading:b where b.value < a.value }"
TWICE = "query Twice { inputs { Alarm() key sensor within 9.0; } find Alarm:a -> wait(3.0) { route Calm(a.sensor, a.value); } }"
SILENT = TWICE.partition("{ route")[0] + "{} }"
CALM = "event Calm { string sensor; float value; }\n"
LATER = "query Later { inputs { Calm() key sensor within 90.0; Reading() key sensor within 60.0; } find Calm:a => Reading:b }"


def in_chains(path: Path, *more: str) -> JobWithoutSpark:
    """A job whose query routes alarms; it has read as `job` has."""
    path.mkdir(exist_ok=True)
    text = ALARM + CALM + EVENT + "\n".join((RAISING.removeprefix(EVENT), *more))
    return has_read(JobWithoutSpark(path, text))


@pytest.mark.parametrize(
    ("new", "running"), [([AFTER], []), ([LATER], [TWICE]), ([TWICE, LATER], [AFTER])], ids=["one", "behind", "two"]
)
def test_a_query_that_others_feed_answers_as_if_it_had_always_been_there(
    tmp_path: Path, new: list[str], running: list[str]
) -> None:
    job = in_chains(tmp_path / "job", *running)
    send_with_history(job.deployment, ALARM + CALM + EVENT + "\n".join(new), "start")
    job.start()
    at_the_end(job)
    whole = in_chains(tmp_path / "whole", *running, *new)
    at_the_end(whole)
    for text in new:
        name = text.split()[1]
        found = job.found(name)
        assert found == [row for row in whole.found(name) if row[1].timestamp() > 159]
        assert len(found) > 10, name
        assert job.account(name) == whole.account(name)
    for text in (RAISING.removeprefix(EVENT), *running):
        name = text.split()[1]
        assert job.found(name) == whole.found(name), name
        assert job.account(name) == whole.account(name)


def test_a_query_that_would_have_fed_others_is_refused(tmp_path: Path) -> None:
    job = in_chains(tmp_path / "job", TWICE, LATER)
    with pytest.raises(InputError, match="'Thrice' feeds 'Later', which has run without it"):
        send_with_history(job.deployment, ALARM + CALM + TWICE.replace("Twice", "Thrice"), "start")


def test_a_query_is_refused_where_what_feeds_it_has_changed(tmp_path: Path) -> None:
    job = in_chains(tmp_path / "job")
    send_change(job.deployment, json.dumps({"DeployQuery": [ALARM + CALM + TWICE]}), wait=False)
    job.start()
    job.run()
    with pytest.raises(InputError, match="'Twice', which feeds it, has changed while the job ran"):
        send_with_history(job.deployment, ALARM + CALM + EVENT + LATER, "start")


@pytest.mark.parametrize("change", [{"UndeployQuery": ["Twice"]}, {"ReplaceQuery": [ALARM + SILENT, True]}])
def test_what_a_text_routed_that_is_not_kept_is_missed(tmp_path: Path, change: dict[str, list[object]]) -> None:
    job = in_chains(tmp_path / "job", TWICE, TWICE.replace("Twice", "Other"))
    send_change(job.deployment, json.dumps(change), wait=False)
    job.start()
    at_the_end(job)
    with pytest.raises(InputError) as error:
        send_with_history(job.deployment, CALM + EVENT + LATER, "start")
    assert str(error.value) == (
        "DeployQuery: 'Twice' routed 'Calm' until 1970-01-01T00:02:39.000000Z, and that text is not kept: begin behind"
        " it, with a later --from, or deploy it without a history"
    )
    assert send_with_history(job.deployment, CALM + EVENT + LATER, "200.0").command


def test_what_nobody_took_is_missed_by_who_takes_it_later(tmp_path: Path) -> None:
    job = in_chains(tmp_path / "job", RAISING.removeprefix(EVENT).replace("Rising", "Other"))
    send_change(job.deployment, 'UndeployQuery("Rising")', wait=False)
    job.start()
    with pytest.raises(InputError, match=r"^DeployQuery: 'Rising' routed 'Alarm' until .*, and that text is not kept"):
        send_with_history(job.deployment, ALARM + EVENT + AFTER, "start")


def test_what_is_routed_still_is_there_for_who_takes_it_again(tmp_path: Path) -> None:
    job = in_chains(tmp_path / "job", AFTER)
    send_change(job.deployment, 'UndeployQuery("After")', wait=False)
    job.start()
    runs_twice_more(job)
    send_with_history(job.deployment, ALARM + EVENT + AFTER, "start")
    job.start()
    assert [query.name for query in job.program.running().queries] == ["Rising", "After"]
