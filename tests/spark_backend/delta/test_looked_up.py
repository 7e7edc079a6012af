"""Tables of Delta and objects of a store beside the stream of a job: versions, restarts, and whatever is wrong with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import ensue
from job_engine.delta_package import store_settings, table_uri
from job_engine.job import lookup_files
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.job import run as run_once
from job_engine.job.lookup_files import KeptTable, read_tables, take_tables
from job_engine.job.stages.prepare import prepare
from job_engine.job.stages.start import RunKind
from job_engine.job.status import status_of
from job_engine.place import place_of
from querylang.errors import FileErrors, InputError
from tests.support.local_jobs import Crash, CrashAt, begun, crashed, run
from tests.support.lookup_jobs import assert_like_a_replay, job, rest, room, versions_of
from tests.support.sensors import table, totals
from tests.support.stores import KEYS, StoreServer
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def _short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_files, "APART", 0.01)


def places(version: int, sensors: int = 30) -> pd.DataFrame:
    """The rooms of sensors, with columns in another order and case, and more of them than are looked up."""
    numbers = range(sensors)
    return pd.DataFrame(
        {
            "LEAST": [20.0 * (n % 3) for n in numbers],
            "more": [{"a": n} for n in numbers],
            "Room": [room(f"s{n}", version) for n in numbers],
            "sensor": [f"s{n}" for n in numbers],
        }
    )


def write(folder: Path | str, version: int, sensors: int = 30, **settings: Any) -> None:
    options = {"partition_by": ["Room"]} | settings
    write_deltalake(str(folder), places(version, sensors), mode="overwrite", **options)


def delta_job(folder: Path, **settings: Any) -> Path:
    """A job that has the first half of its records, and a table of Delta at version 0."""
    write(folder / "places", 0)
    return job(folder, path="places", format="delta", **settings)


def kept_of(folder: Path) -> KeptTable:
    (kept,) = read_tables(folder / "state")
    return kept


def versions(folder: Path) -> list[tuple[int, int | None]]:
    return [(version.number, version.delta) for version in kept_of(folder).versions]


HALF = table()["at"].iloc[1499]


def test_a_version_of_a_table_of_delta_holds_from_its_place_on(tmp_path: Path) -> None:
    path = delta_job(tmp_path)
    run_once(path, once=True)
    write(tmp_path / "places", 2)
    write(tmp_path / "places", 1)
    rest(tmp_path)
    crashed(path, CrashAt("stepped", 1))
    run(path)
    write(tmp_path / "places", 2)  # at the end of all records
    run(path)
    assert versions(tmp_path) == [(1, 0), (2, 2), (3, 3)]
    assert_like_a_replay(tmp_path, versions_of(HALF))
    assert_like_a_replay(tmp_path)


@pytest.mark.parametrize("is_written", [False, True])
def test_a_job_that_ends_while_it_takes_a_version_takes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    path = delta_job(tmp_path)
    run_once(path, once=True)
    write(tmp_path / "places", 1)
    rest(tmp_path)
    inner = lookup_files.write_tables

    def ends(*given: Any) -> None:
        if is_written:
            inner(*given)
        raise Crash("tables")

    with monkeypatch.context() as patched:
        patched.setattr(lookup_files, "write_tables", ends)
        with pytest.raises(Exception, match="tables"):
            run_once(path, once=True)
    run(path)
    assert versions(tmp_path) == [(1, 0), (2, 1)]
    assert len(list((tmp_path / "state/ensue/lookups").iterdir())) == 2
    assert_like_a_replay(tmp_path, versions_of(HALF))


def test_a_running_job_takes_versions_reports_what_is_wrong_and_knows_the_same_rows_again(tmp_path: Path) -> None:
    path = delta_job(tmp_path, refresh="100ms")
    folder = tmp_path / "places"
    handle, _ = begun(path, interval=0.2, kind=RunKind())

    known = [""]

    def problem(expected: str) -> None:
        """The next one that is reported."""
        wait_for(lambda: kept_of(tmp_path).problem != known[-1])
        known.append(kept_of(tmp_path).problem)
        assert expected in known[-1]

    try:
        wait_for(lambda: totals(JobFolder(tmp_path / "state").ledger.total(), "Rise").get("received") == 1500)
        write(folder, 1)
        wait_for(lambda: versions(tmp_path) == [(1, 0), (2, 1)])
        DeltaTable(str(folder)).optimize.z_order(["sensor"])
        wait_for(lambda: versions(tmp_path) == [(1, 0), (2, 2)])
        write_deltalake(str(folder), places(2).drop(columns="LEAST"), mode="overwrite", schema_mode="overwrite")
        problem("table 'Place' needs a column 'least'; there are more, Room and sensor")
        wrong = places(2).astype({"LEAST": str})
        wrong.loc[7, "LEAST"] = "x"
        write_deltalake(str(folder), wrong, mode="overwrite", schema_mode="overwrite")
        problem(".parquet of table 'Place': 'LEAST' is 'x', not float")
        assert f"{folder} at version 4: row 3 of Room=yard/part-" in known[-1]
        twice = pd.concat([places(2), places(2).iloc[:1]])
        write_deltalake(str(folder), twice, mode="overwrite", schema_mode="overwrite")
        problem("have the same key, 's0', and hold at the same time")
        write(folder, 2, 10, schema_mode="overwrite", partition_by=None)
        problem(f"places has 10 rows, and had 30; to take it: `ensue run {path} --accept Place`")
        folder.rename(tmp_path / "away")
        problem(f"{folder} is not a Delta table")
        (shown,) = status_of(path).tables
        assert (shown.version, shown.delta, shown.rows, shown.age > 0) == (2, 2, 30, True)
        (tmp_path / "away").rename(folder)
        problem("places has 10 rows")
        write(folder, 1, partition_by=None)
        wait_for(lambda: kept_of(tmp_path).problem == "")
        assert versions(tmp_path) == [(1, 0), (2, 7)]
        rest(tmp_path)
        wait_for(lambda: totals(JobFolder(tmp_path / "state").ledger.total(), "Rise").get("received") == 3000)
    finally:
        handle.stop()
    run(path)
    assert_like_a_replay(tmp_path, versions_of(HALF))


def newest_files(folder: Path) -> list[Path]:
    return [Path(file.removeprefix("file://")) for file in DeltaTable(str(folder)).file_uris()]


def commit(folder: Path) -> Path:
    return folder / "_delta_log/00000000000000000001.json"


def replaced(folder: Path, old: str, new: str) -> None:
    text = commit(folder).read_text()
    assert old in text
    commit(folder).write_text(text.replace(old, new))


def with_feature(folder: Path, name: str) -> None:
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [name], "writerFeatures": [name]}
    with commit(folder).open("a") as file:
        file.write("\n" + json.dumps({"protocol": features}) + "\n")


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "vacuumed": (lambda folder: newest_files(folder)[0].unlink(), "the data file no longer exists: it was removed"),
    "cut": (lambda folder: newest_files(folder)[0].write_bytes(b"PAR1 and then nothing"), ".parquet: "),
    "commit of nonsense": (lambda folder: commit(folder).write_text('{"add": 5'), "the Delta table cannot be used: "),
    "elsewhere": (lambda folder: replaced(folder, '"path":"', '"path":"../'), "names a data file outside of the table"),
    "too new": (lambda folder: with_feature(folder, "catalogManaged"), "the Delta table cannot be used: "),
    "no log": (lambda folder: shutil.rmtree(folder / "_delta_log"), "is not a Delta table"),
    "a file": (lambda folder: (shutil.rmtree(folder), folder.write_text("sensor\n")), "is not a Delta table"),
    "lists": (
        lambda folder: write_deltalake(
            str(folder), places(1).assign(LEAST=[[1.0]] * 30), mode="overwrite", schema_mode="overwrite"
        ),
        "'LEAST' is [1.0], not float",
    ),
    "no key": (
        lambda folder: write_deltalake(str(folder), places(1).replace({"sensor": {"s3": None}}), mode="overwrite"),
        "'sensor' has no value",
    ),
}


def test_a_version_with_whatever_mistake_is_one_line_and_the_one_before_holds(tmp_path: Path) -> None:
    path = delta_job(tmp_path)
    folder, good = tmp_path / "places", tmp_path / "good"
    run_once(path, once=True)
    write(folder, 1)
    folder.rename(good)
    ready = prepare(path)
    ready.close()
    for name, (breaks, expected) in BREAKS.items():
        shutil.rmtree(folder, ignore_errors=True)
        if folder.is_file():
            folder.unlink()
        shutil.copytree(good, folder)
        breaks(folder)
        take_tables(ready.checked.program, ready.checked.deployment, ready.folder.reached(), ())
        assert expected in kept_of(tmp_path).problem, name
        assert "\n" not in kept_of(tmp_path).problem, name
        assert versions(tmp_path) == [(1, 0)], name
    shutil.rmtree(folder)
    good.rename(folder)
    rest(tmp_path)
    run(path)
    assert (kept_of(tmp_path).problem, versions(tmp_path)) == ("", [(1, 0), (2, 1)])
    assert_like_a_replay(tmp_path, versions_of(HALF))


@pytest.mark.parametrize("name", ["vacuumed", "no log", "lists"])
def test_a_table_with_a_mistake_is_refused_before_a_job_begins(tmp_path: Path, name: str) -> None:
    path = delta_job(tmp_path)
    write(tmp_path / "places", 1)
    breaks, expected = BREAKS[name]
    breaks(tmp_path / "places")
    with pytest.raises(InputError) as refused:
        prepare(path)
    assert expected in str(refused.value)
    assert not (tmp_path / "state").exists()


def test_settings_that_a_table_of_delta_cannot_have_are_refused_with_their_line(tmp_path: Path) -> None:
    path = delta_job(tmp_path)
    text = path.read_text()
    for old, new, expected in (
        ('"format": "delta"', '"format": "csv", "outside_files": true', "'outside_files' is a setting of Delta tables"),
        (
            '"path": "places"',
            '"path": "s3://b/places", "options": {"tls_ca_file_path": "x"}',
            "'tls_ca_file_path' cannot be set for Delta tables",
        ),
        ('"format": "delta"', '"format": "iceberg"', "iceberg"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(FileErrors, match=expected):
            prepare(path)


LOOKUPS = """table Asset { key string zone; key network cidr; string owner; integer level; }
event Login { string zone; string ip; integer n; }
query Q {
    inputs { Login() key n within 1 hour; }
    find Login as l where Asset.getOrDefault(l.zone, l.ip).level >= 2 {
        print Asset[l.zone, l.ip].owner;
    }
}"""

LOGINS = [
    {"at": float(at), "zone": "a", "ip": ip, "n": at} for at, ip in enumerate(["10.0.0.1", "10.1.0.1", "11.0.0.1"] * 3)
]


def assets() -> pa.Table:
    """Networks in times, of two zones; a null level is one of a row that does not hold yet."""
    rows = [
        ("a", "10.0.0.0/8", "ann", 2, None, 4),
        ("a", "10.0.0.0/8", "bob", 3, 4, None),
        ("a", "10.1.0.0/16", "cid", 1, None, None),
        ("b", "11.0.0.0/8", "dan", 5, None, None),
        ("a", "11.0.0.0/8", None, None, 100, None),
    ]
    names = ("zone", "cidr", "owner", "level", "valid_from", "valid_to")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    times = {
        name: pa.array([None if at is None else at * 1_000_000 for at in columns[name]], pa.timestamp("us", "UTC"))
        for name in names[4:]
    }
    return pa.table(columns | times)


@pytest.mark.parametrize("partitions", [None, ["zone", "level"], ["valid_from"], ["owner"]])
def test_networks_times_and_nulls_are_those_of_the_frame(
    tmp_path: Path, store: StoreServer, partitions: list[str] | None
) -> None:
    wanted = ensue.replay(LOOKUPS, LOGINS, tables={"Asset": assets()}).outputs["text"].tolist()
    assert wanted == ["ann", "ann", "bob"]
    write_deltalake(str(tmp_path / "assets"), assets(), partition_by=partitions)
    place = "s3://bucket/some #assets"
    options = store_settings(place_of(place), store.environment)
    write_deltalake(table_uri(place_of(place)), assets(), partition_by=partitions, storage_options=options)
    for given in (tmp_path / "assets", str(tmp_path / "assets"), place):
        assert ensue.replay(LOOKUPS, LOGINS, tables={"Asset": given}).outputs["text"].tolist() == wanted


def put_places(store: StoreServer, version: int, *, is_delta: bool) -> str:
    """The place of the rooms of sensors in a store."""
    if not is_delta:
        store.put("places.csv", places(version).drop(columns="more").to_csv(index=False))
        return "s3://bucket/places.csv"
    keys = {"access_key": KEYS["AWS_ACCESS_KEY_ID"], "secret_key": KEYS["AWS_SECRET_ACCESS_KEY"]}
    place = place_of("s3://bucket/rooms/%/places", options=keys)
    write(table_uri(place), version, storage_options=store_settings(place, store.environment))
    return str(place)


@pytest.mark.parametrize("is_delta", [True, False])
def test_a_table_in_a_store_that_refuses_or_is_away_holds_and_no_secret_is_shown(
    tmp_path: Path,
    store: StoreServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    is_delta: bool,
) -> None:
    place = put_places(store, 0, is_delta=is_delta)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    secret = KEYS["AWS_SECRET_ACCESS_KEY"]
    monkeypatch.setenv("OUR_SECRET", secret)
    options = {"access_key": "mine", "secret_key": "${OUR_SECRET}", "region": "us-east-1", "scheme": "http"}
    options["endpoint_override"] = store.url.removeprefix("http://")
    path = job(tmp_path, path=place, options=options, refresh="100ms")
    run_once(path, once=True)
    sleep(1.0)  # a store tells whole seconds, within which a job would look again (`APART`)
    put_places(store, 1, is_delta=is_delta)
    problems = []
    store.refuse = lambda method, path: (403, secret) if method == "GET" and path.endswith(("t", "v")) else None
    handle, _ = begun(path, interval=0.2, kind=RunKind())
    try:
        wait_for(lambda: bool(kept_of(tmp_path).problem))
        problems.append(kept_of(tmp_path).problem)
        store.stop()
        wait_for(lambda: kept_of(tmp_path).problem != problems[0])
        problems.append(kept_of(tmp_path).problem)
        assert (len(kept_of(tmp_path).versions), status_of(path).tables[0].problem) == (1, problems[1])
        store.refuse = lambda _method, _path: (403, secret)
        store.start()
        wait_for(lambda: kept_of(tmp_path).problem != problems[1])
        problems.append(kept_of(tmp_path).problem)
        store.refuse = lambda _method, _path: None
        wait_for(lambda: len(kept_of(tmp_path).versions) == 2)
        assert kept_of(tmp_path).problem == ""
        rest(tmp_path)
        wait_for(lambda: totals(JobFolder(tmp_path / "state").ledger.total(), "Rise").get("received") == 3000)
    finally:
        handle.stop()
    run(path)
    assert_like_a_replay(tmp_path, versions_of(HALF))
    assert "the store refuses access: check credentials and permissions" in problems[0]
    assert "the store cannot be reached" in problems[1]
    assert "the store refuses access: check credentials and permissions" in problems[2]
    assert secret not in caplog.text
    for file in (tmp_path / "state").rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes(), file
