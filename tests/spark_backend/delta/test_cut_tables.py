"""Over a Delta table a job answers what a replay of its rows answers, however commits are cut into micro-batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import ensue
from job_engine.wire.packed_rows import Signal
from job_engine.wire.tagged_rows import Tag
from tests.support.buckets import rows_of
from tests.support.folder_job import FolderJob

TEXT = """event Reading { float ts; string sensor; float value; }
query Rising {
    inputs { Reading() key sensor within 60.0 wait 2.0; }
    find Reading:a -> Reading:b where b.value > a.value
}
query Alone {
    inputs { Reading() key sensor within 20.0; }
    find Reading:a -> wait(3.0) as w without Reading:b
}
"""
START = 1_700_000_000


class Table:
    """A table of random commits whose arrivals overlap; `has_statistics`: of the arrival column."""

    def __init__(self, path: Path, seed: int, *, has_statistics: bool = True, is_split: bool = False) -> None:
        self.path = path
        self.random = np.random.default_rng(seed)
        self.configuration = {} if has_statistics else {"delta.dataSkippingNumIndexedCols": "0"}
        self.partitions = ["sensor"] if is_split else []
        self.rows: list[dict[str, object]] = []

    def append(self, commits: int, start: float = 0, length: float = 200) -> None:
        for _ in range(commits):
            first = start + self.random.random() * length
            count = int(self.random.integers(3, 20))
            moments = np.round(first + self.random.random(count) * 80, 3) + np.arange(count) * 1e-6
            self.write([(at, f"s{self.random.integers(0, 3)}") for at in moments.tolist()])

    def write(self, moments: Sequence[tuple[float, str]]) -> None:
        """A commit."""
        rows = [
            {
                "at": pa.scalar(round((START + at) * 1_000_000), pa.timestamp("us", "UTC")).as_py(),
                "ts": START + at - 0.5,
                "sensor": sensor,
                "shard": int(sensor[1:]),
                "value": float(self.random.integers(0, 9)),
            }
            for at, sensor in moments
        ]
        self.rows += rows
        write_deltalake(
            self.path,
            pa.Table.from_pylist(rows),
            mode="append",
            partition_by=self.partitions,
            configuration=self.configuration,
        )


def job(path: Path, options: dict[str, int], **settings: object) -> FolderJob:
    own = {"format": "delta", "event": "Reading", "arrival": "at", "source_time": "ts", "options": options}
    return FolderJob(path, TEXT, {"in": {**own, **settings}})


def summary(job: FolderJob) -> tuple[list[tuple[str, ...]], dict[tuple[str, str], int]]:
    """The matches by the times and values of their events, since rows have other coordinates in a replay; the account."""
    matches = [
        (str(row["query"]), *sorted(json.dumps(item["fields"], sort_keys=True) for item in row["members"].values()))  # type: ignore[attr-defined]
        for row in rows_of(job.tagged, Tag.MATCH)
    ]
    account: dict[tuple[str, str], int] = {}
    for (query, _, what), count in job.answer()[2].items():
        account[query, what] = account.get((query, what), 0) + count
    return sorted(matches), account


def replayed(table: Table) -> tuple[list[tuple[str, ...]], dict[tuple[str, str], int]]:
    found = ensue.replay(TEXT, pa.Table.from_pylist(table.rows), arrival="at", source_time="ts")
    matches = [
        (row["query"], *sorted(json.dumps(item["fields"], sort_keys=True) for item in row["members"].values()))
        for row in found.match_objects()
    ]
    account: dict[tuple[str, str], int] = {}
    for row in found.ledger.to_dict("records"):
        if row["count"]:
            account[row["query"], row["what"]] = account.get((row["query"], row["what"]), 0) + row["count"]
    return sorted(matches), account


@pytest.mark.parametrize("column", ["sensor", "shard"])
def test_each_value_of_a_partition_column_has_a_clock_of_its_own(tmp_path: Path, column: str) -> None:
    """The commits of a minute come one after the other; the column is one of the table's partitions, or is not."""
    (tmp_path / "in").mkdir()
    table = Table(tmp_path / "in", 1, is_split=True)
    for value in ("s0", "s1"):
        table.write([(at, value) for at in range(1, 59, 6)])
    work = job(tmp_path, {}, partition=column)
    work.run()
    for minute in (60, 120):
        for value in ("s0", "s1"):
            table.write([(minute + at, value) for at in range(1, 59, 6)])
            work.run()
    work.step(Signal.FLUSH)
    assert summary(work) == replayed(table)


@pytest.mark.parametrize("seed", range(15))
def test_random_limits_and_restarts_give_what_a_replay_gives(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    (tmp_path / "in").mkdir()
    table = Table(tmp_path / "in", seed, has_statistics=seed % 4 > 0, is_split=seed % 5 == 1)
    is_snapshot = seed % 3 == 0
    table.append(9, length=2000 if is_snapshot else 200)
    option, most = (("maxFilesPerTrigger", 3), ("maxBytesPerTrigger", 4000))[seed % 2]
    work = job(tmp_path, {option: int(random.integers(1, most))}, start="earliest" if is_snapshot else "0")
    steps = 0
    while True:
        if random.random() < 0.4:
            work.start()  # the run before was killed
            if random.random() < 0.5:
                work.plan()  # and this one too, before Spark knew of what it has planned
                work.start()
        if work.step() is None:
            break
        steps += 1
        if steps == 2:
            table.append(3, 2100, 60)  # behind all that is listed
    work.step(Signal.FLUSH)
    expected = replayed(table)
    assert summary(work) == expected
    assert "before_clock" not in {what for _, what in expected[1]}
    assert len(expected[0]) > 10
    assert steps > 3
