"""Which data files of Delta tables a micro-batch reads, and what stops it: tables made by the package and by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake

from job_engine.delta_log import commit_file
from job_engine.sources.listing.lister import InputPlanner, RunSettings
from job_engine.sources.listing.manifests import ToldSource
from job_engine.sources.table.commits import UnreadableTable
from job_engine.sources.table.pieces import TablePosition
from job_engine.sources.table.planning import WORTH_NOTING, CommitPlanner
from job_engine.sources.table.settings import DeltaSource

START: Mapping[str, TablePosition] = {}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table"


def rows(*moments: int, **more: object) -> pa.Table:
    times = pa.array([moment * 1_000_000 for moment in moments], pa.timestamp("us", "UTC"))
    return pa.table({"at": times, "v": list(moments)} | {name: [value] * len(moments) for name, value in more.items()})


def append(path: Path, *moments: int, **more: object) -> None:
    write_deltalake(path, rows(*moments, **more), mode="append", schema_mode="merge")


def source(path: Path, start: str = "earliest", **settings: object) -> DeltaSource:
    return replace(DeltaSource("s", str(path), "at", start), **settings)  # type: ignore[arg-type]


class Job:
    """Micro-batches one after the other; each is a run of its own where `restarts`."""

    def __init__(self, source: DeltaSource, *, accepts_loss: bool = False) -> None:
        self.source = source
        self.accepts_loss = accepts_loss
        self.position = START
        self.read = 0
        self.reports: list[tuple[str, str]] = []

    def next(self) -> list[list[list[int]]]:
        """The values of the next micro-batch, by unit and file."""
        planner = CommitPlanner([self.source], accepts_loss=self.accepts_loss)
        found = planner.next(
            self.position, {"s": self.read}, lambda cause, _, example: self.reports.append((cause, example))
        )
        self.position = found.positions
        self.read += sum(len(unit.files) for unit in found.units)
        folder = Path(self.source.folder)
        return [
            [pq.read_table(folder / file.path).column("v").to_pylist() for file in unit.files] for unit in found.units
        ]


def refusal(job: Job) -> str:
    with pytest.raises(UnreadableTable) as caught:
        job.next()
    return str(caught.value).replace(f"source 's': {job.source.folder}: ", "")


def test_a_new_job_reads_the_table_as_it_is_then_its_commits(path: Path) -> None:
    append(path, 1)
    append(path, 2)
    job = Job(source(path))
    assert job.next() == [[[1]], [[2]]]
    assert job.next() == []
    append(path, 3)
    append(path, 4)
    assert job.next() == [[[3]], [[4]]]
    assert job.position["s"].version == 3


def test_a_table_is_read_in_order_of_arrival_and_what_overlaps_together(path: Path) -> None:
    for moments in ((9, 8), (1, 3), (2, 5), (5, 6)):
        append(path, *moments)
    job = Job(source(path, max_files=1))
    assert [job.next() for _ in range(4)] == [[[[1, 3], [2, 5]]], [[[5, 6]]], [[[9, 8]]], []]


@pytest.mark.parametrize(
    ("start", "expected"),
    [("earliest", [[[1]], [[2]]]), ("latest", []), ("1", [[[2]]]), ("0", [[[1]], [[2]]]), ("2", [])],
)
def test_a_job_begins_where_it_is_told(path: Path, start: str, expected: list[list[list[int]]]) -> None:
    append(path, 1)
    append(path, 2)
    job = Job(source(path, start))
    assert job.next() == expected
    append(path, 3)
    assert job.next() == [[[3]]]


def test_a_job_that_begins_with_the_latest_version_reads_all_later_ones(path: Path, tmp_path: Path) -> None:
    append(path, 1)
    run = RunSettings(str(tmp_path / "state"))
    for made in range(2):  # a run that ends before there was a commit is continued
        planner = InputPlanner({"s": ToldSource("delta", source(path, "latest"))}, run)
        assert planner.latest(made) == 1
    assert not planner.read(1).by_source["s"].piece.units
    for version in (2, 3):
        append(path, version)
        assert planner.latest(version - 1) == version
        assert len(planner.read(version).by_source["s"].piece.units) == 1


def test_a_job_begins_with_the_first_commit_at_a_time_or_later(path: Path) -> None:
    for moment in (1, 2, 3):
        append(path, moment)
    times = [
        json.loads(commit_file(path, version).read_text().splitlines()[0])["commitInfo"]["timestamp"]
        for version in range(3)
    ]
    assert Job(source(path, f"@{times[1] * 1000}")).next() == [[[2]], [[3]]]
    assert Job(source(path, f"@{times[2] * 1000 + 1000}")).next() == []


def test_a_start_behind_the_newest_version_is_refused(path: Path) -> None:
    append(path, 1)
    assert refusal(Job(source(path, "5"))) == "is at version 0, before `start: 5`"


def test_limits_hold_between_commits_and_never_within_one(path: Path) -> None:
    for moment in (1, 2, 3):
        append(path, moment)
    job = Job(source(path, "0", max_files=2))
    assert [len(job.next()) for _ in range(3)] == [2, 1, 0]
    assert len(Job(source(path, "0", max_bytes=1)).next()) == 1


def test_a_compacted_table_is_read_once(path: Path) -> None:
    for moment in (1, 2):
        append(path, moment)
    job = Job(source(path))
    assert len(job.next()) == 2
    DeltaTable(path).optimize.compact()
    assert job.next() == []
    append(path, 3)
    assert job.next() == [[[3]]]


def test_deleted_rows_stop_the_job_and_name_the_version(path: Path) -> None:
    append(path, 1, 2)
    job = Job(source(path))
    job.next()
    DeltaTable(path).delete("v = 1")
    append(path, 3)
    assert refusal(job) == (
        "version 1 changes or deletes rows. A source reads what is added; `skip_changes: true` passes over such versions"
    )
    job.source = replace(job.source, skips_changes=True)
    assert job.next() == [[[3]]]
    assert job.reports == [("skipped_changes", "version 1")]


def test_new_columns_stop_the_job_unless_they_are_allowed(path: Path) -> None:
    append(path, 1)
    job = Job(source(path))
    job.next()
    append(path, 2, note="x")
    assert refusal(job) == "version 1 adds column 'note'; `schema_changes: add_columns` allows it"
    job.source = replace(job.source, adds_columns=True)
    assert job.next() == [[[2]]]
    assert list(job.position["s"].columns) == ["at", "v", "note"]


def test_a_column_of_another_type_stops_the_job(path: Path) -> None:
    append(path, 1)
    job = Job(source(path, adds_columns=True, skips_changes=True))
    job.next()
    write_deltalake(path, pa.table({"at": ["x"]}), mode="overwrite", schema_mode="overwrite")
    assert refusal(job) == "version 1 changes the type of column 'at', or removes it. Choose a new checkpoint"


def test_a_table_that_was_made_again_stops_the_job(path: Path) -> None:
    for moment in (1, 2, 3):
        append(path, moment)
    job = Job(source(path))
    job.next()
    shutil.rmtree(path)
    append(path, 1)
    assert refusal(job).startswith("version 2 was read and does not exist: the table was removed or made again")
    for moment in (2, 3, 4):
        append(path, moment)
    DeltaTable(path).alter.add_columns([Field("more", "string")])
    assert job.next() == [[[4]]]
    assert refusal(job) == "version 4 is of another table: it was made again. Choose a new checkpoint"


@pytest.mark.parametrize("is_planned_anew", [False, True])
def test_a_log_that_was_cleaned_up_is_a_loss(path: Path, is_planned_anew: bool) -> None:
    append(path, 1)
    job = Job(source(path))
    job.next()
    for moment in (2, 3, 4):
        append(path, moment)
    DeltaTable(path).create_checkpoint()
    for version in (0, 1, 2):
        commit_file(path, version).unlink()
    if is_planned_anew:  # where it begins is known, and not which columns the table had there
        job.position = {"s": replace(job.position["s"], columns={})}
    assert refusal(job) == (
        "the log no longer has version 1; its entries are removed after a time. To continue without what is lost:"
        " ensue run --accept-loss"
    )
    job.accepts_loss = True
    job.position = {"s": replace(job.position["s"], began=0, is_whole=True)}
    assert job.next() == []
    append(path, 5)
    assert job.next() == [[[5]]]
    assert [cause for cause, _ in job.reports] == ["lost"]
    assert (job.position["s"].began, job.position["s"].is_whole) == (0, True)  # as before the gap


def test_a_feature_that_comes_later_stops_the_job_by_name(path: Path) -> None:
    append(path, 1)
    job = Job(source(path))
    job.next()
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged"]}
    commit_file(path, 1).write_text(json.dumps({"protocol": protocol}))
    assert refusal(job) == "version 1 gives the table catalogManaged, which a source cannot read"


def test_a_run_that_ends_reads_what_was_there_at_its_start(path: Path) -> None:
    append(path, 1)
    planner = CommitPlanner([source(path, "0")])
    planner.fix_end()
    append(path, 2)
    found = planner.next(START, {}, lambda *_: None)
    assert [len(unit.files) for unit in found.units] == [1]
    assert planner.next(found.positions, {}, lambda *_: None).units == ()


def test_many_commits_without_rows_are_worth_noting(path: Path) -> None:
    append(path, 1)
    planner = CommitPlanner([source(path)])
    before = planner.next(START, {}, lambda *_: None).positions
    for _ in range(WORTH_NOTING):
        DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "10"})
    after = planner.next(before, {}, lambda *_: None)
    assert planner.is_worth_noting(before, after)
    assert not planner.is_worth_noting(after.positions, after)
