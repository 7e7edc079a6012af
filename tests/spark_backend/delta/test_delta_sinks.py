"""Delta tables as sinks: one commit per table and micro-batch, whatever is repeated; refused tables by name."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake

from job_engine import delta_publishing, durable_files
from job_engine.delta_log import read_commit
from job_engine.delta_publishing import ATTEMPTS, CHECKPOINT_EVERY, DataFile, Transaction, publish_files
from job_engine.errors import RETRY, Outage
from job_engine.place import Place, place_of
from job_engine.sinks.folder.publishing import PUBLISHING as FILES
from job_engine.sinks.kinds import MicroBatch, Sink
from job_engine.sinks.table.writing import WRITING
from querylang.errors import InputError, PassingError
from tests.spark_backend.delta.ours import DELTA, OTHERS, OURS, SCHEMA, drafts, names, rows, sink, table, write
from tests.support.sinks import sink_of


def refusal(sink: Sink, schema: pa.Schema = SCHEMA) -> str | None:
    try:
        DELTA.refuse_unwritable(sink, {"Q": schema})
    except InputError as error:
        return str(error).replace(str(sink.place), "")
    return None


def test_a_micro_batch_is_one_commit_per_table(tmp_path: Path) -> None:
    own = sink(tmp_path)
    for batch in range(3):
        write(own, batch, rows(f"a{batch}"), rows(f"b{batch}"))
    assert names(own) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert table(own).version() == 2
    assert table(own).to_pyarrow_table().select(SCHEMA.names).slice(0, 1).to_pylist()[0]["low"]["by"] == [("k", 1)]


def test_data_files_are_not_read_to_be_published(tmp_path: Path) -> None:
    """In a store that would be a download per table and micro-batch."""
    own = sink(tmp_path, "day")
    found = drafts(own, 0, rows("a"))
    moved = Path(found[0].place).rename(tmp_path / "moved")
    DELTA.publish(MicroBatch(OURS, 0), [(own, found)])
    moved.rename(found[0].place)
    assert names(own) == ["a"]
    assert [field.name for field in table(own).schema().fields] == [*SCHEMA.names, "day"]


def test_a_micro_batch_that_is_repeated_changes_nothing(tmp_path: Path) -> None:
    own = sink(tmp_path)
    for batch in (0, 1):
        write(own, batch, rows(f"a{batch}"))
    write(own, 1, rows("a1"))
    assert names(own) == ["a0", "a1"]
    assert table(own).version() == 1
    assert len(list(own.folder.rglob("*.parquet"))) == 2


def test_a_table_whose_log_is_shortened_meanwhile_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, opened, others = sink(tmp_path), delta_publishing.opened_to_write, list[int]()
    for batch in (0, 1):
        write(own, batch, rows(f"a{batch}"), identity=OTHERS)

    def and_shortened(path: Place) -> DeltaTable | None:
        found = opened(path)
        if not others:
            others.append(1)
            table(own).create_checkpoint()
            (own.folder / "Q" / "_delta_log" / f"{0:020d}.json").unlink()
        return found

    monkeypatch.setattr(delta_publishing, "opened_to_write", and_shortened)
    write(own, 0, rows("b"))
    assert names(own) == ["a0", "a1", "b"]


def test_files_of_a_killed_attempt_are_removed_and_committed_ones_stay(tmp_path: Path) -> None:
    own = sink(tmp_path)
    write(own, 0, rows("a0"))
    drafts(own, 1, rows("lost"))
    write(own, 1, rows("a1"), rows("b1"))
    table(own).optimize.compact()
    DELTA.remove_leftovers(own, MicroBatch(OURS, 1), ())
    assert names(own) == ["a0", "a1", "b1"]
    assert len(list(own.folder.rglob(f"{OURS}-00000001-*"))) == 2


def test_a_table_below_the_one_of_its_query_is_a_table_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, batch = sink(tmp_path), MicroBatch(OURS, 0)
    parts = {"Q": rows("a", instance=None), "Q/eu": rows("b"), "Q/eu 2": rows("c")}
    found = [draft for part, table in parts.items() for draft in drafts(own, 0, table, part=part)]
    drafts(own, 0, rows("lost"), part="Q/eu")
    DELTA.publish(batch, [(own, found)])
    assert [result.batch for result in DELTA.results(own)] == [0, 0, 0]
    DELTA.remove_leftovers(own, batch, ())
    assert sorted(row["match_id"] for row in DELTA.rows(own, own.folder / "Q")) == ["a", "b", "c"]
    assert len(list(own.folder.rglob(f"{OURS}-*"))) == 3
    DELTA.refuse_unwritable(own, dict.fromkeys(parts, SCHEMA))
    assert "Q: has the tables of instances in its folder, and VACUUM of it would remove their files" in caplog.text
    caplog.clear()
    DELTA.refuse_unwritable(own, dict.fromkeys(parts, SCHEMA))  # a change of the job: it was said already
    for others in (["Q/eu", "Q/eu 2", "Q2"], [""]):
        DELTA.refuse_unwritable(own, dict.fromkeys(others, SCHEMA))
    assert not caplog.text


def test_results_behind_a_backup_are_taken_out_and_can_be_written_again(tmp_path: Path) -> None:
    own = sink(tmp_path)
    for batch in range(4):
        write(own, batch, rows(f"a{batch}"))
    later = [result for result in DELTA.results(own) if result.batch > 1]
    files = DELTA.removable("matches", own, later, 1)
    assert sorted(file.name[13:21] for file in files) == ["00000002", "00000003"]
    DELTA.remove(own, files, OURS, 1)
    assert names(own) == ["a0", "a1"]
    assert [result.batch for result in DELTA.results(own)] == [1]
    DELTA.remove_leftovers(own, MicroBatch(OURS, 1), ())  # it is repeated
    for batch in (1, 2):
        write(own, batch, rows(f"again{batch}"))
    assert names(own) == ["a0", "a1", "again2"]


def test_results_that_cannot_be_taken_out_alone_stay(tmp_path: Path) -> None:
    own = sink(tmp_path)
    for batch in range(3):
        write(own, batch, rows(f"a{batch}"))
    later = [*DELTA.results(own)]
    table(own).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(InputError, match=r"cannot be removed from .*/Q, which is only appended to .*choose a new one"):
        DELTA.removable("matches", own, later, 0)
    table(own).alter.set_table_properties({"delta.appendOnly": "false"})
    assert len(DELTA.removable("matches", own, later, 0)) == 2
    table(own).optimize.compact()
    with pytest.raises(InputError, match="where another writer has merged or deleted them"):
        DELTA.removable("matches", own, later, 0)
    assert names(own) == ["a0", "a1", "a2"]
    table(own).create_checkpoint()
    (own.folder / "Q" / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(InputError, match=r"of micro-batch 2, and the backup ends with -1.*no longer has all commits"):
        DELTA.removable("matches", own, later, -1)


def test_files_stay_where_nothing_tells_whether_they_are_committed(tmp_path: Path) -> None:
    own = sink(tmp_path)
    write(own, 0, rows("a0"))
    drafts(own, 1, rows("unknown"))
    DELTA.remove_leftovers(own, MicroBatch(OURS, 1), ())
    assert len(list(own.folder.rglob(f"{OURS}-00000001-*"))) == 1


def test_a_commit_between_looking_and_writing_is_no_conflict(tmp_path: Path) -> None:
    own = sink(tmp_path)
    for batch in range(3):
        write(own, batch, rows(f"a{batch}"))
    table(own).optimize.compact()
    write(own, 3, rows("a3"))
    write(own, 0, rows("theirs"), identity=OTHERS)
    assert names(own) == ["a0", "a1", "a2", "a3", "theirs"]


def test_writers_that_meet_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = sink(tmp_path)
    write(own, 0, rows("a0"))
    others = [lambda: table(own).alter.add_columns([Field("note", "string")])]
    commit = delta_publishing._committed

    def after_another(*given: Any) -> bool:
        if others:
            others.pop()()
        return commit(*given)

    monkeypatch.setattr(delta_publishing, "_committed", after_another)
    write(own, 1, rows("a1"))
    assert not others
    assert names(own) == ["a0", "a1"]


def test_a_day_and_columns_of_results_can_be_partitions(tmp_path: Path) -> None:
    own = sink(tmp_path, "day", "instance")
    write(own, 0, pa.concat_tables([rows("a"), rows("b", hours=12), rows("c", hours=12, instance=None)]), rows("d"))
    found = table(own).to_pyarrow_table().to_pylist()
    assert sorted((row["match_id"], str(row["day"]), row["instance"]) for row in found) == [
        ("a", "2024-01-01", "eu"),
        ("b", "2024-01-02", "eu"),
        ("c", "2024-01-02", None),
        ("d", "2024-01-01", "eu"),
    ]
    assert table(own).version() == 0
    assert refusal(own) is None
    assert refusal(sink(tmp_path)) == "/Q: the Delta table is partitioned by day and instance, and the sink by nothing"


def test_files_have_statistics_that_hold(tmp_path: Path) -> None:
    own = sink(tmp_path)
    late = rows("zz", "b" * 40).set_column(
        2, "time", pa.array([1_700_000_000_000_001, None], SCHEMA.field("time").type)
    )
    write(own, 0, late)
    (added,) = [action["add"] for action in read_commit(own.folder / "Q", 0) or [] if "add" in action]
    found = json.loads(added["stats"])
    assert found["numRecords"] == 2
    assert found["minValues"]["match_id"] == "b" * 32
    assert found["maxValues"]["match_id"] == "zz"
    assert found["minValues"]["time"] == "2023-11-14T22:13:20.000Z"
    assert found["maxValues"]["time"] == "2023-11-14T22:13:20.001Z"
    assert found["nullCount"]["time"] == 1
    assert found["nullCount"]["low"] == {"v": 0}


def test_new_columns_are_added(tmp_path: Path) -> None:
    own = sink(tmp_path)
    write(own, 0, rows("a").drop_columns(["low"]))
    assert refusal(own) is None
    write(own, 1, rows("b"))
    assert names(own) == ["a", "b"]
    assert "low" in table(own).to_pyarrow_table().column_names


def other_type(path: Path) -> None:
    write_deltalake(path, pa.table({"match_id": [1], "time": ["x"]}))


def other_struct(path: Path) -> None:
    write_deltalake(path, pa.table({"low": [{"v": 1.5}]}))


def not_null(path: Path) -> None:
    DeltaTable.create(
        path, pa.schema([pa.field("match_id", pa.string()), pa.field("who", pa.string(), nullable=False)])
    )


def constraint(path: Path) -> None:
    write_deltalake(path, pa.table({"n": [1]}))
    DeltaTable(path).alter.add_constraint({"positive": "n > 0"})


def other_case(path: Path) -> None:
    write_deltalake(path, pa.table({"Match_ID": ["x"]}))


def no_table(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "notes.txt").write_text("")


def column_mapping(path: Path) -> None:
    DeltaTable.create(path, SCHEMA)
    log = path / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] |= {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in line:
            line["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
            line["metaData"]["schemaString"] = json.dumps(
                {
                    "type": "struct",
                    "fields": [
                        {
                            "name": "match_id",
                            "type": "string",
                            "nullable": True,
                            "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"},
                        }
                    ],
                }
            )
    log.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            other_type,
            (
                "/Q: the Delta table has another schema: column 'match_id' is long, and would be string; column 'time' is"
                " string, and would be timestamp. Choose another folder"
            ),
        ),
        (
            other_struct,
            (
                "/Q: the Delta table has another schema: column 'low' is struct<v: double>, and would be struct<v: double,"
                " tags: array<string>, by: map<string, long>>. Choose another folder"
            ),
        ),
        (not_null, "/Q: the Delta table has another schema: column 'who' must not be null. Choose another folder"),
        (
            constraint,
            "/Q: the Delta table has the constraint 'positive', which a sink cannot write; choose another folder",
        ),
        (
            other_case,
            (
                "/Q: the Delta table has another schema: column 'match_id' would be there beside 'Match_ID'. Choose another"
                " folder"
            ),
        ),
        (no_table, "/Q: holds files such as 'notes.txt', and is not a Delta table; choose another folder"),
        (
            column_mapping,
            "/Q: the Delta table has column mapping (columnMapping), which a sink cannot write; choose another folder",
        ),
    ],
)
def test_a_table_that_cannot_be_written_is_refused_before_the_start(tmp_path: Path, make: object, reason: str) -> None:
    assert callable(make)
    make(tmp_path / "matches" / "Q")
    assert refusal(sink(tmp_path)) == reason


def test_a_folder_that_the_package_takes_for_another_one_is_refused_before_the_start(tmp_path: Path) -> None:
    own = sink(tmp_path)
    with pytest.raises(InputError) as caught:
        DELTA.refuse_unwritable(own, {"%5FQ": SCHEMA})
    assert str(caught.value) == (
        f"{own.folder / '%5FQ'}: the package deltalake cannot open a table in a local folder with '%5F' in its path;"
        " choose another path, or another name of the query, instance or channel"
    )
    DELTA.refuse_unwritable(own, {"ü #1 %": SCHEMA})


def test_a_folder_of_a_delta_table_is_no_sink_of_files(tmp_path: Path) -> None:
    write(sink(tmp_path), 0, rows("a"))
    with pytest.raises(InputError, match="is a Delta table; set `format: delta`"):
        FILES.refuse_unwritable(sink_of("parquet", tmp_path / "matches"), {"Q": SCHEMA})


def test_the_log_tells_which_checkpoints_have_written(tmp_path: Path) -> None:
    own = sink(tmp_path)
    for batch in range(3):
        write(own, batch, rows(f"a{batch}"))
    table(own).create_checkpoint()
    write(own, 7, rows("theirs"), identity=OTHERS)
    assert [(result.identity, result.batch) for result in DELTA.results(own)] == [(OURS, 2), (OTHERS, 7)]


def test_the_log_gets_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "t"
    schema = pa.schema([("a", pa.string())])
    for version in range(CHECKPOINT_EVERY + 1):
        publish_files(path, [DataFile("x", 1, {}, "{}")], Transaction("app", version), schema, ())
    assert [file.name for file in (path / "_delta_log").glob("*.checkpoint.parquet")] == [
        f"{CHECKPOINT_EVERY - 1:020d}.checkpoint.parquet"
    ]


def test_a_part_of_a_checkpoint_of_the_log_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut has left it; the package would not open the table any more."""
    monkeypatch.setattr(delta_publishing, "CHECKPOINT_EVERY", 2)
    own = sink(tmp_path)
    write(own, 0, rows("a0"))
    write(own, 1, rows("a1"))
    (checkpoint,) = (own.folder / "Q" / "_delta_log").glob("*.checkpoint.parquet")
    for look in (refusal, lambda own: [*DELTA.results(own)][1:]):
        checkpoint.write_bytes(checkpoint.read_bytes()[:100])
        assert not look(own)
        assert not checkpoint.exists()
        table(own).create_checkpoint()
    write(own, 2, rows("a2"))
    assert names(own) == ["a0", "a1", "a2"]


@pytest.mark.parametrize("is_part", [False, True])
def test_a_checkpoint_that_is_only_named_is_not_looked_for(tmp_path: Path, is_part: bool) -> None:
    """A power cut has left its name; the one before it, behind commits that were removed, may be a part, too."""
    own = sink(tmp_path)
    for batch in range(3):
        write(own, batch, rows(f"a{batch}"))
        if batch:
            table(own).create_checkpoint()
    older, newer = sorted((own.folder / "Q" / "_delta_log").glob("*.checkpoint.parquet"))
    newer.unlink()
    if is_part:
        older.write_bytes(older.read_bytes()[:100])
    else:
        (older.parent / f"{0:020d}.json").unlink()
    assert not refusal(own)
    write(own, 3, rows("a3"))
    assert names(own) == ["a0", "a1", "a2", "a3"]
    assert older.exists() is not is_part


def test_a_damaged_checkpoint_stays_where_nothing_else_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_publishing, "CHECKPOINT_EVERY", 2)
    own = sink(tmp_path)
    write(own, 0, rows("a0"))
    write(own, 1, rows("a1"))
    log = own.folder / "Q" / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    checkpoint.write_bytes(b"")
    (log / f"{0:020d}.json").unlink()
    assert "/Q: the Delta table cannot be used: " in str(refusal(own))
    assert checkpoint.exists()


def test_a_commit_that_is_seen_is_on_the_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed between the commit and the sync of its folder commits it again."""
    own = sink(tmp_path)
    write(own, 0, rows("a0"))
    synced: list[str] = []
    monkeypatch.setattr(durable_files, "sync", lambda path: synced.append(path.name))
    write(own, 0, rows("a0"))
    assert synced.count("_delta_log") == 1


def test_an_error_of_the_disk_is_one_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = sink(tmp_path)
    write(own, 0, rows("a0"))

    def broken(*_: object, **__: object) -> None:
        raise OSError("Generic LocalFileSystem error\n Unable to open file\n Input/output error (os error 5)")

    monkeypatch.setattr("deltalake.DeltaTable", broken)
    with pytest.raises(PassingError, match="/Q: cannot be written: Input/output error"):
        write(own, 1, rows("a1"))


def test_a_store_that_is_away_uses_up_no_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, left = place_of("s3://bucket/t", options={RETRY: "600"}), [ATTEMPTS + 5]
    now, told = [0.0], list[str]()

    def tried(*_: object) -> bool:
        left[0] -= 1
        if left[0] >= 0:
            raise ConnectionError(5, "the store cannot be reached", str(path))
        return True

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(delta_publishing, "open_table", lambda _: None)
    monkeypatch.setattr(delta_publishing, "_tried", tried)
    monkeypatch.setattr(delta_publishing, "Outage", partial(Outage, now=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(delta_publishing, "warn", told.append)
    assert publish_files(path, [DataFile("x", 1, {}, "{}")], Transaction("app", 0), pa.schema([]), ())
    assert len(told) == 2
    assert "s3://bucket answers again" in told[1]
    left[0] = 1000
    with pytest.raises(ConnectionError, match="the store cannot be reached for 10 minutes"):
        publish_files(path, [DataFile("x", 1, {}, "{}")], Transaction("app", 0), pa.schema([]), ())


def test_matches_with_other_columns_share_a_commit(tmp_path: Path) -> None:
    own, others = sink(tmp_path), pa.schema([*SCHEMA, ("late", pa.int64())])
    later = rows("b").append_column("late", pa.array([7]))
    writer = WRITING.open(own, MicroBatch(OURS, 0), 0, 0)
    for part in (rows("a"), later.cast(others), rows("c")):
        writer.write("Q", part)
    DELTA.publish(MicroBatch(OURS, 0), [(own, writer.finish())])
    assert table(own).version() == 0
    found = table(own).to_pyarrow_table().to_pylist()
    assert sorted((row["match_id"], row["late"]) for row in found) == [("a", None), ("b", 7), ("c", None)]


def test_columns_of_one_name_and_other_types_are_refused(tmp_path: Path) -> None:
    own = sink(tmp_path)
    writer = WRITING.open(own, MicroBatch(OURS, 0), 0, 0)
    for part in (rows("a"), pa.table({"match_id": ["b"], "low": ["text"]})):
        writer.write("Q", part)
    with pytest.raises(InputError, match=r"Q: matches of two texts of a query do not fit into one Delta table: .*low"):
        DELTA.publish(MicroBatch(OURS, 0), [(own, writer.finish())])
