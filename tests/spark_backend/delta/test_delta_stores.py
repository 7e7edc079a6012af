"""Delta tables in a store: a job that is killed, and one whose store goes away, lose and double nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from deltalake import DeltaTable, write_deltalake

from job_engine.delta_package import open_table, store_settings, table_uri
from job_engine.errors import RETRY
from job_engine.place import place_of
from job_engine.setting_keys import Engine
from job_engine.sinks.kinds import MicroBatch, Sink
from tests.spark_backend.delta.ours import DELTA, OURS, drafts, rows, write
from tests.support.delta_tables import FROM_TABLE, match_ids_in, replayed
from tests.support.killed_runs import kill_when, start
from tests.support.sensors import QUERY, table
from tests.support.sinks import sink_of
from tests.support.stores import StoreServer, run_while_the_store_goes_away

FOLDER = "in %/ü #1"


def write_commits(store: StoreServer, content: pd.DataFrame, count: int) -> None:
    place = place_of(f"s3://bucket/{FOLDER}")
    halves = content.assign(half=(np.arange(len(content)) % 2).astype("int64"))
    for part in np.array_split(np.arange(len(content)), count):
        write_deltalake(
            table_uri(place),
            halves.iloc[part],
            mode="append",
            partition_by=["event", "half"],
            storage_options=store_settings(place, store.environment),
        )


def fetch(store: StoreServer, prefix: str, folder: Path) -> None:
    """Copy all objects, logs too."""
    for key in store.keys(f"{prefix}/"):
        path = folder / key.removeprefix(f"{prefix}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.client.get_object(Bucket="bucket", Key=key)["Body"].read())


def test_a_job_between_tables_of_a_store_gives_each_match_once(
    tmp_path: Path, store: StoreServer, engine_of_processes: Engine
) -> None:
    content = table(800)
    write_commits(store, content, 5)
    (tmp_path / "sensors.query").write_text(QUERY)
    path = tmp_path / "sensors.yaml"
    text = FROM_TABLE.replace("path: readings", f"path: 's3://bucket/{FOLDER}'").replace("Trigger: 5", "Trigger: 2")
    path.write_text("retry: 10 minutes\n" + text.replace("path: out/", "path: s3://bucket/out/"))
    kill_when(start(path), lambda: any("-00000002-" in key for key in store.keys("out/")))
    run_while_the_store_goes_away(path, store, behind="batch 3")
    fetch(store, "out", tmp_path / "out")
    fetch(store, FOLDER, tmp_path / "readings")
    assert match_ids_in(tmp_path / "out" / "matches") == replayed(tmp_path)


def in_store(name: str) -> Sink:
    return sink_of("delta", place_of(f"s3://bucket/{name}"))


def found(store: StoreServer, sink: Sink) -> list[str]:
    place = sink.folder / "Q"
    opened = DeltaTable(table_uri(place), storage_options=store_settings(place))
    return sorted(opened.to_pyarrow_table().column("match_id").to_pylist())


def test_writers_that_meet_in_a_store_lose_nothing(store: StoreServer) -> None:
    sink = in_store("met")
    write(sink, 0, rows("first"))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: write(sink, 1, rows(f"r{number}"), identity=f"{number:012x}"), range(4)))
    assert found(store, sink) == ["first", "r0", "r1", "r2", "r3"]


def test_a_commit_whose_answer_was_lost_is_there_once(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = replace(in_store("lost"), place=place_of("s3://bucket/lost", options={RETRY: "60"}))
    write(sink, 0, rows("a"))
    commit = DeltaTable.create_write_transaction
    calls = []

    def without_answer(self: DeltaTable, **arguments: Any) -> None:
        commit(self, **arguments)
        calls.append(self)
        raise OSError("Generic S3 error: HTTP error: error sending request")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", without_answer)
    write(sink, 1, rows("b"))
    assert len(calls) == 1
    assert found(store, sink) == ["a", "b"]


def test_files_of_an_attempt_that_nobody_counts_are_removed(store: StoreServer) -> None:
    sink = in_store("left")
    write(sink, 1, rows("a"))
    drafts(sink, 1, rows("b"))
    assert len([key for key in store.keys("left/") if key.endswith(".parquet")]) == 2
    DELTA.remove_leftovers(sink, MicroBatch(OURS, 1), ())
    assert len([key for key in store.keys("left/") if key.endswith(".parquet")]) == 1
    assert [(result.identity, result.batch) for result in DELTA.results(sink)] == [(OURS, 1)]


def test_what_a_store_refuses_is_one_line(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = in_store("refused")
    write(sink, 0, rows("a"))
    table = sink.folder / "Q"
    reasons = []
    for status, code in ((403, "AccessDenied"), (503, "SlowDown"), (404, "NoSuchBucket")):
        store.refuse = lambda _method, _path, status=status, code=code: (status, code)  # type: ignore[misc]
        with pytest.raises(OSError, match=r"bucket|store") as caught:
            open_table(table)
        reasons.append(str(caught.value))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(PermissionError) as refused:
        open_table(table)
    reasons.append(str(refused.value))
    assert [reason.split("] ")[1] for reason in reasons] == [
        "the store refuses access: check credentials and permissions: 's3://bucket/refused/Q'",
        "the store fails, or refuses requests for a moment: 's3://bucket/refused/Q'",
        "there is no such bucket: 's3://bucket/refused/Q'",
        "no credentials for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or its `options`: 's3://bucket/refused/Q'",
    ]


def test_settings_of_a_store_are_those_of_other_formats() -> None:
    options = {"endpoint_override": "minio:9000", "scheme": "http", "access_key": "me", "connect_timeout": "5"}
    assert store_settings(place_of("s3://b/t", options=options), {}) == {
        "aws_endpoint_url": "http://minio:9000",
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "me",
        "connect_timeout": "5s",
    }
    assert store_settings(place_of("abfss://c@a.dfs.core.windows.net/t", options={"account_key": "k"}), {}) == {
        "azure_storage_account_key": "k"
    }
    assert store_settings(Path("t"), {}) is None
