"""Compaction: fewer files, the same rows in the same order, and nothing lost or doubled by a crash."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from ensue.cli import main
from job_engine.job.checkpoint.checkpoint_record import Record, write_record
from job_engine.place import Place, files_below, local_copy, place_of
from job_engine.sinks.folder.compaction import MERGERS, MOST_FILES, ResultFile, compact_sink, groups_of
from job_engine.sinks.kinds import FORMATS, Compacted, Compaction, MicroBatch, Sink, publishing, writing
from querylang.errors import InputError
from tests.support.sensors import project
from tests.support.sinks import sink_of
from tests.support.small_disk import enlarge, small_disk
from tests.support.stores import BUCKET, StoreServer

IDENTITY = "0123456789ab"
LARGE = 1 << 20
NEW = f"{IDENTITY}-00000003-200000.json"


def table(batch: int, task: int) -> pa.Table:
    """Three rows, with text that CSV and JSON have to quote."""
    rows = [f'{batch}/{task}/{row},"\n' for row in range(3)]
    return pa.table({'name "a"': rows, "v": pa.array([1.5, None, 3.0]), "w": [{"x": 1}, None, {"x": batch}]})


def write(sink: Sink, batches: range, make: Callable[[int, int], pa.Table] = table, identity: str = IDENTITY) -> None:
    """Two tasks per micro-batch, each with a file in the folders of two queries."""
    for batch in batches:
        name = MicroBatch(identity, batch)
        drafts = []
        for task in (0, 1):
            writer = writing(sink).open(sink, name, task, 0)
            for folder in ("Rise", "Rise/eu"):
                writer.write(folder, make(batch, task))
            drafts += writer.finish()
        publishing(sink).publish(name, [(sink, drafts)])


def seen(sink: Sink) -> dict[str, list[str]]:
    """What readers see in each folder, in the order of names: lines of text, and rows of Parquet as text."""
    found: dict[str, list[str]] = {}
    for file in sorted(files_below(sink.place), key=str):
        if not file.name.startswith("."):
            with local_copy(file) as path:
                found.setdefault(str(file.parent), []).extend(rows(path, sink.format))
    return found


def rows(path: Path, kind: str) -> list[str]:
    match kind:
        case "parquet":
            return [str(row) for row in pa.parquet.read_table(path, partitioning=None).to_pylist()]
        case "csv":
            form = pa.csv.ParseOptions(newlines_in_values=True)
            return [str(row) for row in pa.csv.read_csv(path, parse_options=form).to_pylist()]
        case _:
            return path.read_text().splitlines()


def names(sink: Sink) -> list[str]:
    return sorted(str(file).removeprefix(f"{sink.place}/") for file in files_below(sink.place))


def compaction(last: int = 99, target: int = LARGE) -> Compaction:
    return Compaction(IDENTITY, last, target, lambda: None)


@pytest.mark.parametrize("kind", sorted(MERGERS))
def test_files_of_each_folder_become_one_with_the_same_rows_in_the_same_order(kind: str, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path)
    write(sink, range(4))
    before = seen(sink)
    assert compact_sink(sink, compaction()) == Compacted(16, 2, 2)
    assert seen(sink) == before
    assert names(sink) == [f"Rise/{IDENTITY}-00000003-200000.{kind}", f"Rise/eu/{IDENTITY}-00000003-200000.{kind}"]
    assert compact_sink(sink, compaction()) == Compacted(0, 0, 2)
    write(sink, range(4, 6))
    before = seen(sink)
    assert compact_sink(sink, compaction()) == Compacted(10, 2, 2)
    assert seen(sink) == before


def test_every_file_format_has_its_way_to_be_merged() -> None:
    assert {name for name, module in FORMATS.items() if module.endswith(".folder")} == set(MERGERS)


def test_new_micro_batches_and_files_of_others_stay_as_they_are(tmp_path: Path) -> None:
    sink = sink_of("parquet", tmp_path)
    write(sink, range(4))
    write(sink, range(2), identity="ba9876543210")
    (tmp_path / "Rise" / "mine.parquet").write_bytes(b"not ours")
    compact_sink(sink, compaction(last=1))
    assert [name for name in names(sink) if "/eu/" not in name] == [
        f"Rise/{IDENTITY}-00000001-200000.parquet",
        *(f"Rise/{IDENTITY}-0000000{batch}-0000{task}.parquet" for batch in (2, 3) for task in (0, 1)),
        *(f"Rise/ba9876543210-0000000{batch}-0000{task}.parquet" for batch in (0, 1) for task in (0, 1)),
        "Rise/mine.parquet",
    ]


def test_files_with_other_columns_are_not_merged(tmp_path: Path) -> None:
    sink = sink_of("parquet", tmp_path)
    write(sink, range(2))
    write(sink, range(2, 4), lambda batch, task: table(batch, task).drop_columns("v"))
    before = seen(sink)
    assert compact_sink(sink, compaction()) == Compacted(16, 4, 4)
    assert seen(sink) == before


def test_a_repeated_micro_batch_removes_no_compacted_file(tmp_path: Path) -> None:
    sink = sink_of("parquet", tmp_path)
    write(sink, range(4))
    compact_sink(sink, compaction(last=2))
    before = seen(sink)
    publishing(sink).remove_leftovers(sink, MicroBatch(IDENTITY, 3), set(names(sink)))
    write(sink, range(3, 4))
    assert seen(sink) == before


def files_of(*sizes: int) -> list[ResultFile]:
    return [ResultFile(Path(f"{batch:08}"), batch, size) for batch, size in enumerate(sizes)]


def test_groups_reach_the_target_and_leave_large_files_alone() -> None:
    def sizes(*given: int) -> list[list[int]]:
        return [[file.size for file in group] for group in groups_of(files_of(*given), 100)]

    assert sizes(40, 40, 40, 10, 10) == [[40, 40, 40], [10, 10]]
    assert sizes(10, 60, 10, 10) == [[10, 10]]
    assert sizes(10, 60, 10) == []
    assert [len(group) for group in sizes(*[0] * (MOST_FILES + 5))] == [MOST_FILES, 5]


@contextmanager
def crash_at(change: int) -> Iterator[None]:
    """Let the process end before or after a change of a folder; each change counts twice."""
    renaming, removing, left = Path.replace, Path.unlink, itertools.count(1)

    def step() -> None:
        if next(left) == change:
            raise KeyboardInterrupt

    def replace(self: Path, target: Path) -> Path:
        step()
        done = renaming(self, target)
        step()
        return done

    def unlink(self: Path, missing_ok: bool = False) -> None:
        step()
        removing(self, missing_ok=missing_ok)
        step()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        patched.setattr(Path, "unlink", unlink)
        yield


@pytest.mark.parametrize("change", range(1, 15))
def test_whatever_change_a_crash_comes_before_or_after_nothing_is_lost_or_doubled(tmp_path: Path, change: int) -> None:
    sink = sink_of("json", tmp_path)
    write_plainly(tmp_path / "Rise")
    before = seen(sink)
    with crash_at(change), pytest.raises(KeyboardInterrupt):
        compact_sink(sink, compaction())
    (found,) = seen(sink).values()
    has_plan = any(name.endswith(".plan") for name in names(sink))
    assert has_plan or found == before[str(tmp_path / "Rise")]
    assert set(found) >= set(before[str(tmp_path / "Rise")])
    compact_sink(sink, compaction())
    assert seen(sink) == before
    assert names(sink) == [f"Rise/{IDENTITY}-00000003-200000.json"]


def write_plainly(folder: Path) -> None:
    folder.mkdir(parents=True)
    for batch in range(4):
        (folder / f"{IDENTITY}-{batch:08d}-00000.json").write_text(json.dumps({"batch": batch}) + "\n")


def test_a_store_is_compacted_as_a_folder_is(store: StoreServer) -> None:
    path: Place = place_of(f"s3://{BUCKET}/out %/ü")
    sink = sink_of("parquet", path)
    write(sink, range(3))
    before = seen(sink)
    assert compact_sink(sink, compaction()) == Compacted(12, 2, 2)
    assert seen(sink) == before
    assert len(store.keys()) == 2


def test_a_full_disk_changes_nothing_and_the_next_compaction_goes_on(tmp_path: Path) -> None:
    sink = sink_of("json", tmp_path / "disk")
    with small_disk(sink.place, 64):
        for batch in range(10):
            (sink.place / f"{IDENTITY}-{batch:08d}-00000.json").write_text(json.dumps({"text": "x" * 3900}) + "\n")
        before = seen(sink), names(sink)
        with pytest.raises(InputError, match=r"cannot be compacted: the disk is full[.] .*No result"):
            compact_sink(sink, compaction())
        assert (seen(sink), names(sink)) == before
        enlarge(sink.place)
        assert compact_sink(sink, compaction()) == Compacted(10, 1, 1)
        assert seen(sink) == before[0]


def test_a_plan_whose_files_are_missing_is_refused(tmp_path: Path) -> None:
    sink = sink_of("json", tmp_path)
    plan = {"new": f"{IDENTITY}-00000003-200000.json", "old": [f"{IDENTITY}-00000002-00000.json"]}
    (tmp_path / f".compact-{plan['new']}.plan").write_text(json.dumps(plan))
    with pytest.raises(InputError, match="the file that it names is missing"):
        compact_sink(sink, compaction())


@pytest.mark.parametrize(
    "plan",
    [
        {"new": NEW, "old": ["../../precious.txt"]},
        {"new": NEW, "old": ["/etc/passwd"]},
        {"new": NEW, "old": ["ffffffffffff-00000002-00000.json"]},
        {"new": NEW, "old": [NEW]},
        {"new": f"{IDENTITY}-00000004-200000.json", "old": []},
        {"new": "../x.json", "old": []},
        {"new": NEW, "old": None},
        [],
    ],
)
def test_a_plan_names_results_of_its_own_folder_only(tmp_path: Path, plan: object) -> None:
    folder = tmp_path / "out"
    sink = sink_of("json", folder)
    folder.mkdir()
    (tmp_path / "precious.txt").write_text("")
    (folder / NEW).write_text("")
    (folder / f".compact-{NEW}.plan").write_text(json.dumps(plan))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"\.plan: is damaged: "):
        compact_sink(sink, compaction())
    assert sorted(tmp_path.rglob("*")) == before


def test_a_draft_that_is_a_link_is_not_published(tmp_path: Path) -> None:
    sink = sink_of("json", tmp_path)
    (tmp_path / f".compact-{NEW}.plan").write_text(json.dumps({"new": NEW, "old": []}))
    (tmp_path / f".compact-{NEW}.draft").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="is a link, and not a file of results"):
        compact_sink(sink, compaction())


def test_the_command_says_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project(tmp_path)
    assert run(monkeypatch, "compact", str(path)) == 1
    assert capsys.readouterr().err == f"{tmp_path}/state: the job has not run yet, so there is nothing to compact\n"
    write_record(tmp_path / "state", Record(IDENTITY, {}, {}, "", (), {}))
    (tmp_path / "state" / "commits").mkdir()
    (tmp_path / "state" / "commits" / "5").write_text("v1\n{}")
    write(sink_of("parquet", tmp_path / "out" / "matches"), range(6))
    assert run(monkeypatch, "compact", str(path)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "matches: 16 files became 2; 10 files",
        *(f"{name}: nothing to do; 0 files" for name in ("output", "discarded", "ledger")),
    ]
    assert run(monkeypatch, "compact", str(path), "--target", "12") == 1
    assert "'12' is not a size" in capsys.readouterr().err


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["ensue", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)
