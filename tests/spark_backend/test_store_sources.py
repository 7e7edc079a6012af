"""Sources in a store: what a job lists, reads, archives and reports, without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import ensue
from job_engine.operator.step import run_step
from job_engine.place import RemotePath
from job_engine.sources.folder.listing import StoreWatch
from job_engine.sources.folder.pieces import FolderWork
from job_engine.sources.folder.settings import ListedSource
from job_engine.sources.listing.lister import InputPlanner, RunSettings
from job_engine.sources.listing.manifests import SOURCES, Manifest, Task, sources_of_text, sources_to_text
from job_engine.sources.reading import Reading
from job_engine.sources.task_reading import read_task
from job_engine.stores import RemoteStat
from job_engine.wire.packed_rows import HOME, Signal
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag
from querylang.errors import InputError
from tests.spark_backend.samples import PLAN
from tests.support.buckets import ledger_of, rows_of
from tests.support.folder_job import FolderJob
from tests.support.manifests import files_in, of_files
from tests.support.stores import StoreServer

LATER = 4_000_000_000_000_000_000
ROWS = "at,event,k,v,ts\n1.0,A,x,1.0,1.0\n2.0,B,x,2.0,2.0\n"


@dataclass(slots=True)
class Job:
    """A checkpoint on the disk and a source in the store; a stand-in for Spark asks and commits."""

    folder: Path
    settings: dict[str, object] = field(default_factory=dict)
    planner: InputPlanner | None = None
    end: int = 0

    def start(self, now: int = LATER) -> None:
        source = ListedSource("a", "s3://bucket/in", (".csv",), **self.settings)  # type: ignore[arg-type]
        self.planner = InputPlanner(of_files(source), RunSettings(str(self.folder)), lambda: now)

    def ask(self) -> Manifest | None:
        assert self.planner is not None
        number = self.planner.latest(self.end)
        return None if number == self.end else self.planner.read(number)

    def step(self) -> list[str]:
        """The paths that one micro-batch reads, from beginning to end."""
        manifest = self.ask()
        if manifest is None:
            return []
        self.end = manifest.number
        for log in ("offsets", "commits"):
            path = self.folder / log / str(self.end - 1)
            path.parent.mkdir(exist_ok=True)
            path.write_text("v1\n{}\n" + json.dumps({"manifest": self.end}))
        return [file.path for file in files_in(manifest)]


def test_files_are_those_of_a_local_folder(tmp_path: Path, store: StoreServer) -> None:
    for name in ("10.csv", "9.csv", "b.CSV", ".hidden.csv", "_no.csv", "c.txt", "day=1/x.csv", "deep/y.csv"):
        store.put(f"in/{name}", "x")
    store.put("inner/z.csv", "x")
    job = Job(tmp_path)
    job.start()
    assert job.step() == ["9.csv", "10.csv", "b.CSV", "day=1/x.csv"]


def test_all_folders_below_are_read_where_the_settings_say_so(tmp_path: Path, store: StoreServer) -> None:
    for name in ("1.csv", "deep/er/2 #%.csv", "_no/3.csv"):
        store.put(f"in/{name}", "x")
    job = Job(tmp_path, {"is_recursive": True})
    job.start()
    assert job.step() == ["1.csv", "deep/er/2 #%.csv"]


def test_a_young_file_is_read_when_it_is_old_enough(tmp_path: Path, store: StoreServer) -> None:
    store.put("in/1.csv", "x")
    job = Job(tmp_path, {"min_age": 5_000_000})
    job.start(now=0)
    assert job.step() == []
    job.start()
    assert job.step() == ["1.csv"]


def test_files_that_are_listed_together_are_merged_whatever_reads_them(
    tmp_path: Path, store: StoreServer, looked_up: list[str]
) -> None:
    text = "event E { float ts; string k; } query Q { inputs { E() key k within 60.0 wait 1.0; } find E:a -> E:b }"
    (tmp_path / "local").mkdir()
    for number in range(4):
        rows = "\n".join(["at,ts,k", *(f"{at},{at},x" for at in range(number + 1, 40, 7 - number)), ""])
        store.put(f"in/{number}.csv", rows)
        (tmp_path / "local" / f"{number}.csv").write_text(rows)
    source = {"path": "s3://bucket/in", "event": "E", "source_time": "ts", "options": {"maxFilesPerTrigger": 1}}
    job = FolderJob(tmp_path, text, {"in": source})
    first = job.step()
    assert first is not None
    assert [file.path for file in files_in(first)] == ["0.csv"]
    store.put("in/3.csv", "at,ts,k\n2.5,2.5,x\n50.0,50.0,x\n")  # written again before it is read
    (tmp_path / "local" / "3.csv").write_text("at,ts,k\n2.5,2.5,x\n50.0,50.0,x\n")
    job.start()
    assert [[file.path for file in files_in(manifest)] for manifest in job.run()] == [["1.csv"], ["3.csv"], ["2.csv"]]
    assert looked_up == ["0.csv", "1.csv", "2.csv", "3.csv", "3.csv"]
    job.step(Signal.FLUSH)
    found = ensue.replay(text, sorted((tmp_path / "local").iterdir()), source_time="ts")
    assert len(job.answer()[0]) == len(found.matches) > 20
    assert {what for _, _, what in job.answer()[2]} == {"received", "used"}


def test_a_later_run_reads_what_is_new(tmp_path: Path, store: StoreServer) -> None:
    store.put("in/1.csv", "x")
    job = Job(tmp_path)
    job.start()
    job.step()
    store.put("in/2.csv", "x")
    assert job.step() == ["2.csv"]
    job.start()
    assert job.step() == []


def test_an_object_that_is_written_again_is_reported_and_not_read_again(tmp_path: Path, store: StoreServer) -> None:
    store.put("in/1.csv", "x")
    job = Job(tmp_path)
    job.start()
    job.step()
    store.put("in/1.csv", "longer")
    manifest = job.ask()
    assert manifest is not None
    assert (files_in(manifest), manifest.reports) == ([], (("replaced", "a", 1, "1.csv"),))


@pytest.mark.parametrize(("after", "expected"), [("delete", []), ("archive", ["old/1.csv", "old/day=1/2.csv"])])
def test_committed_files_are_archived_or_deleted(
    tmp_path: Path, store: StoreServer, after: str, expected: list[str]
) -> None:
    for name in ("1.csv", "day=1/2.csv"):
        store.put(f"in/{name}", "x")
    job = Job(tmp_path, {"after": after, "archive": "s3://bucket/old"})
    job.start()
    job.step()
    assert len(store.keys()) == 2
    job.ask()
    assert store.keys() == expected


def test_an_object_of_the_archive_is_never_written_over(tmp_path: Path, store: StoreServer) -> None:
    store.put("old/1.csv", "another")
    store.put("in/1.csv", "x")
    job = Job(tmp_path, {"after": "archive", "archive": "s3://bucket/old"})
    job.start()
    job.step()
    job.ask()
    assert store.keys() == ["old/1-1.csv", "old/1.csv"]


def test_a_listing_that_takes_long_is_not_repeated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    listings = []
    times = iter([0.0, 0.0, 10.0, 12.0, 19.0, 21.0, 21.0, 21.5])

    def entries(_: RemotePath, *, is_recursive: bool) -> list[tuple[RemotePath, RemoteStat]]:
        listings.append(is_recursive)
        return []

    monkeypatch.setattr(RemotePath, "entries", entries)
    watch = StoreWatch(ListedSource("a", "s3://bucket/in", (".csv",)), lambda: next(times))
    for expected in (1, 1, 1, 2):
        watch.new_files(lambda _: False, LATER)
        assert len(listings) == expected


def read(manifest: Manifest, *, is_repeated: bool = False, accept_loss: bool = False) -> dict[object, int]:
    """The ledger of a step on what a worker reads of a manifest."""
    program = Program.of(PLAN, buckets=1)
    options = {
        "program": program.to_text(),
        SOURCES: sources_to_text(of_files(ListedSource("a", "s3://bucket/in", (".csv",)))),
        "readings": json.dumps({"a": Reading(name="a").to_text()}),
        "accept_loss": str(accept_loss).lower(),
    }
    task = Task({"a": FolderWork(tuple(files_in(manifest)))}, is_repeated=is_repeated)
    packed = [row["data"] for batch in read_task(options, task.to_text()) for row in batch.to_pylist()]
    rows = rows_of(list(run_step(program, HOME, None, packed, 0).rows), Tag.LEDGER)
    return {(source, what): count for (_, source, what), count in ledger_of(rows).items()}


def planned(folder: Path) -> Manifest:
    job = Job(folder)
    job.start()
    manifest = job.ask()
    assert manifest is not None
    return manifest


def test_a_worker_reads_what_the_manifest_says(tmp_path: Path, store: StoreServer) -> None:
    store.put("in/day=1/a #%.csv", ROWS)
    assert read(planned(tmp_path))["day=1/a #%.csv", "received"] == 2


def test_a_repeated_micro_batch_refuses_an_object_that_was_replaced(tmp_path: Path, store: StoreServer) -> None:
    store.put("in/1.csv", ROWS)
    manifest = planned(tmp_path)
    store.put("in/1.csv", ROWS + "3.0,A,x,1.0,1.0\n")
    with pytest.raises(InputError, match=r"s3://bucket/in/1.csv: .*it had 48 bytes and has 64.*--accept-loss"):
        read(manifest, is_repeated=True)
    assert read(manifest, is_repeated=True, accept_loss=True)["1.csv", "lost"] == 1


def test_an_object_that_was_removed_stops_the_job(tmp_path: Path, store: StoreServer) -> None:
    store.put("in/1.csv", ROWS)
    manifest = planned(tmp_path)
    store.clear()
    with pytest.raises(InputError, match="now there is none: No such file or directory"):
        read(manifest)


def test_an_object_that_is_not_a_table_is_discarded(tmp_path: Path, store: StoreServer) -> None:
    store.put("in/1.csv", b"at,event\n\xff\xfe" * 3)
    store.put("in/2.csv", ROWS)
    assert read(planned(tmp_path))["2.csv", "received"] == 2


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "AccessDenied", "the store refuses access: check credentials and permissions"),
        (503, "SlowDown", "the store failed"),
    ],
)
def test_a_store_that_refuses_stops_the_job_and_discards_nothing(
    tmp_path: Path, store: StoreServer, status: int, code: str, expected: str
) -> None:
    store.put("in/1.csv", ROWS)
    manifest = planned(tmp_path)
    store.refuse = lambda _method, path: (status, code) if path.endswith("1.csv") else None
    with pytest.raises(InputError, match=f"s3://bucket/in/1.csv: {expected}"):
        read(manifest)


def test_options_reach_workers_and_are_not_shown() -> None:
    source = ListedSource("a", "s3://bucket/in", (".csv",), store={"secret_key": "very-secret-key"})
    assert "very" not in repr(source)
    assert sources_of_text(sources_to_text(of_files(source)))["a"].own.place == source.place
