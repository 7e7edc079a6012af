"""Over finished files a job answers what a replay of them answers, however they are cut into micro-batches."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from job_engine.sources.folder.pieces import FolderPiece
from job_engine.sources.listing import manifests as kept_manifests
from job_engine.sources.listing.manifests import Manifest
from job_engine.wire.packed_rows import Signal
from job_engine.wire.tagged_rows import Tag
from runtime.instants import SECOND
from tests.support.buckets import rows_of
from tests.support.folder_job import Answer, FolderJob, files_of, written
from tests.support.manifests import files_in

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
SOURCE = {"event": "Reading", "arrival": "at", "source_time": "ts"}
START = 1_700_000_000


def piece(manifest: Manifest) -> FolderPiece:
    found: FolderPiece = manifest.by_source["in"].piece
    return found


class Folder:
    """Random files of one kind of folder."""

    def __init__(self, folder: Path, seed: int, kind: str, format_: str = "csv") -> None:
        self.random = np.random.default_rng(seed)
        self.folder = folder
        self.kind = kind
        self.format = format_
        folder.mkdir()

    def moments(self, start: float, length: float) -> list[float]:
        count = int(self.random.integers(3, 25))
        return sorted(np.round(start + self.random.random(count) * length, 1).tolist())

    def fill(self) -> None:
        match self.kind:
            case "parallel":
                for hour in range(4):
                    for machine in range(4):
                        self.write(f"m{machine}-{hour}", self.moments(hour * 60, 60))
            case "machines":
                for machine in range(6):
                    self.write(f"m{machine}", self.moments(0, 240))
            case "hourly":
                for hour in range(8):
                    self.write(f"h{hour}", self.moments(hour * 60, 60))
            case "overlapping":
                for number in range(9):
                    self.write(f"o{number}", self.moments(self.random.random() * 200, 80))
            case "unsorted":
                for number in range(7):
                    moments = self.moments(number * 30, 60)
                    self.random.shuffle(moments)
                    self.write(f"u{number}", moments)
            case "single":
                self.write("all", self.moments(0, 120))

    def write(self, name: str, moments: list[float]) -> None:
        sensors = self.random.integers(0, 3, len(moments)).tolist()
        values = self.random.integers(0, 9, len(moments)).tolist()
        rows = [
            {"at": START + at, "ts": START + at - 0.5, "sensor": f"s{sensor}", "value": float(value)}
            for at, sensor, value in zip(moments, sensors, values, strict=True)
        ]
        # a file is written when its last record is known, or in an order that says nothing
        modified = int(max(moments)) if self.random.random() < 0.5 else int(self.random.integers(1, 4))
        file = self.folder / f"{name}.{self.format}"
        is_broken = self.random.random() < 0.2
        match self.format:
            case "csv":
                lines = "".join(f"{row['at']},{row['ts']},{row['sensor']},{row['value']}\n" for row in rows)
                written(file, "at,ts,sensor,value\n" + lines + "never,1.0,s0,2.0\n" * is_broken, modified)
            case "json":
                lines = "".join(f"{json.dumps(row)}\n" for row in rows)
                written(file, lines + '{"at": "never"}\n' * is_broken, modified)
            case "parquet":
                pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=5)
                os.utime(file, (modified, modified))


def replayed(files: list[Path], text: str = TEXT) -> Answer:
    found = ensue.replay(text, files, arrival="at", source_time="ts")
    account = {
        (row["query"], row["source"], row["what"]): row["count"]
        for row in found.ledger.to_dict("records")
        if row["count"]
    }
    discarded = sorted((row["source"], row["reason"]) for row in found.discarded.to_dict("records"))
    return sorted(row["match_id"] for row in found.match_objects()), discarded, account


KINDS = ["parallel", "machines", "hourly", "overlapping", "unsorted", "single"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_random_limits_and_restarts_give_what_a_replay_gives(tmp_path: Path, kind: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    format_ = ("csv", "json", "parquet")[seed % 3]
    Folder(tmp_path / "in", seed, kind, format_).fill()
    limits: list[dict[str, int]] = [
        {"maxFilesPerTrigger": int(random.integers(1, 5))},
        {"maxBytesPerTrigger": int(random.integers(1, 2000))},
        {},
    ]
    options = limits[int(random.integers(0, 3)) if seed else 0]
    job = FolderJob(tmp_path, TEXT, {"in": {**SOURCE, "format": format_, "options": options}})
    while True:
        if random.random() < 0.4:
            job.start()  # the run before was killed
            if random.random() < 0.5:
                job.plan()  # and this one too, before Spark knew of what it has planned
                job.start()
        if job.step() is None:
            break
    job.step(Signal.FLUSH)
    expected = replayed(files_of(tmp_path / "in"))
    assert job.answer() == expected
    assert len(expected[0]) > 3
    assert "before_clock" not in Counter(what for _, _, what in expected[2])


def hours_of_machines(tmp_path: Path, **settings: object) -> Answer:
    """The files of an hour are listed one after the other, but for those of the first hour."""
    (tmp_path / "in").mkdir()
    text = TEXT.replace("string sensor;", "string sensor; string machine;")
    job = FolderJob(tmp_path, text, {"in": {**SOURCE, **settings}})
    for hour in range(3):
        for machine in ("east", "west"):
            moments = [START + hour * 60 + second for second in range(1, 59, 6)]
            rows = "".join(f"{at},{at},s,{at % 7}.0,{machine}\n" for at in moments)
            written(tmp_path / "in" / f"{hour}-{machine}.csv", f"at,ts,sensor,value,machine\n{rows}", hour + 1)
            if hour:
                job.run()
    job.step(Signal.FLUSH)
    return job.answer()


def test_a_file_that_is_listed_later_joins_at_the_clock_of_its_source(tmp_path: Path) -> None:
    _, _, account = hours_of_machines(tmp_path)
    assert sum(count for (_, _, what), count in account.items() if what == "before_clock") == 2 * 9 * 2


def test_each_value_of_a_partition_column_has_a_clock_of_its_own(tmp_path: Path) -> None:
    _, _, account = hours_of_machines(tmp_path, partition="machine")
    assert {what for _, _, what in account} == {"received", "used"}


def test_a_restart_knows_the_files_that_wait_and_looks_nothing_up_again(tmp_path: Path, looked_up: list[str]) -> None:
    Folder(tmp_path / "in", 3, "machines").fill()
    job = FolderJob(tmp_path, TEXT, {"in": {**SOURCE, "options": {"maxFilesPerTrigger": 1}}})
    (tmp_path / "in" / "broken.csv").write_text("")
    first = job.step()
    assert first is not None
    assert len(piece(first).waiting) == 6
    assert sorted(looked_up) == ["broken.csv", *(f"m{number}.csv" for number in range(6))]
    looked_up.clear()
    job.start()
    second = job.step()
    assert second is not None
    assert second.unread["in"] is not None
    times = {row["query"]: row["waits_for"] for row in rows_of(job.tagged, Tag.TIMELINE)}
    assert times == {name: [f"in: {second.unread['in'].path}"] for name in ("Rising", "Alone")}
    left = job.run()
    assert looked_up == []
    assert [len(files_in(manifest)) for manifest in left] == [1] * 5
    assert left[-1].unread == {"in": None}


def test_a_file_that_waits_and_is_removed_holds_up_nothing(tmp_path: Path) -> None:
    Folder(tmp_path / "in", 3, "machines").fill()
    job = FolderJob(tmp_path, TEXT, {"in": {**SOURCE, "options": {"maxFilesPerTrigger": 1}}})
    first = job.step()
    assert first is not None
    gone = piece(first).waiting[0].file.path
    (tmp_path / "in" / gone).unlink()
    job.start()
    left = job.run()
    assert [path for manifest in left for path in piece(manifest).dropped] == [gone]
    assert "lost" in {cause for manifest in left for cause, *_ in manifest.reports}
    job.step(Signal.FLUSH)
    ids, _, _ = job.answer()
    assert ids == replayed(files_of(tmp_path / "in"))[0]


def test_a_file_that_waits_and_is_written_again_is_looked_at_again(tmp_path: Path, looked_up: list[str]) -> None:
    folder = Folder(tmp_path / "in", 3, "machines")
    folder.fill()
    folder.write("last", folder.moments(2000, 60))
    folder.write("later", folder.moments(1000, 60))
    job = FolderJob(tmp_path, TEXT, {"in": {**SOURCE, "options": {"maxFilesPerTrigger": 1}}})
    job.step()
    looked_up.clear()
    folder.write("last", folder.moments(300, 40))
    second = job.step()
    assert looked_up == ["last.csv"]
    assert second is not None
    (again,) = piece(second).waiting
    assert START + 300 <= again.first / SECOND < START + 340
    job.start()
    left = job.run()
    assert [file.path for manifest in left[-2:] for file in files_in(manifest)] == ["last.csv", "later.csv"]
    assert looked_up == ["last.csv"]
    job.step(Signal.FLUSH)
    assert job.answer() == replayed(files_of(tmp_path / "in"))


def test_the_list_keeps_the_files_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_manifests, "KEPT", 2)
    Folder(tmp_path / "in", 1, "parallel").fill()
    job = FolderJob(tmp_path, TEXT, {"in": {**SOURCE, "options": {"maxFilesPerTrigger": 1}}})
    while job.step() is not None:
        job.start()
    job.step(Signal.FLUSH)
    assert (tmp_path / "state" / "ensue" / "inputs" / "read.json").exists()
    assert job.answer() == replayed(files_of(tmp_path / "in"))
