"""Logs of Delta tables that are damaged, or name files of others: one line, and nothing outside is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from ensue import EnsueError
from job_engine.delta_log import LOG, column_of_checkpoint, commit_file, data_file, last_checkpoint
from job_engine.place import OutsidePath, Place, RemotePath, inside
from job_engine.sources.table.commits import UnreadableTable, position_at, snapshot_units
from job_engine.sources.table.pieces import TableFile, TablePosition
from job_engine.sources.table.planning import CommitPlanner
from job_engine.sources.table.settings import DeltaSource
from querylang.errors import InputError
from tests.support.mutants import json_mutants

Line = dict[str, Any]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    for value in range(2):
        write_deltalake(path, pa.table({"at": pa.array([value], pa.timestamp("us", "UTC"))}), mode="append")
    (path / "identity").write_text(json.dumps(position_at(source(path), 0, is_read=True).identity))
    pq.write_table(pa.table({"at": pa.array([7], pa.timestamp("us", "UTC"))}), tmp_path / "private.parquet")
    return path


def source(table: Path, **settings: object) -> DeltaSource:
    return replace(DeltaSource("s", str(table), "at", "1"), **settings)  # type: ignore[arg-type]


def changed(table: Path, change: Callable[[Line], None], kind: str = "add", version: int = 1) -> None:
    """Change an action of a commit."""
    file = commit_file(table, version)
    assert isinstance(file, Path)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if kind in line:
            change(line[kind])
    file.write_text("\n".join(map(json.dumps, lines)))


def units(source: DeltaSource) -> list[TableFile]:
    """The data files of what a job reads that begins with the table, or behind its first version."""
    first = json.loads(Path(source.folder, "identity").read_text())
    before = {} if source.start == "earliest" else {"s": TablePosition(first, 0, None, {"at": '"timestamp"'})}
    found = CommitPlanner([source]).next(before, {}, lambda *_: None)
    return [file for unit in found.units for file in unit.files]


def planned(source: DeltaSource) -> list[str]:
    return [file.path for file in units(source)]


OUTSIDE = (
    "../private.parquet",
    "a/../../private.parquet",
    "%2e%2e/private.parquet",
    "file:///etc/private.parquet",
    "file:/etc/private.parquet",
    "/etc/private.parquet",
    "s3://other/private.parquet",
    "https://other/private.parquet",
)


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("start", ["earliest", "1"])
def test_a_file_outside_of_its_table_stops_the_job_with_the_setting_that_allows_it(
    table: Path, path: str, start: str
) -> None:
    changed(table, lambda add: add.update(path=path))
    with pytest.raises(UnreadableTable, match=r"names a data file outside of the table: .* `outside_files: true`"):
        planned(source(table, start=start))


def test_with_outside_files_such_files_are_read(table: Path, tmp_path: Path) -> None:
    changed(table, lambda add: add.update(path=f"file://{tmp_path}/private.parquet"))
    (path,) = planned(source(table, outside_files=True))
    assert data_file(table, path, outside=True) == tmp_path / "private.parquet"


def test_a_link_that_leads_out_is_refused_when_it_is_read(table: Path, tmp_path: Path) -> None:
    (table / "inner.parquet").symlink_to(tmp_path / "private.parquet")
    with pytest.raises(OutsidePath):
        data_file(table, "inner.parquet")
    assert data_file(table, "inner.parquet", outside=True).is_file()


def test_paths_are_decoded_once(table: Path) -> None:
    changed(table, lambda add: add.update(path="k=10:%2F/a%2520b.parquet"))
    (path,) = planned(source(table))
    assert data_file(table, path) == table / "k=10:" / "a%20b.parquet"
    assert data_file(table, "file:/x/a%20b", outside=True) == Path("/x/a%20b")


def test_options_of_a_store_go_to_its_own_bucket_only() -> None:
    table = RemotePath("s3://bucket", "lake/table", (("secret_key", "x"),))
    own, other = RemotePath("s3://bucket", "lake/table/a", table.options), RemotePath("s3://other", "a", ())

    def found(path: str) -> Place:
        return data_file(table, path, outside=True)

    assert [data_file(table, "a"), data_file(table, "s3a://bucket/lake/table/a")] == [own, own]
    assert found("s3://other/a") == other
    assert found("s3://bucket/else") == RemotePath("s3://bucket", "else", table.options)
    for path in ("s3://bucket/lake/table/../../x", "../x"):
        with pytest.raises(OutsidePath):
            found(path)
    with pytest.raises(OutsidePath):
        data_file(table, "s3://bucket/lake/table2/a")


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../../b", "a\0b", "a\ud800"])
def test_a_name_stays_below_its_root(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutsidePath):
        inside(tmp_path, name)
    assert inside(tmp_path, "a/b") == tmp_path / "a" / "b"


def test_deletion_vectors_are_refused_without_reading_what_the_log_names(table: Path) -> None:
    features = {"minReaderVersion": 3, "minWriterVersion": 7}
    features |= {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}  # type: ignore[dict-item]
    changed(table, lambda protocol: protocol.update(features), "protocol", 0)
    assert len(snapshot_units(source(table), 1)) == 2
    vector = {"storageType": "p", "pathOrInlineDv": "file:///etc/passwd", "offset": 1, "sizeInBytes": 40}
    changed(table, lambda add: add.update(deletionVector=vector | {"cardinality": 1}))
    assert len(snapshot_units(source(table), 0)) == 1
    with pytest.raises(UnreadableTable, match="deleted rows"):
        snapshot_units(source(table), 1)


@pytest.mark.parametrize("statistics", ["{", 5, '{"numRecords": "x"}', '{"numRecords": -1}', "[" * 5_000, None, {}])
def test_damaged_statistics_are_no_statistics(table: Path, statistics: object) -> None:
    changed(table, lambda add: add.update(stats=statistics))
    assert [file.rows for file in units(source(table))] == [None]


@pytest.mark.parametrize("info", [None, 5, [], {"timestamp": "x"}, {"timestamp": 1e300}])
def test_what_a_commit_says_of_itself_may_be_anything(table: Path, info: object) -> None:
    file = commit_file(table, 1)
    assert isinstance(file, Path)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text(
        "\n".join(json.dumps(line | ({"commitInfo": info} if "commitInfo" in line else {})) for line in lines)
    )
    assert len(planned(source(table))) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1e400}', '{"version": -1}', "[" * 5_000, "\ufeff"])
def test_a_damaged_pointer_to_the_checkpoint_points_nowhere(table: Path, text: str) -> None:
    (table / LOG / "_last_checkpoint").write_text(text)
    assert last_checkpoint(table) is None


def test_a_damaged_checkpoint_is_one_line(table: Path) -> None:
    file = table / LOG / "00000000000000000001.checkpoint.parquet"
    file.write_bytes(b"PAR1" + b"x" * 50 + b"PAR1")
    with pytest.raises(InputError, match=r"checkpoint\.parquet: is damaged: it cannot be read: .* Restore it"):
        list(column_of_checkpoint(file, "txn"))


def test_mutants_of_a_commit_are_read_or_refused_in_one_line(table: Path) -> None:
    """`python -m tests.torture.hostile --only delta_log` tries a million."""
    file = commit_file(table, 1)
    assert isinstance(file, Path)
    messages = []
    for mutant in json_mutants(file.read_bytes(), 3_000):
        file.write_bytes(mutant)
        try:
            planned(source(table))
        except (UnreadableTable, EnsueError) as error:
            messages.append(str(error))
    assert len(messages) > 500
    assert [text for text in messages if "\n" in text or str(table) not in text] == []
