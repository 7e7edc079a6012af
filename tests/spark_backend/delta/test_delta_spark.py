"""Tables that delta-spark has made are read, or refused by name; tables of ours are read, compacted and written to by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from job_engine.delta_log import refuse_unreadable, refuse_unwritable
from job_engine.delta_package import open_table
from job_engine.sinks.kinds import Sink
from job_engine.sinks.table.settings import TableSink
from job_engine.sources.table.commits import UnreadableTable
from job_engine.sources.table.planning import CommitPlanner
from job_engine.sources.table.settings import DeltaSource
from querylang.errors import InputError
from spark_backend.launch.session_settings import class_options
from tests.spark_backend.delta.ours import DELTA, OURS, names, rows, write
from tests.support.maven import ROOT, fetched_jars

PROGRAM = ROOT / "tests" / "support" / "delta_spark" / "program.py"


@dataclass(frozen=True, slots=True)
class Tables:
    """folder: of what delta-spark has made; sink: ours; read: the rows that it has found there."""

    folder: Path
    sink: Sink
    read: list[dict[str, object]]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    base = tmp_path_factory.mktemp("tables")
    sink = Sink("delta", TableSink(("day", "instance")), base / "matches")
    for batch in range(3):
        write(sink, batch, rows(f"a{batch}", hours=12 * batch), rows(f"b{batch}", instance=None))
    jars = fetched_jars(PROGRAM.with_name("pom.xml"), ROOT / "build" / "delta" / "jars")
    own = str(base / "matches" / "Q")
    command = [sys.executable, str(PROGRAM), ",".join(map(str, sorted(jars.iterdir()))), str(base), own]
    options = {"SPARK_SUBMIT_OPTS": f"{os.environ['SPARK_SUBMIT_OPTS']} {class_options()}"}
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | options)
    assert found.returncode == 0, found.stderr[-2000:]
    return Tables(base, sink, [json.loads(row) for row in json.loads(found.stdout.splitlines()[-1])[own]])


def values(tables: Tables, name: str, start: str = "earliest") -> list[int]:
    source = DeltaSource("s", str(tables.folder / name), "at", start)
    found = CommitPlanner([source]).next({}, {}, lambda *_: None)
    files = [file.path for unit in found.units for file in unit.files]
    return [
        value for file in files for value in pq.ParquetFile(tables.folder / name / file).read(["v"])["v"].to_pylist()
    ]


def test_spark_reads_and_compacts_what_we_write_and_we_continue(tables: Tables) -> None:
    assert [(row["match_id"], row["day"], row.get("instance")) for row in tables.read] == [
        ("a0", "2024-01-01", "eu"),
        ("a1", "2024-01-02", "eu"),
        ("a2", "2024-01-02", "eu"),
        ("b0", "2024-01-01", None),
        ("b1", "2024-01-01", None),
        ("b2", "2024-01-01", None),
    ]
    assert tables.read[0]["low"] == {"v": 1.5, "tags": ["a"], "by": {"k": 1}}
    write(tables.sink, 2, rows("a2"))
    write(tables.sink, 3, rows("a3"))
    assert names(tables.sink) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2"]
    assert [(result.identity, result.batch) for result in DELTA.results(tables.sink)] == [(OURS, 3)]


def test_tables_of_spark_are_read_as_they_are_and_commit_by_commit(tables: Tables) -> None:
    assert sorted(values(tables, "plain")) == [1, 2, 3, 4, 5]
    assert values(tables, "plain", "1")[2:] == [3, 4, 5]
    assert values(tables, "second") == [1]


def test_partition_values_are_those_of_spark(tables: Tables) -> None:
    for start in ("earliest", "0"):
        source = DeltaSource("s", str(tables.folder / "plain"), "at", start)
        found = CommitPlanner([source]).next({}, {}, lambda *_: None)
        kinds = {file.partition["kind"] for unit in found.units for file in unit.files}
        assert kinds == {"a b", "c%d", None}


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises((InputError, UnreadableTable)) as caught:
        call()
    return str(caught.value)


def test_deleted_rows_are_refused_at_the_start_and_behind_it(tables: Tables) -> None:
    assert "version 2 has data files with deleted rows (deletion vectors)" in refusal(lambda: values(tables, "vectors"))
    assert values(tables, "vectors", "0") == list(range(10))
    assert "version 2 changes or deletes rows" in refusal(lambda: values(tables, "vectors", "2"))


@pytest.mark.parametrize(
    ("name", "is_source", "reason"),
    [
        ("mapped", True, "the Delta table has column mapping (columnMapping), which cannot be read here"),
        ("mapped", False, "column mapping (columnMapping), which a sink cannot write; choose another folder"),
        ("tracked", False, "the Delta table has rowTracking, which a sink cannot write; choose another folder"),
        ("clustered", False, "the Delta table has clustering"),
        ("generated", False, "the Delta table has generated columns, which a sink cannot write; choose another folder"),
    ],
)
def test_what_cannot_be_read_or_written_is_refused_by_name(
    tables: Tables, name: str, is_source: bool, reason: str
) -> None:
    path = tables.folder / name
    table = open_table(path)
    assert table is not None
    assert reason in refusal(lambda: (refuse_unreadable if is_source else refuse_unwritable)(path, table))
