"""Files of a job: what each holds does not change, byte by byte, and what is wrong with one is said in the same words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from job_engine.deployment import Deployment, keep_places
from job_engine.durable_files import JobFile, numbers_in
from job_engine.job.checkpoint.checkpoint_record import Moved, Record, write_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.history.read_again import HistoryMark, read_mark, write_mark
from job_engine.job.journal import Journal, JournalEpoch, Taken
from job_engine.job.lookup_files import KeptTable, TableVersion, write_tables
from job_engine.job.stages.between_batches import Settings, write_settings
from job_engine.job.written_journal import write_files, write_journal
from job_engine.sinks.folder.compaction import Replacement
from job_engine.sources.crash_marks import CrashMarks, Deadly
from job_engine.sources.folder.after_reading import Settled, SettledFile
from job_engine.sources.folder.listing import FileStamp
from job_engine.sources.folder.pieces import FolderPiece, SourceCount, TakenFile, Waited, WaitingFile
from job_engine.sources.kinds import Part
from job_engine.sources.listing.batch_log import DamagedManifest
from job_engine.sources.listing.command_folder import Answer, CommandFolder
from job_engine.sources.listing.manifests import KEPT, Manifest, ManifestFolder, ReadList, load_list
from job_engine.sources.source import Unread
from job_engine.sources.table.pieces import TableFile, TablePiece, TablePosition, TableUnit
from job_engine.sources.topics.pieces import OffsetRange, TopicPosition, TopicsPiece, topics_to_plain
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.program import Notice
from querylang.plan.model import Plan
from querylang.running import Running
from runtime.json_reader import DamagedJson
from tests.project.modules import FILES

TEXTS = Path(__file__).parents[1] / "snapshots" / "job-files.json"
"""What each file holds: later releases read it, and earlier ones read what does not say that it is newer."""

CSV = TakenFile("s", 1, "a.csv", FileStamp(7, 1_000, 42))
POSITION = {"topic": TopicPosition(0, "id", {0: 5}, {0: 0})}
TABLE = TablePosition("id", 3, None, {"k": '"string"'})
WAITING = WaitingFile(TakenFile("s", 2, "b.csv", FileStamp(8, 2_000, 43)), 5)
READ = Part("csv", FolderPiece(SourceCount(1, "a.csv"), (CSV,), (CSV,)))
WAITS = Part("csv", FolderPiece(SourceCount(2, "b.csv"), (CSV,), waiting=(WAITING,)))


def _manifests(folder: Path, *manifests: Manifest) -> Path:
    for manifest in manifests:
        ManifestFolder(folder / "m").write(manifest)
    return folder / f"m/{manifests[-1].number:010d}.json"


def _list(folder: Path, first: Part) -> Path:
    read, manifests = ReadList(), ManifestFolder(folder / "m")
    for number in range(1, KEPT + 2):
        piece = first.piece if number == 1 else FolderPiece(first.piece.count)
        found = Manifest(number, {"s": Part(first.format, piece)})
        manifests.write(found)
        read.add(found)
    read.compact(folder / "read.json", manifests, ())
    return folder / "read.json"


def _settled(folder: Path) -> Path:
    SettledFile(folder / "settled.json").write({"s": Settled(4, {"a.csv": CSV.stamp})})
    return folder / "settled.json"


def _command(folder: Path) -> Path:
    CommandFolder(folder).send("text", at=7)
    (file,) = (folder / "ensue/commands").glob("*.json")
    given = int(file.stem)
    file.write_bytes(file.read_bytes().replace(str(given).encode(), b"17"))
    return file


def _outcome(folder: Path) -> Path:
    CommandFolder(folder).add(3, [Answer(17, "Q", 1, "done", 7, "text", 2)])
    return folder / f"ensue/commands/done/{17:020d}.json"


def _journal(folder: Path) -> Path:
    (folder / "ensue").mkdir()
    running = Running((), {}, {})
    taken = (Taken(17, 7, 3, Notice(1, 7, (), 0)),)
    write_journal(folder, Journal(running, {"Q": 5}, (JournalEpoch(0, Plan((), ())),), taken))
    return folder / "ensue/program.json"


def _files(folder: Path) -> Path:
    write_files(folder, Running((), {}, {}))
    return folder / "ensue/files.json"


def _settings(folder: Path) -> Path:
    (folder / "ensue").mkdir()
    settings: Settings = {"idle": 5, "live": True, "sources": [ClockSource("s")], "max_record": {"s": None}}
    write_settings(folder, settings, {"s": {"maxFilesPerTrigger": 3}})
    return folder / "ensue/run.json"


def _ledger(folder: Path) -> Path:
    JobFolder(folder).ledger.add(3, {("Q", "s", "received"): 2})
    return folder / "ensue/ledger/0000000003.json"


def _record(folder: Path) -> Path:
    moved = Moved("spark-1", 3, 2, "ensue/seeds-1")
    write_record(folder, Record("0" * 12, {"k": "v"}, {"s": {}}, "plan", ("Q",), {"A": {"k": "string"}}, 2, moved))
    return folder / "ensue.json"


def _tables(folder: Path) -> Path:
    source = SimpleNamespace(name="cards", table="lake.cards", place=Path("/data/cards"))
    keep_places(cast("Deployment", SimpleNamespace(checkpoint=folder, sources=(source,), sinks={})))
    return folder / "ensue/tables.json"


def _lookups(folder: Path) -> Path:
    versions = TableVersion(1, None, 7, 30, "0a"), TableVersion(2, 5, 8, 31, "0b")
    write_tables(folder, [KeptTable("Asset", "Asset-0c", "Asset-2.arrow", "Asset-1.arrow", (9, 10), versions, "why")])
    return folder / "ensue/lookups.json"


def _mark(folder: Path) -> Path:
    write_mark(folder, HistoryMark(("Q",), ("A",), {"s": ["a", "b"], "t": topics_to_plain(POSITION)}))
    return folder / "mark.json"


def _skip(folder: Path) -> Path:
    CrashMarks(folder).skip(Deadly("s", 0, 7, "reason"))
    (file,) = folder.glob("skip-*.json")
    return file


def _plan(folder: Path) -> Path:
    Replacement(folder, "new", ("one", "two")).begin()
    return folder / ".compact-new.plan"


WRITERS: dict[str, Callable[[Path], Path]] = {
    "a manifest": lambda folder: _manifests(folder, Manifest(1, {"s": READ})),
    "a manifest of all kinds of sources": lambda folder: _manifests(
        folder,
        Manifest(
            2,
            {
                "d": Part("delta", TablePiece(TABLE, 4, (TableUnit("d", 4, (TableFile("x.parquet", 9),), {}),))),
                "s": WAITS,
                "t": Part("kafka", TopicsPiece(POSITION, (OffsetRange("t", "topic", 0, 0, 1, 5),))),
            },
            signal="start",
            unread={"s": Unread(5, 2, "b.csv")},
        ),
    ),
    "the list": lambda folder: _list(folder, READ),
    "the list with files that wait": lambda folder: _list(folder, WAITS),
    "what is archived": _settled,
    "a command": _command,
    "an outcome": _outcome,
    "the journal": _journal,
    "texts of files": _files,
    "the settings of a run": _settings,
    "the ledger": _ledger,
    "the record": _record,
    "places of tables": _tables,
    "tables beside the stream": _lookups,
    "the mark of a history": _mark,
    "a record to skip": _skip,
    "the plan of a compaction": _plan,
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_a_file_holds_does_not_change(tmp_path: Path, name: str) -> None:
    assert WRITERS[name](tmp_path).read_bytes().decode() == json.loads(TEXTS.read_text())[name]


OLD = json.loads((TEXTS.parent / "old-job-files.json").read_text())
"""What releases wrote before there were kinds of sources."""


def _old_manifest(folder: Path, name: str, number: int) -> Manifest:
    file = folder / f"{number:010d}.json"
    file.write_text(OLD[name])
    return ManifestFolder(folder).read(number)


def test_manifests_of_earlier_releases_are_read(tmp_path: Path) -> None:
    assert _old_manifest(tmp_path, "a manifest", 1) == Manifest(1, {"s": replace(READ, format="parquet")})
    found = _old_manifest(tmp_path, "a manifest with topics, tables and files that wait", 2)
    assert found.by_source["d"] == Part("delta", TablePiece(TABLE))
    assert found.by_source["t"] == Part("kafka", TopicsPiece(POSITION, (OffsetRange("t", "topic", 0, 0, 1, 5),)))
    assert (found.signal, found.unread) == ("start", {"s": Unread(5, 2, "b.csv")})


def test_lists_and_marks_of_earlier_releases_are_read(tmp_path: Path) -> None:
    for name, waiting in (("the list", {}), ("the list with files that wait", {"b.csv": Waited(WAITING, 0)})):
        (tmp_path / "read.json").write_text(OLD[name])
        found = load_list(tmp_path / "read.json", ManifestFolder(tmp_path), 1)
        memory = found.by_source["s"].memory
        assert (memory.waiting, [*memory.files], found.number) == (waiting, ["a.csv"], 1)
    (tmp_path / "mark.json").write_text(OLD["the mark of a history"])
    done = {
        "s": ["a", "b"],
        "t": topics_to_plain(POSITION),
        "d": {key: value for key, value in asdict(TABLE).items() if key != "has_unread"},
    }
    assert json.loads(json.dumps(read_mark(tmp_path).by_source)) == json.loads(json.dumps(done))


def point(folder: Path, **other: Any) -> JobFile[dict[str, int]]:
    return JobFile(folder / "new" / "point.json", dict[str, int], "Way out", **other)


def test_a_file_is_written_with_its_folder_and_read_back(tmp_path: Path) -> None:
    file = point(tmp_path, versions=(1, 2))
    assert file.read() is None
    file.write({"version": 1, "x": 7})
    assert file.read() == file.needed() == file.readable() == {"x": 7}
    file.remove()
    file.remove()
    assert file.read() is None


def test_a_file_that_is_there_is_not_created_again(tmp_path: Path) -> None:
    file = point(tmp_path)
    assert [file.create({"x": 1}), file.create({"x": 2})] == [True, False]
    assert file.read() == {"x": 1}
    assert [path.name for path in file.place.parent.iterdir()] == ["point.json"]


def test_a_missing_file_that_is_needed_is_refused_with_the_way_out(tmp_path: Path) -> None:
    file = point(tmp_path, error=DamagedManifest, missing="is gone: it has points")
    with pytest.raises(DamagedManifest) as told:
        file.needed()
    assert str(told.value) == f"{file.place}: is gone: it has points. Way out"


def test_damage_is_told_in_the_error_of_the_file_or_passed_over(tmp_path: Path) -> None:
    file = point(tmp_path, error=DamagedManifest)
    file.write({"x": "y"})
    with pytest.raises(DamagedManifest) as told:
        file.read()
    assert str(told.value) == f"{file.place}: is damaged: 'x': expected an integer, found text. Way out"
    assert file.readable() is None


def test_a_part_that_cannot_be_is_told_of_the_file(tmp_path: Path) -> None:
    file = point(tmp_path)
    with pytest.raises(DamagedJson) as told, file.checking():
        raise ValueError("no such point")
    assert str(told.value) == f"{file.place}: is damaged: no such point. Way out"


def test_no_file_is_written_in_a_version_that_this_release_does_not_read(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a release reads what it writes"):
        point(tmp_path, versions=(1, 2)).write({"version": 3})


def test_numbers_are_those_of_json_files(tmp_path: Path) -> None:
    for name in ("0000000010.json", "2.json", "٣.json", "x.json", ".4.json.draft", "5", "-6.json"):
        (tmp_path / name).touch()
    assert numbers_in(tmp_path) == [2, 10]
    assert numbers_in(tmp_path, re.compile("[0-9]{10}")) == [10]
    assert numbers_in(tmp_path / "missing") == []


def test_files_of_a_job_are_read_and_written_in_one_place() -> None:
    """Everything else of `job_engine` asks `JobFile`; a log of Delta is somebody else's file, and the log of a run has Spark's form."""
    users = {
        name: sorted(
            module.removeprefix("job_engine.")
            for module, path in FILES.items()
            if module.startswith("job_engine.") and f"{name}(" in path.read_text()
        )
        for name in ("read_json", "write_durably")
    }
    assert users == {
        "read_json": ["delta_log", "durable_files"],
        "write_durably": ["durable_files", "local.run_log"],
    }
