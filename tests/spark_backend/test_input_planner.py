"""What a job reads, decided without Spark: order, limits, ends of runs, restarts, and what is left behind."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from job_engine.local_path import LocalPath
from job_engine.sources.folder import after_reading, planning
from job_engine.sources.folder.listing import FileStamp, alternatives, is_hidden, name_filter
from job_engine.sources.folder.pieces import TakenFile, split
from job_engine.sources.folder.settings import ListedSource
from job_engine.sources.listing.batch_log import DamagedManifest, inputs_folder
from job_engine.sources.listing.manifests import KEPT, Manifest, Task, tasks_of
from runtime.file_forms import natural_key
from tests.support.listed_job import LATER, Job, paths
from tests.support.manifests import files_in, of_files, with_files


def causes(manifest: Manifest | None) -> list[tuple[str, int, str]]:
    return [] if manifest is None else [(cause, count, example) for cause, _, count, example in manifest.reports]


def test_new_files_come_by_time_then_by_natural_name(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.add("10.csv", "9.csv", "b.csv", modified=5)
    job.add("z.csv", modified=3)
    job.start()
    manifest = job.step()
    assert paths(manifest) == ["z.csv", "9.csv", "10.csv", "b.csv"]
    assert manifest is not None
    assert [file.number for file in files_in(manifest)] == [1, 2, 3, 4]
    job.add("a.csv", modified=1)
    later = job.step()
    assert later is not None
    assert [(file.path, file.number) for file in files_in(later)] == [("a.csv", 5)]
    assert job.step() is None


def test_by_name_a_later_file_with_a_smaller_name_is_reported(tmp_path: Path) -> None:
    job = Job(tmp_path, {"order": "name"})
    job.add("9.csv", modified=9)
    job.add("10.csv", modified=1)
    job.start()
    assert paths(job.step()) == ["9.csv", "10.csv"]
    job.add("2.csv")
    assert causes(job.step()) == [("smaller_name", 1, "2.csv after 10.csv")]


def test_natural_order_compares_folders_and_long_digits_without_numbers() -> None:
    names = ["10", "9", "a/10", "a/9", "a.csv", "01", "1", "9" * 5000, "1" + "0" * 5000]
    assert sorted(names, key=natural_key) == [
        "01", "1", "9", "10", "9" * 5000, "1" + "0" * 5000, "a/9", "a/10", "a.csv",
    ]  # fmt: skip


def test_limits_are_those_of_each_source(tmp_path: Path) -> None:
    job = Job(tmp_path, {"max_files": 3, "max_bytes": 10}, ("a", "b"))
    job.add("1.csv", "2.csv", "3.csv", "4.csv", source="a", text="xxxx")
    job.add("1.csv", "2.csv", source="b", text="x" * 11)
    job.start()
    assert [paths(manifest) for manifest in job.steps()] == [
        ["1.csv", "2.csv", "1.csv"],
        ["3.csv", "4.csv", "2.csv"],
    ]


def test_a_run_that_ends_reads_what_is_there_at_its_start_and_then_sends_its_signal_alone(tmp_path: Path) -> None:
    job = Job(tmp_path, {"max_files": 2})
    job.add("1.csv", "2.csv", "3.csv")
    job.start(at_end="flush", is_once=True)
    job.add("0.csv", "4.csv", modified=0)
    found = [(paths(manifest), manifest.signal) for manifest in job.steps()]
    assert found == [(["1.csv", "2.csv"], None), (["3.csv"], None), ([], "flush")]
    job.start(at_end="flush", is_once=True)
    assert [(paths(manifest), manifest.signal) for manifest in job.steps()] == [
        (["0.csv", "4.csv"], None),
        ([], "flush"),
    ]


def test_a_run_with_nothing_new_sends_no_signal_again(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.start(at_end="flush", is_once=True)
    assert list(job.steps()) == []
    job.add("1.csv")
    job.start(at_end="flush", is_once=True)
    assert [manifest.signal for manifest in job.steps()] == [None, "flush"]
    for signal in ("flush", "catch-up"):
        job.note(needs_catch_up=True)
        job.start(at_end=signal, is_once=True)
        assert list(job.steps()) == []


@pytest.mark.parametrize("needs", [False, True])
def test_sources_catch_up_only_if_one_is_behind(tmp_path: Path, needs: bool) -> None:
    job = Job(tmp_path)
    job.add("1.csv")
    job.note(needs_catch_up=needs)
    job.start(at_end="catch-up", is_once=True)
    assert [manifest.signal for manifest in job.steps()] == [None, "catch-up"][: 1 + needs]


def test_a_signal_of_a_killed_run_is_dropped_unless_spark_knows_it(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.add("1.csv")
    job.start(at_end="flush", is_once=True)
    job.step()
    signal = job.ask()  # and killed before Spark wrote it down
    assert signal is not None
    assert signal.signal == "flush"
    job.add("2.csv")
    job.start(at_end="flush", is_once=True)
    assert [(paths(manifest), manifest.signal) for manifest in job.steps()] == [(["2.csv"], None), ([], "flush")]


def test_a_run_with_timers_begins_with_a_signal_even_without_files(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.start(at_start="start")
    assert [manifest.signal for manifest in job.steps()] == ["start"]
    job.add("1.csv")
    assert [(paths(manifest), manifest.signal) for manifest in job.steps()] == [(["1.csv"], None)]
    job.start(at_start="start")
    assert [(paths(manifest), manifest.signal) for manifest in job.steps()] == [([], "start")]


def test_a_manifest_that_spark_knows_is_kept_and_another_one_made_anew(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.add("1.csv")
    job.start()
    first = job.step()
    job.add("2.csv")
    assert paths(job.ask()) == ["2.csv"]
    assert paths(job.ask()) == ["2.csv"]
    job.add("0.csv", modified=0)
    job.start()
    assert job.planner is not None
    assert job.planner.read(1) == first
    assert job.planner.is_repeated(1)
    assert paths(job.step()) == ["0.csv", "2.csv"]
    assert not job.planner.is_repeated(2)


def test_a_missing_or_damaged_manifest_is_one_clear_line(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.add("1.csv")
    job.start()
    job.step()
    file = inputs_folder(tmp_path / "state") / "manifests" / "0000000001.json"
    file.write_text("{")
    job.start()
    with pytest.raises(DamagedManifest, match=r"^/.*/0000000001.json: is damaged: .* Restore the whole checkpoint"):
        job.step()
    file.unlink()
    job.start()
    with pytest.raises(DamagedManifest, match=r"^/.*/0000000001.json: is missing"):
        job.step()


NAMES = [
    "a[1].csv",
    "b{1,2}.csv",
    "c?.csv",
    "d*.csv",
    "e\\.csv",
    "f\n.csv",
    "g %41#:.csv",
    "ü.csv",
    "h\udcff.csv",
    "I.CSV",
]


def test_any_legal_name_is_read_once(tmp_path: Path) -> None:
    job = Job(tmp_path / "br[1]*{a,b}")
    for name in NAMES:
        job.add(name)
    job.add("_hidden.csv", ".hidden.csv", "copy.csv._COPYING_", "other.txt")
    job.start()
    assert sorted(paths(job.step())) == sorted(NAMES)
    assert job.step() is None
    job.start()
    assert job.step() is None


def test_only_files_are_read_and_the_rest_is_reported(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.add("1.csv", "folder.csv/2.csv", "plain/3.csv", "day=1/4.csv")
    os.mkfifo(tmp_path / "a" / "pipe.csv")
    (tmp_path / "a" / "nowhere.csv").symlink_to("missing")
    job.start()
    manifest = job.step()
    assert paths(manifest) == ["1.csv", "day=1/4.csv"]
    assert causes(manifest) == [
        ("not_a_file", 4, "plain: is a folder; `recursiveFileLookup: true` reads what is in it")
    ]
    assert job.step() is None


def test_folders_below_are_read_if_asked_for_and_a_loop_of_links_ends(tmp_path: Path) -> None:
    job = Job(tmp_path, {"is_recursive": True})
    job.add("1.csv", "b/2.csv", "b/c/3.csv", "_no/4.csv")
    (tmp_path / "a" / "b" / "again").symlink_to(tmp_path / "a")
    job.start()
    assert sorted(paths(job.step())) == ["1.csv", "b/2.csv", "b/c/3.csv"]


def test_a_folder_that_has_not_changed_is_not_listed_again_for_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    scandir = os.scandir

    def counted(path: Path) -> object:
        listed.append(Path(path).name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    job = Job(tmp_path)
    job.add("1.csv", "day=1/1.csv")
    job.start()
    for _ in range(59):
        job.step()
    assert listed == ["a", "day=1"]
    job.add("day=1/2.csv")
    assert paths(job.step()) == ["day=1/2.csv"]
    assert listed == ["a", "day=1", "day=1"]
    job.step()
    assert listed[3:] == ["a"]


def test_a_file_that_cannot_be_archived_is_reported_and_neither_read_again_nor_lost(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    job = Job(tmp_path, {"after": "archive", "archive": str(archive)})
    archive.write_text("not a folder")
    job.add("1.csv")
    job.start()
    job.step()
    assert [cause for cause, *_ in causes(job.step())] == ["not_settled"]
    assert job.step() is None
    job.settings["after"] = "keep"
    for _ in range(2):
        job.start()
        assert job.step() is None
    archive.unlink()
    job.settings["after"] = "archive"
    job.start()
    assert job.step() is None
    assert (archive / "1.csv").exists()


def test_a_run_that_has_ended_archives_its_last_files_and_keeps_a_manifest_that_is_not_committed(
    tmp_path: Path,
) -> None:
    archive = tmp_path / "archive"
    job = Job(tmp_path, {"after": "archive", "archive": str(archive)})
    job.add("1.csv")
    job.start()
    job.step()
    job.add("2.csv")
    job.ask()
    job.start()
    assert job.planner is not None
    assert job.planner.finish() == []
    assert [file.name for file in archive.iterdir()] == ["1.csv"]
    assert paths(job.planner.read(2)) == ["2.csv"]


def test_a_file_is_read_when_it_is_old_enough(tmp_path: Path) -> None:
    job = Job(tmp_path, {"min_age": 5_000_000})
    job.add("old.csv", modified=1)
    job.add("young.csv", modified=LATER // 10**9 + 1)
    job.start()
    assert paths(job.step()) == ["old.csv"]
    empty = [job.step() for _ in range(4)]
    assert empty == [None] * 4
    assert [paths(job.step()) for _ in range(3)].count(["young.csv"]) == 1


def test_a_file_that_has_grown_or_was_replaced_is_reported_once(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.add("1.csv", "2.csv")
    job.start()
    job.step()
    with (tmp_path / "a" / "1.csv").open("a") as file:
        file.write("more")
    (tmp_path / "a" / "new").write_text("y")
    (tmp_path / "a" / "new").rename(tmp_path / "a" / "2.csv")
    assert causes(job.step()) == [("grown", 1, "1.csv"), ("replaced", 1, "2.csv")]
    assert job.step() is None
    job.start()
    assert job.step() is None


def test_the_list_is_bounded_by_what_the_folder_holds(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.start()
    for number in range(4 * KEPT):
        job.add(f"{number}.csv", modified=number)
        job.step()
        (tmp_path / "a" / f"{number - 5}.csv").unlink(missing_ok=True)
    inputs = inputs_folder(tmp_path / "state")
    assert len(list((inputs / "manifests").iterdir())) <= 2 * KEPT
    assert len(json.loads((inputs / "read.json").read_text())["sources"]["a"]["memory"]["files"]) <= KEPT
    job.start()
    assert job.step() is None


def test_files_of_a_folder_that_is_not_mounted_for_a_moment_are_not_read_again(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.add("kept.csv", modified=1)
    job.start()
    for number in range(2 * KEPT - 1):
        job.add(f"{number}.csv", modified=number)
        job.step()
    job.add("last.csv", modified=10**6)
    (tmp_path / "a" / "kept.csv").rename(tmp_path / "kept")
    job.step()
    (tmp_path / "kept").rename(tmp_path / "a" / "kept.csv")
    job.start()
    assert job.step() is None


def test_files_on_a_device_that_is_not_mounted_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, sources=("a", "b"))
    devices = {"a": 1, "b": 2}
    monkeypatch.setattr(planning, "_device", lambda source: devices[source.name])
    job.add("kept.csv", source="b")
    job.start()
    job.step()
    devices["b"] = 1
    (tmp_path / "b" / "kept.csv").rename(tmp_path / "kept")
    for number in range(4 * KEPT):
        job.add(f"{number}.csv", modified=number)
        job.step()
    (tmp_path / "kept").rename(tmp_path / "b" / "kept.csv")
    job.start()
    assert job.step() is None


@pytest.mark.parametrize("after", ["archive", "delete"])
def test_files_of_an_interrupted_micro_batch_go_and_are_not_told_as_lost(tmp_path: Path, after: str) -> None:
    job = Job(tmp_path, {"after": after, "archive": str(tmp_path / "archive")})
    job.add("1.csv")
    job.start(is_once=True)
    job.step()  # killed here
    job.start(is_once=True)
    assert job.step() is None
    assert not list((tmp_path / "a").iterdir())


@pytest.mark.parametrize("is_other_file_system", [False, True])
def test_a_new_file_with_the_name_of_one_that_is_being_archived_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_other_file_system: bool
) -> None:
    job = Job(tmp_path, {"after": "archive", "archive": str(tmp_path / "archive")})
    move = Path.rename

    def rename(file: Path, target: Path) -> None:
        if is_other_file_system:
            monkeypatch.setattr(LocalPath, "copy_to", lambda *_: (target.write_text("x"), replace(file)))
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        move(file, target)
        replace(file)

    def replace(file: Path) -> None:
        (tmp_path / "draft").write_text("new")
        move(tmp_path / "draft", file)

    job.add("1.csv")
    job.start()
    job.step()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        patched.setattr(after_reading, "publish", lambda _: None)
        job.ask()
    job.start()
    assert paths(job.step()) == ["1.csv"]


def test_what_was_read_is_archived_when_it_is_committed(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    job = Job(tmp_path, {"after": "archive", "archive": str(archive), "is_recursive": True})
    job.add("1.csv", "day/2.csv")
    (archive / "day").mkdir(parents=True)
    (archive / "day" / "2.csv").write_text("another")
    job.start()
    job.ask()
    assert not (archive / "1.csv").exists()
    job.step()
    assert job.step() is None
    assert sorted(str(file.relative_to(archive)) for file in archive.rglob("*.csv")) == [
        "1.csv",
        "day/2-1.csv",
        "day/2.csv",
    ]
    job.add("1.csv", text="new")
    assert paths(job.step()) == ["1.csv"]
    job.start()
    assert job.step() is None
    assert (archive / "1-1.csv").read_text() == "new"


def test_what_was_read_is_deleted_also_after_a_kill_but_not_what_has_grown(tmp_path: Path) -> None:
    job = Job(tmp_path, {"after": "delete"})
    job.add("1.csv", "2.csv")
    job.start()
    job.step()  # killed here
    with (tmp_path / "a" / "2.csv").open("a") as file:
        file.write("more")
    job.start()
    assert causes(job.step()) == [("grown", 1, "2.csv")]
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["2.csv"]
    for _ in range(2):
        job.start()
        assert job.step() is None
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["2.csv"]


def test_patterns_of_names_are_those_of_spark() -> None:
    assert alternatives("*.{csv,{a,b}c}") == ["*.csv", "*.ac", "*.bc"]
    assert alternatives("a{b") == ["a{b"]
    fits = name_filter(ListedSource("a", "/", (".csv",), pattern="x[0-9]*.{csv,txt}"))
    assert [name for name in ("x1.csv", "x22.txt", "y1.csv", "x1.CSV") if fits(name)] == ["x1.csv", "x22.txt"]
    assert [name for name in ("_a", ".a", "_a=1", "a_") if not is_hidden(name)] == ["_a=1", "a_"]


def test_tasks_are_of_equal_size_and_each_file_is_in_one() -> None:
    files = [
        TakenFile("a", number, str(number), FileStamp(size << 20, 0, 0))
        for number, size in enumerate([9, 1, 1, 1, 8, 1])
    ]
    assert [sum(file.stamp.size >> 20 for file in share) for share in split(files, 2)] == [11, 10]
    assert split([], 4) == []
    sources = of_files(ListedSource("a", "/", (".csv",)))
    manifest = with_files(1, tuple(files), signal="flush")
    tasks = tasks_of(manifest, 2, sources, unproven=["a", "b"], is_repeated=True)
    assert sorted(file.number for task in tasks[:2] for file in task.work["a"].files) == [0, 1, 2, 3, 4, 5]
    assert [Task.of_text(task.to_text(), sources) for task in tasks[:2]] == tasks[:2]
    assert (tasks[0].work["a"].earlier, tasks[2].signal) == (tuple(files), "flush")


def test_a_run_that_only_repeats_plans_nothing_and_leaves_new_files_to_the_next_one(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.add("1.csv")
    job.start()
    assert paths(job.step()) == ["1.csv"]
    job.add("2.csv")
    job.start(is_once=True, only_repeats=True)
    assert job.step() is None
    job.start()
    assert paths(job.step()) == ["2.csv"]
