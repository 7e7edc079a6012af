"""Files are on the disk before anything that depends on them: synced, renamed, their folders synced."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from job_engine import durable_files
from job_engine.durable_files import NewFolders, make_checkpoint, make_folder, make_kept_folder, write_durably
from job_engine.job.checkpoint.job_folder import BatchFiles, JobFolder
from job_engine.local_path import LocalPath
from job_engine.sinks.kinds import MicroBatch, publishing, writing
from job_engine.sources.folder.after_reading import Settled, move_back, settle
from job_engine.sources.folder.listing import FileStamp
from job_engine.sources.folder.pieces import FolderMemory, ReadFile
from job_engine.sources.folder.settings import ListedSource
from querylang.errors import InputError
from tests.support.sinks import sink_of


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What is synced and renamed, by name, in order."""
    found: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def record_sync(number: int) -> None:
        found.append("sync " + Path(f"/proc/self/fd/{number}").readlink().name)
        fsync(number)

    def record_rename(path: Path, target: Path) -> Path:
        found.append(f"rename {target.name}")
        return replace(path, target)

    monkeypatch.setattr(durable_files, "_ON_DISK", {tmp_path})
    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(Path, "replace", record_rename)
    return found


def test_a_file_is_synced_then_renamed_then_its_folder_is_synced(tmp_path: Path, synced: list[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write_durably(folder / "a.json", "1")
    assert synced == ["sync .a.json.draft", "rename a.json", "sync folder"]


def test_names_of_a_checkpoint_are_on_the_disk_once_it_is_locked(tmp_path: Path, synced: list[str]) -> None:
    """A process that was killed may have renamed an entry of the log, and not have synced the name."""
    for name in ("offsets", "commits", "ensue/inputs/manifests", "state/0"):
        (tmp_path / name).mkdir(parents=True)
    JobFolder(tmp_path).lock().acquire()
    found = {item.removeprefix("sync ") for item in synced}
    assert {tmp_path.name, "offsets", "commits", "ensue", "inputs", "manifests"} <= found
    assert "0" not in found, "a state is on the disk before anything names it"


@pytest.fixture
def archived(tmp_path: Path) -> tuple[ListedSource, FileStamp]:
    """A source whose only file a process has moved to the archive, and then could not sync the name."""
    source = ListedSource("s", str(tmp_path / "in"), (".csv",), after="archive", archive=str(tmp_path / "old"))
    for name in ("in", "old"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "a.csv").write_text("a\n1\n")
    stamp = FileStamp.of(source.file("a.csv").stat())
    source.file("a.csv").rename(source.archived("a.csv"))
    return source, stamp


def test_what_another_has_archived_is_on_the_disk_before_it_is_forgotten(
    archived: tuple[ListedSource, FileStamp], synced: list[str]
) -> None:
    source, stamp = archived
    memory = FolderMemory("s")
    memory.files["a.csv"] = ReadFile(stamp, stamp, 1)
    assert settle(source, memory, 1, Settled()) == {}
    assert synced == ["sync old", "sync in"]
    assert not memory.files


def test_a_copy_in_the_archive_is_on_the_disk_before_the_file_is_removed(
    archived: tuple[ListedSource, FileStamp], synced: list[str]
) -> None:
    source, _ = archived
    shutil.copy(source.archived("a.csv"), source.file("a.csv"))
    stamp, memory = FileStamp.of(source.file("a.csv").stat()), FolderMemory("s")
    memory.files["a.csv"] = ReadFile(stamp, stamp, 1)
    assert settle(source, memory, 1, Settled()) == {}
    assert synced[-2:] == ["sync old", "sync in"]
    assert not source.file("a.csv").exists()
    assert [path.name for path in source.archived("a.csv").parent.iterdir()] == ["a.csv"]


def test_what_another_has_moved_back_is_on_the_disk(
    archived: tuple[ListedSource, FileStamp], synced: list[str]
) -> None:
    source, _ = archived
    source.archived("a.csv").rename(source.file("a.csv"))
    move_back(source, ["a.csv"])
    assert synced == ["sync in", "sync old"]


@pytest.mark.parametrize("make", [make_folder, make_kept_folder, lambda folder: make_checkpoint(folder, None)])
def test_a_folder_that_another_process_has_made_is_on_the_disk_before_it_is_used(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    """The other one may have been killed, or have met an error, before it synced the folder above."""
    folder = tmp_path / "a" / "b" / "c"

    def fails(path: Path) -> None:
        if path.name == "a":
            raise OSError(errno.EIO, "Input/output error", str(path))
        LocalPath.of(path).sync()

    with monkeypatch.context() as patch:
        patch.setattr(durable_files, "sync", fails)
        with pytest.raises(OSError, match="Input/output error"):
            make(folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "b"]
    synced.clear()
    make(folder)
    assert synced == ["sync a", "sync b"]
    make(folder)
    assert synced == ["sync a", "sync b"]
    monkeypatch.setattr(durable_files, "_ON_DISK", set())
    make(folder)
    assert synced[2:][-1:] == ["sync b"]


def test_names_of_new_folders_are_synced_together_and_those_above_others_before(
    tmp_path: Path, synced: list[str]
) -> None:
    folders, place = NewFolders(), LocalPath.of(tmp_path)
    for name in ("a", "b", "c"):
        folders.make(place / name)
    synced.clear()
    folders.make(place / "a" / "below")
    assert synced == [f"sync {tmp_path.name}"]
    folders.make(place / "a" / "other")
    folders.sync()
    assert synced[1:] == ["sync a"]
    folders.make(place / "b")
    folders.sync()
    assert len(synced) == 2, "it is on the disk"


def test_a_folder_above_that_nobody_may_read_is_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: Path) -> None:
        if path == tmp_path.parent:
            raise OSError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(durable_files, "sync", refuses)
    monkeypatch.setattr(durable_files, "_ON_DISK", set())
    make_folder(tmp_path / "a")
    assert (tmp_path / "a").is_dir()


@pytest.mark.parametrize("name", ["csv", "json", "parquet"])
def test_files_of_sinks_and_their_new_folders_are_synced(tmp_path: Path, synced: list[str], name: str) -> None:
    sink = sink_of(name, tmp_path / "matches")
    writer = writing(sink).open(sink, MicroBatch("id", 1), 2, 3)
    writer.write("Q", pa.table({"v": [1]}))
    writer.write("R", pa.table({"v": [1]}))
    assert synced == [f"sync {tmp_path.name}"]
    drafts = writer.finish()
    assert synced[1:] == ["sync matches", *["sync .id-00000001-00002.3.draft"] * 2]
    synced.pop()
    publishing(sink).publish(MicroBatch("id", 1), [(sink, drafts[:1])])
    file = f"id-00000001-00002.{name}"
    assert synced[3:] == [f"rename {file}", "sync Q"]


def test_data_files_of_delta_tables_are_synced_before_the_commit_and_the_commit_before_it_is_seen(
    tmp_path: Path, synced: list[str]
) -> None:
    sink = sink_of("delta", tmp_path / "matches")
    writer = writing(sink).open(sink, MicroBatch("0123456789ab", 1), 2, 3)
    writer.write("Q", pa.table({"v": [1]}))
    drafts = writer.finish()
    assert synced == [f"sync {tmp_path.name}", "sync matches", f"sync {Path(drafts[0].path).name}", "sync Q"]
    publishing(sink).publish(MicroBatch("0123456789ab", 1), [(sink, drafts)])
    assert synced[4:] == ["sync Q", "sync .ensue-0123456789ab.draft", "sync _delta_log"]


def test_files_of_old_micro_batches_are_removed_whatever_their_numbers(tmp_path: Path) -> None:
    files = BatchFiles(tmp_path, kept=3)
    for number in (0, 1, 5, 6, 9):
        files.write(number, number)
    assert sorted(files.numbers()) == [5, 6, 9]


def test_a_damaged_file_is_refused_with_what_to_do_and_can_be_left_out(tmp_path: Path) -> None:
    files = BatchFiles(tmp_path)
    files.write(1, {"a": 1})
    files.write(2, {"a": 2})
    (tmp_path / "notes.json").write_text("no number")
    for content in (b"", b"{", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "0000000002.json").write_bytes(content)
        with pytest.raises(
            InputError, match=r"0000000002\.json: is damaged: .* delete it, and its micro-batch is"
        ) as e:
            files.latest()
        assert "\n" not in str(e.value)
        found, mistakes = files.readable()
        assert found == (1, {"a": 1})
        assert [mistake.partition(": ")[0] for mistake in mistakes] == [str(tmp_path / "0000000002.json")]
