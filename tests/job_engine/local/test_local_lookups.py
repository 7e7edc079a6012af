"""Tables beside the stream of a job: versions with times, the same in every bucket, and again after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from job_engine.deployment_file import load_deployment
from job_engine.job import lookup_files
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.commands import send_change
from job_engine.job.job import run as run_once
from job_engine.job.lookup_files import read_tables
from job_engine.job.stages.prepare import prepare
from job_engine.job.stages.start import RunKind
from job_engine.job.status import status_of
from job_engine.job.upkeep.keys import forget
from job_engine.job.upkeep.moving import rebucket
from job_engine.sources.listing.command_folder import CommandFolder
from querylang.errors import FileErrors, InputError
from runtime.lookup_tables import LookupTable
from tests.support.local_jobs import CrashAt, begun, crashed, run
from tests.support.lookup_jobs import assert_like_a_replay, content, job, rest, room, versions_of, write_places
from tests.support.moved_jobs import set_file
from tests.support.sensors import table, totals
from tests.support.waiting import wait_for

NEW = """query New {
    inputs { Reading() key sensor within 20.0 wait 5.0; }
    find Reading as a -> Reading as b where Place[a.sensor].least < 30.0 select Place[b.sensor].room as room
}
"""


@pytest.fixture(autouse=True)
def _short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_files, "APART", 0.01)


def test_a_new_version_holds_for_what_arrives_behind_all_that_was_read(tmp_path: Path) -> None:
    path = job(tmp_path)
    run_once(path, once=True)
    write_places(tmp_path, 1)
    rest(tmp_path)
    crashed(path, CrashAt("stepped", 1))
    crashed(path, CrashAt("published", 0))
    run(path)
    write_places(tmp_path, 2)  # at the end of all records
    run(path)
    (kept,) = read_tables(tmp_path / "state")
    assert [version.number for version in kept.versions] == [1, 2, 3]
    assert_like_a_replay(tmp_path, versions_of(table()["at"].iloc[1499]))
    assert_like_a_replay(tmp_path)


@pytest.mark.parametrize(
    ("point", "count", "interval"), [("begun", 1, 0.0), ("stepped", 2, 1e9), ("states", 0, 1e9), ("committed", 0, 0.0)]
)
def test_lookups_continue_behind_each_durable_write(tmp_path: Path, point: str, count: int, interval: float) -> None:
    path = job(tmp_path)
    run_once(path, once=True)
    write_places(tmp_path, 1)
    rest(tmp_path)
    crashed(path, CrashAt(point, count), interval=interval)
    run(path)
    assert_like_a_replay(tmp_path)


def test_what_waits_is_done_behind_the_interrupted_micro_batch_and_before_the_rest(tmp_path: Path) -> None:
    path = job(tmp_path)
    run_once(path, once=True)
    rest(tmp_path)
    crashed(path, CrashAt("published", 0))
    write_places(tmp_path, 1)
    number = send_change(load_deployment(path), json.dumps({"DeployQuery": [NEW]}), wait=False).command.number
    forget(path, ["s3"], wait=False)
    run(path)
    (kept,) = read_tables(tmp_path / "state")
    outcome = CommandFolder(tmp_path / "state").outcome(number)
    assert outcome is not None
    assert [version.place for version in kept.versions] == [None, outcome.time]
    assert outcome.time is not None
    assert outcome.time < table()["at"].iloc[-1].value // 1000
    assert rows_of(tmp_path, "s3") == [(room("s3", 1), True)]


def test_a_table_is_the_same_in_other_buckets(tmp_path: Path) -> None:
    path = job(tmp_path)
    run_once(path, once=True)
    rebucket(path, 2)
    set_file(path, buckets=2)
    write_places(tmp_path, 1)
    rest(tmp_path)
    run(path)
    assert_like_a_replay(tmp_path, versions_of(table()["at"].iloc[1499]))


def test_a_running_job_takes_a_new_version_and_says_which_one_it_has(tmp_path: Path) -> None:
    path = job(tmp_path, refresh="100ms")
    handle, _ = begun(path, interval=0.2, kind=RunKind())
    try:
        wait_for(lambda: totals(JobFolder(tmp_path / "state").ledger.total(), "Rise").get("received") == 1500)
        write_places(tmp_path, 1)
        wait_for(lambda: len(read_tables(tmp_path / "state")[0].versions) == 2)
        outcome = handle.control(json.dumps({"DeployQuery": [NEW]}), seconds=60)
        assert outcome is not None
        assert not outcome.errors
        (tmp_path / "places.csv").write_text("sensor,room,least\ns1,hall,x\n")
        wait_for(lambda: read_tables(tmp_path / "state")[0].problem != "")
        (shown,) = status_of(path).tables
        assert (shown.name, shown.version, shown.rows) == ("Place", 2, 30)
        assert "line 2 of table 'Place': 'least' is 'x', not float" in shown.problem
        rest(tmp_path)
        wait_for(lambda: totals(JobFolder(tmp_path / "state").ledger.total(), "Rise").get("received") == 3000)
    finally:
        handle.stop()
    write_places(tmp_path, 1)
    run(path)
    new = pd.concat([pd.read_parquet(file) for file in (tmp_path / "out/matches/New").iterdir()])
    assert len(new) > 20
    assert {(key["sensor"], found) for key, found in zip(new["key"], new["room"], strict=True)} <= {
        (f"s{n}", room(f"s{n}", 1)) for n in range(30)
    }
    (tmp_path / "out/matches/New").rename(tmp_path / "out/New")
    assert_like_a_replay(tmp_path, versions_of(table()["at"].iloc[1499]))


def test_a_version_and_a_change_that_come_together_hold_both(tmp_path: Path) -> None:
    path = job(tmp_path, refresh="100ms")
    handle, _ = begun(path, interval=0.2, kind=RunKind())
    try:
        wait_for(lambda: totals(JobFolder(tmp_path / "state").ledger.total(), "Rise").get("received") == 1500)
        write_places(tmp_path, 1)
        outcome = handle.control(json.dumps({"DeployQuery": [NEW]}), seconds=60)
        assert outcome is not None
        assert not outcome.errors
        wait_for(lambda: len(read_tables(tmp_path / "state")[0].versions) == 2)
        rest(tmp_path)
        wait_for(lambda: totals(JobFolder(tmp_path / "state").ledger.total(), "Rise").get("received") == 3000)
    finally:
        handle.stop()
    run(path)
    (tmp_path / "out/matches/New").rename(tmp_path / "out/New")
    assert_like_a_replay(tmp_path, versions_of(table()["at"].iloc[1499]))


def test_a_table_that_has_lost_most_of_its_rows_waits_to_be_accepted(tmp_path: Path) -> None:
    path = job(tmp_path)
    run_once(path, once=True)
    write_places(tmp_path, 1, 10)
    run_once(path, once=True)
    (kept,) = read_tables(tmp_path / "state")
    assert len(kept.versions) == 1
    assert kept.problem.endswith(f"has 10 rows, and had 30; to take it: `ensue run {path} --accept Place`")
    run_once(path, once=True, accept=["Place"])
    (kept,) = read_tables(tmp_path / "state")
    assert ([version.rows for version in kept.versions], kept.problem) == ([30, 10], "")


def test_what_is_wrong_with_a_table_is_refused_before_a_job_begins(tmp_path: Path) -> None:
    path = job(tmp_path)
    text = path.read_text()
    path.write_text(text.replace('"Place"', '"Plaze"'))
    with pytest.raises(FileErrors, match=r"query 'Rise' looks something up in table 'Place'; say where it is.*'Plaze'"):
        prepare(path)
    path.write_text(text)
    (tmp_path / "places.csv").write_text("sensor,room,least\ns1,hall,1.0\ns1,yard,1.0\n")
    with pytest.raises(InputError, match="line 2 and line 3 of table 'Place' have the same key, 's1'"):
        prepare(path)
    (tmp_path / "places.csv").unlink()
    with pytest.raises(InputError, match=r"places.csv"):
        prepare(path)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_table_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool, is_whole: bool
) -> None:
    path = job(tmp_path)
    if not is_first:
        run_once(path, once=True)
        write_places(tmp_path, 1)
    if not is_whole:
        (tmp_path / "places.csv").write_text("sensor,room,least\ns1,ha")
    inner, reads = lookup_files.read_lookup_table, iter(range(100))

    def replaced(*given: Any) -> LookupTable:
        try:
            return inner(*given)
        finally:
            if (read := next(reads)) in (0, 2):  # of a first start, one is before the start, the other in it
                write_places(tmp_path, 2 + read)

    monkeypatch.setattr(lookup_files, "read_lookup_table", replaced)
    run_once(path, once=True)
    (kept,) = read_tables(tmp_path / "state")
    assert kept.problem == ""
    assert [own for own, holds in rows_of(tmp_path, "s3") if holds] == [room("s3", 4 if is_first else 2)]


def test_a_table_that_is_replaced_at_each_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, inner, versions = job(tmp_path), lookup_files.read_lookup_table, iter(range(1, 100))

    def replaced(*given: Any) -> LookupTable:
        write_places(tmp_path, next(versions))
        return inner(*given)

    monkeypatch.setattr(lookup_files, "read_lookup_table", replaced)
    with pytest.raises(InputError, match=r"table 'Place': .*places.csv is changed all the time"):
        run_once(path, once=True)
    assert next(versions) == 11


def rows_of(folder: Path, sensor: str) -> list[tuple[str, bool]]:
    """The rooms of a sensor in the checkpoint, and whether each holds now."""
    rows = ensue_rows(folder)
    own = rows[rows["sensor"] == sensor]
    return sorted(zip(own["room"], own["valid_to"].isna(), strict=True))


def ensue_rows(folder: Path) -> pd.DataFrame:
    with pa.ipc.open_file(content(folder)) as file:
        return file.read_all().to_pandas()


def without(folder: Path, sensor: str) -> None:
    """The table's owner removes a sensor, and writes the third version."""
    write_places(folder, 2)
    file = folder / "places.csv"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith(f"{sensor},")))


def test_a_key_is_forgotten_in_earlier_versions_of_a_table(tmp_path: Path) -> None:
    path = job(tmp_path)
    run_once(path, once=True)
    write_places(tmp_path, 1)
    rest(tmp_path)
    run_once(path, once=True)
    files = {file.name for file in (tmp_path / "state/ensue/lookups").iterdir()}
    assert rows_of(tmp_path, "s3") == [("hall", False), ("yard", True)]
    assert rows_of(tmp_path, "s6") == [("hall", False), ("yard", True)]
    before = ensue_rows(tmp_path)
    asked = forget(path, ["s3"])
    assert (asked.tables, asked.are_rows_gone) == (["Place"], False)
    assert f"rows that the table 'Place' has now: {tmp_path / 'places.csv'}" in asked.remains
    without(tmp_path, "s6")
    assert forget(path, ["s6"]).tables == ["Place"]
    run_once(path, once=True)
    # What the table still says of s3 holds; of s6 its owner has removed all.
    assert [room for room, _ in rows_of(tmp_path, "s3")] == ["attic"]
    assert rows_of(tmp_path, "s6") == []
    left = {file.name for file in (tmp_path / "state/ensue/lookups").iterdir()}
    assert not left & files
    assert len(left) == 1
    others = ~before["sensor"].isin(["s3", "s6"])
    after = ensue_rows(tmp_path)
    both = before[others & before["valid_to"].notna()].merge(after, how="left", indicator=True)
    assert (both["_merge"] == "both").all()
    assert len(both) > 5
    assert not any((tmp_path / "state/ensue/forgotten_rows").iterdir())


def test_a_running_job_forgets_rows_of_tables(tmp_path: Path) -> None:
    path = job(tmp_path)
    run_once(path, once=True)
    write_places(tmp_path, 1)
    handle, _ = begun(path, interval=0.2, kind=RunKind())
    try:
        wait_for(lambda: len(rows_of(tmp_path, "s3")) == 2)
        asked = forget(path, ["sensor=s3"])
        assert (asked.tables, asked.are_rows_gone) == (["Place"], True)
        assert rows_of(tmp_path, "s3") == [("yard", True)]
        assert rows_of(tmp_path, "s6") == [("hall", False), ("yard", True)]
        rest(tmp_path)
        wait_for(lambda: totals(JobFolder(tmp_path / "state").ledger.total(), "Rise").get("received") == 3000)
    finally:
        handle.stop()


@pytest.mark.parametrize("point", ["begun", "stepped"])
def test_rows_are_forgotten_once_no_micro_batch_is_open(tmp_path: Path, point: str) -> None:
    path = job(tmp_path)
    run_once(path, once=True)
    write_places(tmp_path, 1)
    rest(tmp_path)
    crashed(path, CrashAt(point, 1))
    assert forget(path, ["s3"]).tables == ["Place"]
    assert len(rows_of(tmp_path, "s3")) == 2
    run(path)
    run(path)
    assert rows_of(tmp_path, "s3") == [("yard", True)]


def test_a_damaged_request_is_reported_and_holds_up_no_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = job(tmp_path)
    run_once(path, once=True)
    write_places(tmp_path, 1)
    rest(tmp_path)
    run_once(path, once=True)
    assert forget(path, ["s3"]).tables == ["Place"]
    (request,) = (tmp_path / "state/ensue/forgotten_rows").iterdir()
    request.write_text('{"version": 1, "k')
    assert forget(path, ["s6"]).tables == ["Place"]
    run_once(path, once=True)
    assert len(rows_of(tmp_path, "s3")) == 2
    assert rows_of(tmp_path, "s6") == [("yard", True)]
    assert f"{request}: is damaged" in caplog.text
    assert not any(request.parent.iterdir())
