"""Event tables become arrivals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

from ensue import replay
from querylang import compile_text
from querylang.errors import InputError
from querylang.plan.expression import Type
from querylang.plan.model import Plan, plain_field
from runtime.columns.arrivals import Arrivals, RecordKind, arrivals_schema
from runtime.instants import NO_TIME
from runtime.reading.column_names import ColumnNames
from runtime.reading.formats.blocks import Blocks
from runtime.reading.inference.schema import infer_schemas
from runtime.reading.tables import iter_arrivals, iter_raw, read_arrivals
from runtime.timestamps import parse_time
from tests.support.pace import measured

A = "event A { integer id; string name; float v; boolean ok; }\n"
B = "event B { string id; float ts; }\n"
ONE = compile_text(A + "inputs { A() within 30.0 wait 20.0; } find A as a1 -> A as a2").plan
NO_WAIT = compile_text(A + "inputs { A() within 30.0; } find A as a1 -> A as a2").plan
BOTH = compile_text(
    A + B + "event H { float ts; }\n"
    "query Q { inputs { A() within 30.0 wait 20.0; B() within 30.0 time from ts wait 5.0 or H; } find A as a -> B as b }"
).plan

HEADER = "at,event,ts,id,name,v,ok\n"


def test_a_plan_names_the_event_types_that_carry_their_own_time() -> None:
    assert [(event, plain_field(source)) for event, source in BOTH.time_sources()] == [("B", "ts"), ("H", "ts")]
    assert ONE.time_sources() == ()


def csv(folder: Path, text: str, name: str = "e.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def rows(arrivals: Arrivals) -> list[dict[str, Any]]:
    arrivals.table.validate(full=True)
    return [
        {name.partition(":")[0] if ":" in name else name: value for name, value in row.items() if value is not None}
        for row in arrivals.table.to_pylist()
    ]


def kinds(arrivals: Arrivals) -> list[int]:
    return list(arrivals.system("kind").tolist())


def texts(arrivals: Arrivals) -> list[str | None]:
    return list(arrivals.table.column("_text").to_pylist())


def arrival(arrivals: Arrivals) -> list[int]:
    return list(arrivals.system("arrival").tolist())


def test_a_row_of_csv_is_an_arrival(tmp_path: Path) -> None:
    arrivals = read_arrivals(csv(tmp_path, HEADER + "10:00:20,A,10:00:10,1,x,2.5,true\n"), ONE)
    assert arrivals.table.schema == arrivals_schema(ONE)
    assert rows(arrivals) == [
        {
            "_kind": 0,
            "_arrival": parse_time("10:00:20"),
            "_source": "e.csv",
            "_partition": 0,
            "_place": 0,
            "_offset": 1,
            "_source_time": parse_time("10:00:10"),
            "id": 1,
            "name": "x",
            "v": 2.5,
            "ok": True,
        }
    ]


def test_an_empty_cell_is_null_and_two_quotes_are_the_empty_string(tmp_path: Path) -> None:
    arrivals = read_arrivals(csv(tmp_path, HEADER + '1,A,1,1,"",,\n2,A,1,2,,,\n'), ONE)
    assert arrivals.table.column("name:string").to_pylist() == ["", None]
    assert arrivals.table.column("v:float").to_pylist() == [None, None]


MALFORMED = [
    ("1,A,1,x,n,1,true", "line 3: 'x' is not a value of 'id' (integer): 1,A,1,x,n,1,true"),
    ("1,A,1,1.5,n,1,true", "line 3: '1.5' is not a value of 'id' (integer): 1,A,1,1.5,n,1,true"),
    ("1,A,1,1,n,1,maybe", "line 3: 'maybe' is not a value of 'ok' (boolean): 1,A,1,1,n,1,maybe"),
    ("soon,A,1,1,n,1,true", "line 3: 'soon' in 'at' is not a time: soon,A,1,1,n,1,true"),
    (",A,1,1,n,1,true", "line 3: 'at' is empty: ,A,1,1,n,1,true"),
    ("1,A,then,1,n,1,true", "line 3: 'then' in 'ts' is not a time: 1,A,then,1,n,1,true"),
    ("1,A,1", "line 3: 3 cells where the header has 7: 1,A,1"),
    ("1,A,1,1,n,1,true,9", "line 3: 8 cells where the header has 7: 1,A,1,1,n,1,true,9"),
    ('1,A,1,1,"n,1,true', 'line 3: a quote is not closed, or occurs inside a cell: 1,A,1,1,"n,1,true'),
    ("1,A(1),1,,,,", "line 3: 'A' has 4 fields, 1 given: 1,A(1),1,,,,"),
    ("1,A(1,1,,,,,", "line 3: 8 cells where the header has 7: 1,A(1,1,,,,,"),
]


@pytest.mark.parametrize(("line", "told"), MALFORMED, ids=[told[8:40] for _, told in MALFORMED])
def test_a_row_that_cannot_be_read_says_where_and_why_and_the_rest_goes_on(
    line: str, told: str, tmp_path: Path
) -> None:
    arrivals = read_arrivals(csv(tmp_path, HEADER + f"1,A,1,1,x,1,true\n{line}\n2,A,2,3,x,1,true\n"), ONE)
    assert kinds(arrivals) == [0, RecordKind.MALFORMED, 0]
    assert texts(arrivals) == [None, told, None]
    assert arrivals.system("offset").tolist() == [1, 2, 3]
    assert arrival(arrivals)[1] in {1_000_000, 2_000_000}


def test_line_numbers_count_blank_lines_and_lines_inside_of_cells(tmp_path: Path) -> None:
    arrivals = read_arrivals(csv(tmp_path, HEADER + '1,A,1,1,"a\nb",1,true\n\n\n2,A,2,x,n,1,true\n'), ONE)
    assert arrivals.table.column("name:string")[0].as_py() == "a\nb"
    assert texts(arrivals)[1] == "line 6: 'x' is not a value of 'id' (integer): 2,A,2,x,n,1,true"


def test_an_open_quote_spoils_its_own_line_only(tmp_path: Path) -> None:
    lines = ['1,A,1,1,"n,1,true', "2,A,1,2,n,1,true", '3,A,1,3,"n",1,true']
    arrivals = read_arrivals(csv(tmp_path, HEADER + "\n".join(lines)), ONE)
    assert kinds(arrivals) == [RecordKind.MALFORMED, 0, 0]
    assert arrivals.table.column("id:integer").to_pylist() == [None, 2, 3]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_way(tmp_path: Path, end: str) -> None:
    (tmp_path / "e.csv").write_bytes((HEADER + "1,A,1,1,n,1,true\n2,A,1,2,n,1,true\n").replace("\n", end).encode())
    assert read_arrivals(tmp_path / "e.csv", ONE).table.column("id:integer").to_pylist() == [1, 2]


def test_an_empty_last_cell_is_null_also_without_a_line_end(tmp_path: Path) -> None:
    for end in ("", "\n"):
        (tmp_path / "e.csv").write_text('at,event,ts,id,v,ok,name\n1,A,1,1,1,"true",' + end)
        assert read_arrivals(tmp_path / "e.csv", ONE).table.column("name:string").to_pylist() == [None]


def test_a_return_that_ends_no_line_makes_its_record_malformed_wherever_it_is(tmp_path: Path) -> None:
    head = "name,at,event,ts,id,v,ok\n"
    (tmp_path / "e.csv").write_bytes(f'{head}\rx,1,A,1,1,1,true\nx,1,A,1,1,1,true\n"\ry",1,A,1,1,1,true\n'.encode())
    arrivals = read_arrivals(tmp_path / "e.csv", ONE)
    assert kinds(arrivals) == [RecordKind.MALFORMED, 0, 0]
    assert arrivals.table.column("name:string").to_pylist() == [None, "x", "\ry"]


def test_long_integers_of_json_keep_all_digits_whatever_other_rows_hold(tmp_path: Path) -> None:
    plan = compile_text("event A { string k; decimal d; } inputs { A() key k within 9.0; } find A as a").plan
    long, longer = 12345678901234567890, 12345678901234567891
    for others in ([], [{"at": 3, "event": "A", "k": 1.5, "d": 1}], [{"at": 3, "event": "A", "k": [1], "d": 0.5}]):
        rows = [{"at": 1, "event": "A", "k": long, "d": 2**53 + 1}, {"at": 2, "event": "A", "k": longer, "d": 1}]
        (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, [*rows, *others])))
        table = read_arrivals(tmp_path / "e.jsonl", plan).table
        assert table.column("k:string").to_pylist()[:2] == [str(long), str(longer)]
        assert table.column("d:decimal").to_pylist()[0] == 2**53 + 1


MIXED: list[Any] = ["x", [1], {"a": 1}, 5, None, [], "[1]"]


@pytest.mark.parametrize("type_", ["string", "optional<string>"])
@pytest.mark.parametrize("kind", ["lines", "list", "pandas", "parts"])
def test_lists_and_objects_are_not_text_whatever_other_rows_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, type_: str
) -> None:
    plan = compile_text(f"event A {{ {type_} k; }} inputs {{ A() within 9.0; }} find A as a").plan
    table: Any = [{"at": number, "event": "A", "k": value} for number, value in enumerate(MIXED)]
    if kind == "pandas":
        table = pd.DataFrame(table)
    elif kind != "list":
        (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, table)))
        table = tmp_path / "e.jsonl"
    if kind == "parts":
        monkeypatch.setattr(Blocks.__init__, "__defaults__", (20,))
    arrivals = read_arrivals(table, plan)
    bad = RecordKind.MALFORMED
    assert kinds(arrivals) == [0, bad, bad, 0, 0, bad, 0]
    texts = arrivals.table.column(f"k:{type_}").filter(pa.array(arrivals.system("kind") == 0))
    assert texts.to_pylist() == ["x", "5", None, "[1]"]


def test_json_objects_without_names_are_rows(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text("{}\n{}\n")
    assert [len(part) for part in iter_raw(tmp_path / "e.jsonl")] == [2]


def test_blank_lines_behind_a_block_change_no_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Blocks.__init__, "__defaults__", (60,))
    lines = [f'{{"at": {number}, "event": "A", "id": "x"}}' for number in range(1, 4)]
    (tmp_path / "e.jsonl").write_text("\n".join(lines) + "\n" * 60)
    plan = compile_text("event A { integer id; } inputs { A() within 9.0; } find A as a").plan
    texts = read_arrivals(tmp_path / "e.jsonl", plan).table.column("_text").to_pylist()
    assert [str(text).partition(":")[0] for text in texts] == ["line 1", "line 2", "line 3"]


NOT_UTF8 = pc.CastOptions(pa.string(), allow_invalid_utf8=True)


def any_bytes(*cells: bytes | None) -> pa.Array:
    return pc.cast(pa.array(cells, pa.binary()), options=NOT_UTF8)


def texts_of(table: Any) -> tuple[list[int], list[str | None]]:
    arrivals = read_arrivals(table, ONE)
    arrivals.table.validate(full=True)
    return kinds(arrivals), arrivals.table.column("_text").to_pylist()


def test_csv_bytes_that_are_not_utf8_make_their_record_malformed(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_bytes(HEADER.encode() + b"1,A,1,1,\xff,1,true\n2,A,1,2,x,1,true\n")
    found, texts = texts_of(tmp_path / "e.csv")
    assert found == [RecordKind.MALFORMED, 0]
    told = r"line 2: '\xff' in 'name' is not UTF-8 text; if it is latin-1: `--csv encoding=latin-1`: "
    assert texts == [told + "1,A,1,1,\ufffd,1,true", None]


def test_a_name_of_a_column_that_is_not_utf8_tells_of_the_encoding(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_bytes("at,grad °C\n1,5\n".encode("latin-1"))
    plan = compile_text("event A { float `grad °C`; } inputs { A() retain 1; } find A as a").plan
    told = (
        "has no column 'grad °C', a field of 'A'; 'grad \ufffdC' is not UTF-8 text; if it is latin-1: `--csv encoding"
    )
    with pytest.raises(InputError, match=told):
        read_arrivals(tmp_path / "e.csv", plan)


def test_columns_that_no_query_needs_may_hold_any_bytes(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_bytes(b"note," + HEADER.encode() + b"\xff,1,A,1,1,x,1,true\n")
    assert texts_of(tmp_path / "e.csv") == ([0], [None])


ROWS = {"at": [1, 2, 3], "event": ["A"] * 3, "ts": [1, 2, 3], "id": [1, 2, 3], "v": [1.0] * 3, "ok": [True] * 3}
BROKEN = any_bytes(b"x", b"h\xffi", b"y")
SHOWN = (
    """row 2: 'h\\xffi' in 'name' is not UTF-8 text: {"at": 2, "event": "A", "ts": 2, "id": 2, "v": 1.0, "ok": true, """
)


@pytest.mark.parametrize(
    "names",
    [
        BROKEN,
        pc.cast(BROKEN, options=pc.CastOptions(pa.large_string(), allow_invalid_utf8=True)),
        pc.cast(BROKEN, options=pc.CastOptions(pa.string_view(), allow_invalid_utf8=True)),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), BROKEN),
        pa.chunked_array([BROKEN[:1], BROKEN[1:]]),
    ],
    ids=lambda names: str(names.type),
)
def test_text_in_memory_that_is_not_utf8_makes_its_row_malformed(names: pa.Array) -> None:
    found, texts = texts_of(pa.table(ROWS | {"name": names}))
    assert found == [0, RecordKind.MALFORMED, 0]
    assert texts == [None, SHOWN + '"name": "h\\\\xffi"}', None]


def test_views_of_text_as_polars_gives_them_are_text() -> None:
    view = pa.string_view()
    columns = {
        "at": pa.array([1, 2]),
        "name": pa.array(["x", None], view),
        "kind": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.uint32()), pa.array(["p", "q"], view)),
        "tags": pa.array([["t"], []], pa.large_list(view)),
        "user": pa.array([{"id": "u"}, {"id": None}], pa.struct([("id", view)])),
        "codes": pa.array([["c"], []], pa.list_view(view)),
    }
    found = infer_schemas(pa.table(columns), event="A")
    assert {name: str(type_) for name, type_ in found["A"].items()} == {
        "name": "string",
        "kind": "string",
        "tags": "sequence<string>",
        "user": "A_user",
        "codes": "sequence<string>",
    }
    text = "query Q { inputs { A() retain 1; } find A as a { print a.toString(); } }"
    assert replay(text, pa.table(columns)).outputs["text"].tolist() == [
        'A("x","p",["t"],A_user("u"),["c"])',
        'A(null,"q",[],A_user(null),[])',
    ]


def test_text_of_parquet_that_is_not_utf8_makes_its_row_malformed(tmp_path: Path) -> None:
    for name, column in {"name": BROKEN, "event": any_bytes(b"A", b"A\xff", b"A")}.items():
        table = pa.table(ROWS | {"name": ["x"] * 3} | {name: column})
        pa.parquet.write_table(table, tmp_path / "e.parquet")
        found, texts = texts_of(tmp_path / "e.parquet")
        assert found == [0, RecordKind.MALFORMED, 0]
        assert f"in '{name}' is not UTF-8 text" in str(texts[1])
        assert "A" in infer_schemas(tmp_path / "e.parquet")


def test_event_types_may_be_declared_as_bytes() -> None:
    events = pa.array([b"A", b"A\xff", b"A"])
    found, texts = texts_of(pa.table(ROWS | {"event": events, "name": ["x"] * 3}))
    assert found == [0, RecordKind.MALFORMED, 0]
    assert "is not UTF-8 text" in str(texts[1])


def test_halves_of_surrogate_pairs_in_pandas_make_their_row_malformed() -> None:
    found, texts = texts_of(pd.DataFrame(ROWS | {"name": ["x", "\ud800", None]}))
    assert found == [0, RecordKind.MALFORMED, 0]
    assert "in 'name' is not UTF-8 text" in str(texts[1])


@pytest.mark.parametrize("type_", ["sequence<string>", "dictionary<string, integer>", "C"])
def test_text_inside_of_values_that_is_not_utf8_makes_the_row_malformed(type_: str) -> None:
    text = f"event A {{ {type_} x; }} event C {{ string s; }} inputs {{ A() within 9.0; }} find A as a"
    parts = {
        "sequence<string>": pa.ListArray.from_arrays([0, 0, 3], BROKEN),
        "dictionary<string, integer>": pa.MapArray.from_arrays([0, 0, 3], BROKEN, pa.array([1, 2, 3])),
        "C": pa.StructArray.from_arrays([any_bytes(b"x", b"\xff")], ["s"]),
    }
    arrivals = read_arrivals(pa.table({"at": [1, 2], "event": ["A", "A"], "x": parts[type_]}), compile_text(text).plan)
    assert kinds(arrivals) == [0, RecordKind.MALFORMED]


def test_ticks_controls_and_unknown_types(tmp_path: Path) -> None:
    text = '1,,,,,,\n2,"com.apama.queries.SetDelayedEventsLeeway(300.0, 10.0)",,,,,\n3,C,,,,,\n4,C(1),,,,,\n'
    arrivals = read_arrivals(csv(tmp_path, HEADER + text + '5,"Heartbeat(""A"", 4.0)",,,,,\n'), ONE)
    assert kinds(arrivals) == [
        RecordKind.TICK,
        RecordKind.CONTROL,
        RecordKind.UNKNOWN_TYPE,
        RecordKind.UNKNOWN_TYPE,
        RecordKind.CONTROL,
    ]
    assert texts(arrivals) == [
        None,
        "com.apama.queries.SetDelayedEventsLeeway(300.0, 10.0)",
        "C",
        "C",
        'Heartbeat("A", 4.0)',
    ]


def test_an_event_written_as_text_fills_its_fields(tmp_path: Path) -> None:
    table = [{"at": 1, "event": 'pkg.A(1,"x,y",3,true)', "ts": 1}, {"at": 2, "event": 'B("k",null)', "ts": None}]
    first, second = rows(read_arrivals(table, BOTH))
    assert (first["id"], first["name"], first["v"], first["ok"]) == (1, "x,y", 3.0, True)
    assert second["_kind"] == 1
    assert second["id"] == "k"
    assert "ts" not in second


def test_two_types_may_use_one_name_for_different_fields() -> None:
    table = [
        {"at": 1, "event": "A", "ts": "10:00:00", "id": "7", "name": "n", "v": "1", "ok": "0"},
        {"at": 2, "event": "B", "ts": "10:00:01", "id": "seven", "name": None, "v": "none", "ok": None},
    ]
    arrivals = read_arrivals(table, BOTH)
    assert arrivals.table.column("id:integer").to_pylist() == [7, None]
    assert arrivals.table.column("id:string").to_pylist() == [None, "seven"]
    assert arrivals.table.column("ts:float").to_pylist() == [None, 36_001.0]
    assert kinds(arrivals) == [0, 1]


def test_without_a_type_column_every_row_is_of_the_only_input_type() -> None:
    table = pd.DataFrame(
        {"at": [1, 2], "ts": [1, 2], "id": [1, 2], "name": ["a", None], "v": [1.0, None], "ok": [True, False]}
    )
    arrivals = read_arrivals(table, ONE)
    assert kinds(arrivals) == [0, 0]
    assert arrivals.table.column("v:float").to_pylist() == [1.0, None]
    assert arrivals.table.column("_source").to_pylist() == ["table", "table"]


def test_history_is_taken_in_order_of_source_time_and_arrives_at_it() -> None:
    table = [
        {"event": "A", "ts": 30, "id": 1, "name": "", "v": 1.0, "ok": True},
        {"event": "A", "ts": 10, "id": 2, "name": "", "v": 1.0, "ok": True},
        {"event": "A", "ts": 10, "id": 3, "name": "", "v": 1.0, "ok": True},
        {"event": "A", "ts": None, "id": 4, "name": "", "v": 1.0, "ok": True},
    ]
    arrivals = read_arrivals(table, ONE)
    assert arrivals.table.column("id:integer").to_pylist() == [2, 3, 4, 1]
    assert arrival(arrivals) == [10_000_000, 10_000_000, 10_000_000, 30_000_000]
    assert arrivals.system("source_time").tolist() == [10_000_000, 10_000_000, NO_TIME, 30_000_000]


def test_history_goes_by_the_field_that_is_the_source_time() -> None:
    table = [{"event": "B", "id": "x", "ts": "10:00:01"}, {"event": "B", "id": "y", "ts": "10:00:00"}]
    arrivals = read_arrivals(table, BOTH)
    assert arrivals.table.column("id:string").to_pylist() == ["y", "x"]
    assert arrival(arrivals) == [parse_time("10:00:00"), parse_time("10:00:01")]


def test_a_number_that_is_a_source_time_keeps_all_its_digits(tmp_path: Path) -> None:
    arrivals = read_arrivals(csv(tmp_path, "at,event,id,ts\n1,B,x,4.9999999\n6,B,x,00:00:05\n7,B,x,\n8,B,x,no\n"), BOTH)
    assert arrivals.table.column("ts:float").to_pylist() == [4.9999999, 5.0, None, None]
    assert kinds(arrivals) == [1, 1, 1, RecordKind.MALFORMED]


def test_rows_are_taken_in_order_of_arrival_and_keep_their_numbers() -> None:
    table = {"at": [5, 3, 6, 3], "id": [1, 2, 3, 4], "name": "", "v": 1.0, "ok": True, "ts": 1}
    arrivals = read_arrivals(pd.DataFrame(table), ONE)
    assert arrival(arrivals) == [3_000_000, 3_000_000, 5_000_000, 6_000_000]
    assert arrivals.system("offset").tolist() == [2, 4, 1, 3]


def test_other_columns_can_be_named() -> None:
    table = pd.DataFrame(
        {"landed": [20], "kind": ["A"], "left": [10], "id": [1], "name": ["x"], "v": [1.0], "ok": [True]}
    )
    arrivals = read_arrivals(table, ONE, ColumnNames("landed", "kind", "left"), source="flights")
    assert rows(arrivals)[0]["_arrival"] == 20_000_000
    assert rows(arrivals)[0]["_source_time"] == 10_000_000
    assert rows(arrivals)[0]["_source"] == "flights"


GOOD: dict[str, Any] = {"at": 1, "event": "A", "ts": 1, "id": 1, "name": "x", "v": 1.0, "ok": True}


@pytest.mark.parametrize(
    ("table", "names", "message"),
    [
        (Path("none.csv"), ColumnNames(), "none.csv: no such file"),
        (
            5,
            ColumnNames(),
            "int is not a table; give a path, a list of rows (mappings of names to values), or a pandas, Polars or Arrow table",
        ),
        (
            pd.Series([1]),
            ColumnNames(),
            "Series is not a table; give a path, a list of rows (mappings of names to values), or a pandas, Polars or Arrow table",
        ),
        ([5, 6], ColumnNames(), "table: row 1 is int; a row is a mapping of names to values"),
        ([GOOD], ColumnNames(arrival="att"), "table: has no column 'att'; did you mean 'at'?"),
        (
            [{**GOOD, "names": "x", "name": None} | {"nam": 1}],
            ColumnNames(source_time="tss"),
            "table: has no column 'tss'; did you mean 'ts'?",
        ),
        (
            [{"at": 1, "idd": 1, "ts": 1, "name": "", "v": 1.0, "ok": True}],
            ColumnNames(),
            "table: has no column 'id', a field of 'A'; did you mean 'idd'?",
        ),
        (
            [{key: value for key, value in GOOD.items() if key != "ts"}],
            ColumnNames(),
            "table: has no column 'ts', the source time of 'A'; name it, `--source-time NAME`",
        ),
    ],
)
def test_what_cannot_be_a_table_is_one_clear_line(table: Any, names: ColumnNames, message: str) -> None:
    with pytest.raises(InputError) as raised:
        read_arrivals(table, ONE, names)
    assert str(raised.value) == message


def test_a_table_without_types_for_several_inputs_is_refused() -> None:
    with pytest.raises(InputError, match="has no column 'event', and the queries need A, B, whose fields it does not"):
        read_arrivals([{"at": 1, "ts": 1}], BOTH)


def test_a_table_without_types_has_the_only_type_whose_fields_it_has() -> None:
    plan = compile_text(
        "event Slow { string k; float target; } event Fast { string k; float v; optional<string> note; }"
        "query Q { inputs { Slow() key k retain 1; Fast() key k retain 1; }"
        "find Slow as slow -> Fast as fast } query R { inputs { Fast() retain 1; } find Fast as fast }"
    ).plan
    slow, fast = [{"at": 1, "k": "a", "target": 1.0}], [{"at": 2, "k": "a", "v": 1.0}]
    kinds = [read_arrivals(table, plan).table.column("_kind").to_pylist() for table in (slow, fast)]
    assert [[plan.events[kind].name for kind in found] for found in kinds] == [["Slow"], ["Fast"]]
    with pytest.raises(InputError, match=r"has no column 'event', and its columns fit Slow and Fast; add one, or"):
        read_arrivals([{"at": 1, "k": "a", "target": 1.0, "v": 1.0}], plan)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("e.csv", "", "is empty; a CSV table begins with a row of column names"),
        ("e.csv", "at,at\n1,2\n", "duplicate column 'at' in the header"),
        ("e.txt", "x", "unknown table format .txt; known: "),
        ("e.parquet", "x", "cannot be read as a table"),
        ("e.json", "[1,", "is not JSON"),
        ("e.yaml", "a: [", "is not YAML"),
        ("e.yaml", "&a [*a]", "e.yaml:1: *a contains itself"),
        ("e.yaml", "- {at: 1, a: 2,\n   a: 3}", "e.yaml:2: duplicate key 'a'"),
        (
            "e.yaml",
            "a: 1",
            "a YAML table is a list of rows",
        ),
        ("e.yaml", "[" * 3000, "is nested more than 100 levels deep"),
        ("e.json", "[" * 100_000, "is not JSON"),
        ("e.yaml", "- {at: 2013-13-01}", "e.yaml:1: '2013-13-01' is not a date or time that exists"),
    ],
)
def test_a_file_that_cannot_be_a_table_is_refused(name: str, content: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        read_arrivals(csv(tmp_path, content, name), ONE)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_column_is_not_needed_where_none_of_its_events_is_there() -> None:
    arrivals = read_arrivals([{"at": 1, "event": "B", "id": "x", "ts": 1.0}], BOTH)
    assert kinds(arrivals) == [1]


def test_source_time_is_not_asked_for_where_events_happen_when_they_arrive() -> None:
    assert kinds(read_arrivals([{key: value for key, value in GOOD.items() if key != "ts"}], NO_WAIT)) == [0]


def test_json_lines(tmp_path: Path) -> None:
    lines = [
        json.dumps(GOOD),
        "",
        json.dumps(GOOD | {"v": None, "name": "2020-01-01"}),
        "{broken",
        "[1]",
        "[" * 100_000,
    ]
    arrivals = read_arrivals(csv(tmp_path, "\n".join(lines), "e.jsonl"), ONE)
    assert kinds(arrivals) == [0, 0, RecordKind.MALFORMED, RecordKind.MALFORMED, RecordKind.MALFORMED]
    assert arrivals.table.column("name:string").to_pylist()[:2] == ["x", "2020-01-01"]
    assert (texts(arrivals)[2] or "").startswith("line 4: not JSON: ")
    assert (texts(arrivals)[2] or "").endswith(" (character 2): {broken")
    assert (texts(arrivals)[4] or "").startswith("line 6: not JSON: nested more than 100 deep: ")
    assert texts(arrivals)[3] == "line 5: not a mapping of names to values: [1]"


def test_json_lines_in_order_are_read_as_those_with_a_broken_one(tmp_path: Path) -> None:
    lines = [json.dumps(GOOD | {"id": number, "v": number / 2}) for number in range(5)]
    good = read_arrivals(csv(tmp_path, "\n".join(lines), "e.jsonl"), ONE)
    bad = read_arrivals(csv(tmp_path, "\n".join([*lines, "{"]), "e.jsonl"), ONE)
    assert good.table.equals(bad.table.slice(0, 5))


def test_a_json_array_and_yaml_rows_are_tables(tmp_path: Path) -> None:
    array = read_arrivals(csv(tmp_path, json.dumps([GOOD]), "e.json"), ONE, source="s")
    yaml = read_arrivals(csv(tmp_path, f"rows: [{json.dumps(GOOD)}]", "e.yaml"), ONE, source="s")
    assert array.table.equals(yaml.table)


def test_values_of_mixed_types_are_read_one_by_one() -> None:
    table = [GOOD | {"ts": pd.Timestamp("1970-01-01T00:00:05")}, GOOD | {"ts": 6}, GOOD | {"ts": "00:00:07", "id": "8"}]
    arrivals = read_arrivals(table, ONE)
    assert arrivals.system("source_time").tolist() == [5_000_000, 6_000_000, 7_000_000]
    assert arrivals.table.column("id:integer").to_pylist() == [1, 1, 8]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (pa.array(["1"]), "column 'id' is string, but field 'id' of 'A' is integer"),
        (pa.array([True]), "column 'id' is bool, but field 'id' of 'A' is integer"),
        (pa.array([[1]]), "column 'id' is list<item: int64>, but field 'id' of 'A' is integer"),
    ],
)
def test_a_schema_that_disagrees_with_the_definition_is_one_clear_line(values: pa.Array, told: str) -> None:
    with pytest.raises(InputError) as raised:
        read_arrivals(pa.Table.from_pylist([GOOD]).drop_columns("id").append_column("id", values), ONE)
    assert str(raised.value) == f"table: {told}; convert the column, or give the field another type"


def test_a_schema_may_keep_whole_numbers_as_floats_and_columns_of_objects_have_none() -> None:
    frame = pd.DataFrame([GOOD, GOOD])
    assert kinds(read_arrivals(frame.assign(id=[1.0, np.nan]), ONE)) == [0, 0]
    assert kinds(read_arrivals(frame.assign(id=["1", "x"]), ONE)) == [0, RecordKind.MALFORMED]


def big_table(count: int) -> pa.Table:
    return pa.table(
        {
            "at": pa.array(np.arange(count) * 1000, pa.timestamp("us")),
            "event": pa.array(["A"] * count),
            "ts": np.arange(count) / 1000,
            "id": np.arange(count),
            "name": pa.array(np.arange(count) % 1000).cast(pa.string()),
            "v": np.arange(count) / 7,
            "ok": np.arange(count) % 2 == 0,
        }
    )


def test_parquet_in_parts_is_parquet_as_a_whole(tmp_path: Path) -> None:
    pa.parquet.write_table(big_table(1000), tmp_path / "e.parquet", row_group_size=300)
    whole = read_arrivals(tmp_path / "e.parquet", ONE)
    parts = list(iter_arrivals(tmp_path / "e.parquet", ONE))
    assert [len(part) for part in parts] == [300, 300, 300, 100]
    assert Arrivals.concat(parts).table.combine_chunks().equals(whole.table.combine_chunks())


def test_a_row_without_arrival_arrives_with_the_row_before_also_in_another_part(tmp_path: Path) -> None:
    table = pd.DataFrame([GOOD | {"at": at} for at in (5.0, 6.0, None, 3.0)])
    pa.parquet.write_table(pa.Table.from_pandas(table), tmp_path / "e.parquet", row_group_size=2)
    parts = list(iter_arrivals(tmp_path / "e.parquet", ONE))
    assert [arrival(part) for part in parts] == [[5_000_000, 6_000_000], [3_000_000, 6_000_000]]


def test_a_million_rows_are_read_without_python_work_per_row() -> None:
    table = big_table(1_000_000)
    with measured() as used:
        arrivals = read_arrivals(table, ONE)
    assert len(arrivals) == 1_000_000
    assert used.seconds < 2.0  # far from a microsecond a cell; the point is the order of magnitude


def test_schemas_are_inferred_by_event_type(tmp_path: Path) -> None:
    text = "at,event,ts,id,name,v,ok\n1,A,1,1,x,2,true\n2,B,1,k,,,\n3,A,1,2,y,2.5,false\n4,,,,,,\n"
    assert infer_schemas(csv(tmp_path, text)) == {
        "A": {"id": Type.INTEGER, "name": Type.STRING, "v": Type.FLOAT, "ok": Type.BOOLEAN},
        "B": {"id": Type.STRING},
    }


def test_schemas_of_typed_tables_are_their_types() -> None:
    assert infer_schemas(big_table(3).drop_columns("event"), event="A") == {
        "A": {"id": Type.INTEGER, "name": Type.STRING, "v": Type.FLOAT, "ok": Type.BOOLEAN}
    }


def test_tables_that_disagree_on_a_field_are_refused() -> None:
    with pytest.raises(InputError, match="field 'id' of 'A' is string here and integer before"):
        infer_schemas(pa.table({"event": ["A"], "id": [1]}), [{"event": "A", "id": "x"}])


def test_a_plan_is_only_asked_what_it_says(tmp_path: Path) -> None:
    empty = Plan(ONE.events, ONE.queries)
    assert len(read_arrivals(csv(tmp_path, HEADER), empty)) == 0


@pytest.mark.parametrize("codes", [pa.int8(), pa.uint8(), pa.int32()])
def test_event_types_as_a_dictionary_of_any_kind(codes: pa.DataType) -> None:
    """Nulls among its words, unused words, and no room for one more."""
    words = ["A", None, *(f"unused{number}" for number in range(126))]
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], codes), pa.array(words))
    table = pa.table({"event": column, "at": [1.0, 2.0, 3.0, 4.0], "k": [1, 2, 3, 4]})
    plan = compile_text("event A { integer k; } inputs { A() within 1.0; } find A as a -> A as b").plan
    arrivals = read_arrivals(table, plan)
    assert arrivals.system("kind").tolist() == [0, RecordKind.TICK, RecordKind.TICK, 0]
    assert arrivals.table.column("_text").null_count == 4


def test_rows_whose_event_type_a_mixed_table_has_no_columns_for_are_malformed() -> None:
    plan = compile_text(
        "event A { integer n; }\nevent B { integer m; }\nquery Q { inputs { A() retain 1; B() retain 1; } find A as a -> B as b }"
    ).plan
    rows = [{"at": 1, "event": "A", "n": 1}, {"at": 2, "event": "B", "n": 2}, {"at": 3, "event": "B(7)"}]
    with pytest.raises(InputError, match="has no column 'm', a field of 'B'"):
        read_arrivals(rows, plan)
    table = read_arrivals(rows, plan, ColumnNames(is_mixed=True)).table
    assert table.column("_kind").to_pylist() == [0, int(RecordKind.MALFORMED), 1]
    assert "has no column 'm', a field of 'B'" in table.column("_text")[1].as_py()
