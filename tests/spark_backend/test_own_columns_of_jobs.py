"""Which columns of the sources of a job are ours: decided when the checkpoint is new, then kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.checkpoint_record import read_record, write_record
from job_engine.job.compilation import source_readings
from job_engine.job.preflight import Checked, checked
from querylang.errors import FileErrors, InputError
from runtime.columns.arrivals import Arrivals, RecordKind
from tests.support.readings_job import write_job

A = "event A { string k; }\nquery Q { inputs { A() key k retain 2; } find A as a -> A as b }"
OPEN = "query Q { inputs { A() key k retain 2; } find A as a -> A as b where b.source = a.source }"


def job(folder: Path, rows: list[dict[str, Any]], text: str = A, **source: object) -> Checked:
    """A job that has not begun, on a folder with one file of JSON lines."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    entry = {"path": "in", "format": "json", "infer": True, **source}
    return checked(load_deployment(write_job(folder, text, sources={"s": entry})))


def records(ready: Checked, rows: list[dict[str, Any]]) -> Arrivals:
    """The rows as the job reads them."""
    reading = source_readings(ready.deployment)["s"]
    return Arrivals.concat(list(reading.arrivals(pa.Table.from_pylist(rows), ready.program.plan())))


def with_column(name: str, *values: Any) -> list[dict[str, Any]]:
    return [{"at": place, "k": "x", name: value} for place, value in enumerate(values)]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("event", ("start", "stop", "start")),
        ("event", ({"a": 1}, {"a": 2}, {"a": 3})),
        ("source", ({"ip": "a"}, {"ip": "b"}, {"ip": "c"})),
        ("offset", (1, 2, 1)),
        ("offset", ("+01:00", "+02:00", "+01:00")),
        ("partition", (1.5, 2.5, 3.5)),
    ],
)
def test_a_new_job_takes_columns_that_cannot_be_ours_for_fields(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, values: tuple[Any, ...]
) -> None:
    rows = with_column(name, *values)
    ready = job(tmp_path, rows)
    assert ready.record.fields == {"s": (name,)}
    assert [message.partition(", not")[0] for message in caplog.messages] == [f"s: 1.jsonl: '{name}' is a field"]
    found = records(ready, rows)
    assert found.system("kind").tolist() == [0, 0, 0]
    assert found.system("offset").tolist() == [1, 2, 3]
    assert found.table.column("_source").unique().to_pylist() == ["table"]


def test_a_column_that_a_query_reads_is_a_field(tmp_path: Path) -> None:
    rows = with_column("source", "n", "n", "s")
    ready = job(tmp_path, rows, OPEN)
    assert ready.record.fields == {"s": ("source",)}
    assert [field.name for field in ready.program.plan().events[0].fields] == ["k", "source"]
    assert records(ready, rows).table.column("source:string").to_pylist() == ["n", "n", "s"]


def test_what_was_decided_stays(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    ready = job(tmp_path, with_column("offset", 1, 2, 1))
    write_record(ready.deployment.checkpoint, ready.record)
    kept = read_record(ready.deployment.checkpoint)
    assert kept is not None
    assert kept.fields == {"s": ("offset",)}
    (tmp_path / "in" / "1.jsonl").unlink()
    again = job(tmp_path, with_column("offset", 1, 2, 3))
    assert again.record.fields == {"s": ("offset",)}
    assert records(again, with_column("offset", 7, 8)).system("offset").tolist() == [1, 2]


def test_a_checkpoint_of_an_older_release_reads_columns_as_it_did(tmp_path: Path) -> None:
    rows = with_column("offset", 1, 2, 1)
    (tmp_path / "state").mkdir()
    ready = job(tmp_path, rows)
    write_record(ready.deployment.checkpoint, ready.record)
    file = tmp_path / "state" / "ensue.json"
    record = json.loads(file.read_text())
    del record["fields"]
    file.write_text(json.dumps(record))
    again = job(tmp_path, rows)
    assert records(again, rows).system("offset").tolist() == [1, 2, 1]


def test_the_event_of_a_source_wins_over_any_column(tmp_path: Path) -> None:
    rows = with_column("event", "A", "B", "")
    assert records(job(tmp_path, rows, event="A"), rows).system("kind").tolist() == [0, 0, 0]


def test_a_source_names_its_columns(tmp_path: Path) -> None:
    rows = [{"at": place, "k": "x", "event": "B", "region": "n", "n": 5 * place} for place in range(3)]
    found = records(job(tmp_path, rows, type="none", partition="region", offset="n"), rows)
    assert found.system("kind").tolist() == [0, 0, 0]
    assert found.system("offset").tolist() == [0, 5, 10]
    assert len(set(found.system("partition").tolist())) == 1
    assert found.system("partition")[0] >= 1 << 62


def test_a_repeated_place_of_named_columns_is_malformed_with_both_rows(tmp_path: Path) -> None:
    rows = with_column("n", 1, 2, 3)
    ready = job(tmp_path, rows, offset="n")
    found = records(ready, with_column("n", 4, 5, 4))
    assert found.system("kind").tolist() == [0, 0, RecordKind.MALFORMED]
    assert "has the place of row 1, offset 4" in str(found.table.column("_text")[2])
    with pytest.raises(InputError, match="row 3 has the place of row 1, 4"):
        job(tmp_path, with_column("n", 4, 5, 4), offset="n")


def test_the_words_for_the_type_are_one_setting(tmp_path: Path) -> None:
    rows = with_column("kind", "A", "A")
    old, new = (job(tmp_path, rows, **{word: "kind"}) for word in ("type_field", "type"))
    assert old.record.sources == new.record.sources
    with pytest.raises(FileErrors, match="'s' has both 'type' and 'type_field'; expected one of them"):
        job(tmp_path, rows, type="kind", type_field="kind")


@pytest.mark.parametrize("key", ["partition", "offset"])
def test_messages_have_places_of_their_own(tmp_path: Path, key: str) -> None:
    source = {
        "format": "kafka",
        "event": "A",
        key: "x",
        "options": {"kafka.bootstrap.servers": "h:1", "subscribe": "t"},
    }
    with pytest.raises(FileErrors, match=f"'{key}' is not a setting of Kafka sources"):
        load_deployment(write_job(tmp_path, A, sources={"s": source}))


def test_a_table_of_delta_shows_what_cannot_be_ours(tmp_path: Path) -> None:
    rows = [{"at": 1.0, "k": "x", "event": {"a": 1}, "source": {"ip": "a"}, "partition": 1.5, "offset": 1}]
    write_deltalake(tmp_path / "in", pa.Table.from_pylist(rows))
    ready = checked(
        load_deployment(write_job(tmp_path, A, sources={"s": {"path": "in", "format": "delta", "arrival": "at"}}))
    )
    assert ready.record.fields == {"s": ("event", "source", "partition")}


def test_an_event_type_in_a_column_that_was_a_field_is_malformed(tmp_path: Path) -> None:
    ready = job(tmp_path, with_column("event", "start", "stop"))
    found = records(ready, with_column("event", "start", "A"))
    assert found.system("kind").tolist() == [0, RecordKind.MALFORMED]
    assert "has the event type 'A' here" in str(found.table.column("_text")[1])
    plain = job(tmp_path, with_column("event", "start", "stop"), type="none")
    assert records(plain, with_column("event", "start", "A")).system("kind").tolist() == [0, 0]


@pytest.mark.parametrize("path", ["queries/../in", "link"])
def test_a_source_is_looked_at_however_its_folder_is_written(tmp_path: Path, path: str) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    assert job(tmp_path, with_column("offset", 1, 2, 1), path=path).record.fields == {"s": ("offset",)}


AB = """event A { string k; }
event B { string k; }
query Q { inputs { A() key k retain 2; B() key k retain 2; } find A as a -> B as b }"""


@pytest.mark.parametrize("named", ["Unknown", "login"])
def test_first_files_without_a_type_of_the_queries_leave_the_column_of_types(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, named: str
) -> None:
    ready = job(tmp_path, with_column("event", named, named), AB)
    assert ready.record.fields == {}
    assert not caplog.messages
    later = with_column("event", named, "A", "B")
    assert records(ready, later).system("kind").tolist() == [RecordKind.UNKNOWN_TYPE, 0, 1]


def test_columns_of_one_type_tell_what_the_rows_of_first_files_are(tmp_path: Path) -> None:
    text = AB.replace("event B { string k; }", "event B { string k; integer more; }")
    rows = with_column("event", "login", "logout")
    ready = job(tmp_path, rows, text)
    assert ready.record.fields == {"s": ("event",)}
    assert records(ready, rows).system("kind").tolist() == [0, 0]
