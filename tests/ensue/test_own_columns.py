"""Columns called like ours: read as ours, or as fields of users, the same however a table is cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import ensue
from ensue.data_options import DataOptions
from ensue.replay_to_file import replay_to_file
from runtime.reading.inference.own_columns import MOST_SOURCES
from tests.ensue.command import Run

PAIRS = "event A { string k; } query Q { inputs { A() key k retain 2; } find A as a -> A as b }"
OPEN = "query Q { inputs { A() key k retain 2; } find A as a -> A as b where b.%s = a.%s }"
ROWS = [{"at": place, "k": "x"} for place in range(4)]


def with_column(name: str, *values: Any) -> list[dict[str, Any]]:
    """Four rows with one more column."""
    return [row | {name: value} for row, value in zip(ROWS, values, strict=True)]


def csv(folder: Path, rows: list[dict[str, Any]]) -> Path:
    pd.DataFrame(rows).to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def jsonl(folder: Path, rows: list[dict[str, Any]]) -> Path:
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "t.jsonl"


def parquet(folder: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), folder / "t.parquet", row_group_size=2)
    return folder / "t.parquet"


def arrow(folder: Path, rows: list[dict[str, Any]]) -> Path:
    feather.write_feather(pa.Table.from_pylist(rows), folder / "t.arrow")
    return folder / "t.arrow"


KINDS: dict[str, Callable[[Path, list[dict[str, Any]]], Any]] = {
    "rows": lambda _, rows: rows,
    "pandas": lambda _, rows: pd.DataFrame(rows),
    "arrow": lambda _, rows: pa.Table.from_pylist(rows),
    "csv": csv,
    "jsonl": jsonl,
    "parquet": parquet,
    "arrow file": arrow,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("event", ("start", "stop", "start", "stop"), "no value of it is A, such as 'start'"),
        ("offset", ("+01:00", "+02:00", "+01:00", "+01:00"), "'+01:00' is not an integer"),
        ("offset", (1.5, 2.5, 1.5, 1.5), "is not an integer"),
        ("offset", (1, 2, 1, 2), "row 3 has the place of row 1, 1"),
        ("offset", (9, 7, 5, 3), "row 1 has 9, row 2 has 7"),
        ("partition", (1.5, 2.5, 1.5, 1.5), "is neither text nor an integer"),
    ],
)
def test_a_column_whose_values_cannot_be_ours_is_a_field(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, name: str, values: tuple[Any, ...], told: str
) -> None:
    result = ensue.replay(PAIRS, KINDS[kind](tmp_path, with_column(name, *values)))
    assert (len(result.matches), result.ledger["source"].nunique()) == (3, 1)
    assert result.matches["match_id"].is_unique
    (message,) = caplog.messages
    assert f"'{name}' is a field, not" in message
    assert told in message


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "csv"])
@pytest.mark.parametrize("name", ["event", "source", "partition", "offset"])
def test_objects_are_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, name: str) -> None:
    rows = with_column(name, *({"ip": f"10.0.0.{number}"} for number in range(4)))
    result = ensue.replay(PAIRS, KINDS[kind](tmp_path, rows))
    assert (len(result.matches), result.ledger["source"].nunique()) == (3, 1)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["event", "source", "partition", "offset", "ts"])
def test_a_query_reads_fields_called_like_ours(tmp_path: Path, kind: str, name: str) -> None:
    rows = with_column(name, 1, 2, 3, 3)
    result = ensue.replay(
        OPEN % (f"#{name}" if name == "event" else name, name.replace("event", "#event")), KINDS[kind](tmp_path, rows)
    )
    assert [(match["members"]["a"]["row"], match["members"]["b"]["row"]) for match in result.match_objects()] == [
        (3, 4)
    ]


def test_a_query_reads_the_time_of_arrival_too() -> None:
    rows = [{"at": 1, "k": "x"}, {"at": 5, "k": "x"}]
    text = "query Q { inputs { A() key k retain 2; } find A as a -> A as b where b.at - a.at = 4 }"
    assert len(ensue.replay(text, rows)) == 1


def test_a_column_that_a_definition_has_is_a_field(caplog: pytest.LogCaptureFixture) -> None:
    text = PAIRS.replace("string k;", "string k; string source;")
    result = ensue.replay(text, with_column("source", "n", "s", "n", "s"))
    assert len(result.ledger["source"].unique()) == 1
    told = "table: 'source' is a field, not the source of records: A has a field of this name"
    assert caplog.messages == [f'{told}; `source_column="source"` says otherwise']


def test_so_many_different_texts_are_not_sources(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"at": place, "k": "x", "source": f"s{place}"} for place in range(MOST_SOURCES + 1)]
    assert ensue.replay(PAIRS, rows[:-1]).ledger["source"].nunique() == MOST_SOURCES
    assert not caplog.messages
    assert ensue.replay(PAIRS, rows).ledger["source"].unique().tolist() == ["table"]
    assert "1,001 different values" in caplog.text
    with pytest.raises(ensue.InputError, match="'source' is not a column of sources: it has 1,001 different values"):
        ensue.replay(PAIRS, rows, source_column="source")
    halves = [rows[:600], rows[600:]]
    assert ensue.replay(PAIRS, halves).ledger["source"].nunique() == 2


def test_texts_are_partitions() -> None:
    rows = with_column("partition", "north", "south", "north", "7")
    result = ensue.replay(PAIRS, [row | {"offset": place // 2} for place, row in enumerate(rows[:3])] + rows[3:])
    assert result.matches["match_id"].is_unique
    whole, text = (
        ensue.replay(PAIRS, with_column("partition", *values)) for values in ((7, 7, 7, 7), ("7", "7", "7", "x"))
    )
    assert whole.matches["match_id"].tolist()[:2] == text.matches["match_id"].tolist()[:2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_place_of_columns_that_are_named_is_an_error_with_both_rows(tmp_path: Path, kind: str) -> None:
    table = KINDS[kind](tmp_path, with_column("n", 1, 2, 2, 3))
    with pytest.raises(ensue.InputError, match='row 3 has the place of row 2, 2; leave out `offset_column="NAME"`'):
        ensue.replay(PAIRS, table, offset_column="n")


def test_offsets_of_one_source_in_two_tables_are_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    rows = [row | {"source": "s", "offset": place} for place, row in enumerate(ROWS)]
    assert ensue.replay(PAIRS, [rows, rows]).matches["match_id"].is_unique
    assert "row 1 of table#2 has the place of row 1 of table" in caplog.text
    caplog.clear()
    with pytest.raises(ensue.InputError, match="row 1 of table#2 has the place of row 1 of table, 0"):
        ensue.replay(PAIRS, [rows, rows], offset_column="offset")
    ensue.replay(PAIRS, [rows[:2], rows[2:]])
    assert not caplog.messages


@pytest.mark.parametrize("kind", KINDS)
def test_users_decide_which_columns_are_ours(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    rows = [
        row | {"event": "A" if place else "B", "host": "h", "part": "p", "n": 5 * place}
        for place, row in enumerate(ROWS)
    ]
    table = KINDS[kind](tmp_path, rows)
    result = ensue.replay(PAIRS, table, type="none", source_column="host", partition_column="part", offset_column="n")
    assert (len(result), result.ledger["source"].unique().tolist()) == (3, ["h"])
    assert [match["members"]["b"]["row"] for match in result.match_objects()] == [2, 3, 4]
    assert len(ensue.replay(PAIRS, table)) == 2
    assert not caplog.messages


def test_a_decision_is_about_all_tables() -> None:
    other, own = [{"at": 1, "event": "B", "k": "x"}], [{"at": 2, "event": "A", "k": "x"}]
    result = ensue.replay(PAIRS, [other, own])
    assert result.discarded["reason"].tolist() == ["unknown_type"]


def test_a_decision_is_the_same_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.replay.records.LEAST", 1)
    rows = [{"at": place, "k": "x", "offset": place % 5, "event": "s"} for place in range(500)]
    pieces = ensue.replay(PAIRS, parquet(tmp_path, rows))
    assert len(pieces) == 499
    assert pieces.matches["match_id"].is_unique
    replay_to_file(ensue.load(PAIRS), [tmp_path / "t.parquet"], DataOptions(), tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").column("match_id").to_pylist() == pieces.matches["match_id"].tolist()


@pytest.mark.parametrize("options", [[], ["--format", "steps"], ["--json"], ["--out", "found.jsonl"]])
def test_types_that_are_unknown_for_every_row_are_one_line_and_an_exit_code(
    ensue: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.query").write_text(PAIRS)
    csv(tmp_path, with_column("kind", *"BCDE"))
    done = ensue("replay", "q.query", "t.csv", "--type", "kind", *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "no row has an event type that the queries read: they read A, and the rows are 'B', 'C', 'D' and 1 more;"
        " `--type none` where the column is a field\n"
    )


def test_a_slip_in_an_event_type_is_not_a_field(caplog: pytest.LogCaptureFixture) -> None:
    text = (
        PAIRS.replace("A()", "Withdrawl()")
        .replace("event A", "event Withdrawl")
        .replace("find A", "find Withdrawl")
        .replace("-> A", "-> Withdrawl")
    )
    result = ensue.replay(text, with_column("event", *["Withdrawal", "Deposit"] * 2))
    assert result.discarded["reason"].tolist() == ["unknown_type"] * 4
    assert not caplog.messages


def test_times_that_are_none_are_fields_where_others_are(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"ts": place, "at": f"gate {place}", "k": "x"} for place in range(3)]
    assert len(ensue.replay(PAIRS, rows)) == 2
    assert "'at' is a field, not a time of ours" in caplog.text


def test_open_queries_decide_by_the_first_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    live = ensue.open(
        "query Q { inputs { A() key k retain 2; } find A as a -> A as b where b.event = a.event }".replace(
            ".event", ".#event"
        )
    )
    assert len(live.send([{"at": 1, "k": "x", "event": "start"}])) == 0
    assert "'event' is a field" in caplog.text
    assert len(live.send({"at": 2, "k": "x", "event": "start"})) == 1
    with pytest.raises(ensue.InputError, match="'event' was a field in the first rows, and here it has event types"):
        live.send({"at": 3, "k": "x", "event": "A"})
    live.save(tmp_path / "a.state")
    again = ensue.open(live._plan.queries, tmp_path / "a.state")
    assert len(again.send({"at": 3, "k": "x", "event": "start"})) == 1


def test_open_queries_whose_types_are_defined_may_get_other_types_first() -> None:
    live = ensue.open(PAIRS)
    assert live.send({"at": 1, "k": "x", "event": "B"}).discarded["reason"].tolist() == ["unknown_type"]
    assert len(live.send([{"at": 2, "k": "x", "event": "A"}, {"at": 3, "k": "x", "event": "A"}])) == 1
    objects = ensue.open(PAIRS)
    assert len(objects.send([row | {"event": {"a": 1}, "source": {"b": 1}} for row in ROWS])) == 3


def test_open_queries_refuse_a_place_that_an_earlier_call_has_sent(tmp_path: Path) -> None:
    live = ensue.open(PAIRS)
    live.send([{"at": 1, "k": "x", "offset": 5}, {"at": 1, "k": "x", "offset": 7}])
    assert len(live.send({"at": 2, "k": "x", "offset": 6})) == 1
    live.save(tmp_path / "a.state")
    for one in (live, ensue.open(PAIRS, tmp_path / "a.state")):
        with pytest.raises(ensue.InputError, match="row 4 of 'table' has the place of an earlier row, offset 6"):
            one.send({"at": 3, "k": "x", "offset": 6})
        assert len(one.send({"at": 3, "k": "x", "offset": 8})) == 1


UNTYPED = {
    "one type, another field": (
        "event A { integer y; } query Q { inputs { A() retain 1; } find A as a }",
        "no value of 'event' is A, such as 'foo', nor do its columns fit: A has y;",
    ),
    "several types, all fit": (
        "event A { integer n; } event B { integer n; } query Q { inputs { A() retain 1; B() retain 1; } find A as a -> B as b }",
        "no value of 'event' is A or B, such as 'foo', and its columns fit A and B;",
    ),
    "several types, none fits": (
        "event A { integer y; } event B { integer z; } query Q { inputs { A() retain 1; B() retain 1; } find A as a -> B as b }",
        "no value of 'event' is A or B, such as 'foo', nor do its columns fit: A has y and B has z;",
    ),
    "several types without definitions": (
        "query Q { inputs { A() retain 1; B() retain 1; } find A as a -> B as b }",
        "no value of 'event' is A or B, such as 'foo', and nothing defines these types;",
    ),
}


@pytest.mark.parametrize("case", UNTYPED)
def test_types_that_no_query_knows_are_one_line_and_exit_code_1(ensue: Run, tmp_path: Path, case: str) -> None:
    text, reason = UNTYPED[case]
    (tmp_path / "q.query").write_text(text)
    (tmp_path / "t.csv").write_text("at,event,n\n1,foo,1\n2,bar,2\n")
    done = ensue("replay", str(tmp_path / "q.query"), str(tmp_path / "t.csv"))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"t.csv: no row has an event type that the queries read: {reason} name the column of types" in line


def test_tables_whose_columns_tell_their_types_are_read_whatever_event_is(tmp_path: Path) -> None:
    text = "event Slow { integer k; integer x; } event Fast { integer k; integer y; }"
    text += "query Q { inputs { Slow() key k retain 1; Fast() key k retain 1; } find Slow as a -> Fast as b }"
    slow, fast = [{"at": 1, "event": "foo", "k": 1, "x": 1}], [{"at": 2, "event": "bar", "k": 1, "y": 1}]
    for kind in KINDS.values():
        (tmp_path / "1").mkdir(exist_ok=True)
        (tmp_path / "2").mkdir(exist_ok=True)
        tables = [kind(tmp_path / "1", slow), kind(tmp_path / "2", fast)]
        assert len(ensue.replay(text, tables).matches) == 1
