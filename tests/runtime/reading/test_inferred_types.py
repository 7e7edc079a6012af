"""Types that no definition says: what data shows, and the remarks about it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import querylang
from ensue import replay
from querylang.errors import InputError, QueryErrors
from querylang.formatter.formatting import definitions
from querylang.plan.expression import Type
from runtime.reading.inference.schema import infer, infer_schemas, truncating_divisions

NESTED = [
    {"at": 1, "event": "A", "customer": {"name": "x", "home": {"zip": 1}}, "lines": [{"q": 1}, {"q": 2.5}]},
    {"at": 2, "event": "A", "customer": {"name": "x", "age": 3}},
]
FIRST = "query Q { inputs { A() within 1 hour; } find A:x { print x.toString(); } }"


def test_objects_are_events_of_their_own() -> None:
    assert definitions(infer_schemas(NESTED)) == (
        "event A { A_customer customer; sequence<A_lines> lines; }"
        " event A_customer_home { integer zip; }"
        " event A_customer { string name; A_customer_home home; integer age; }"
        " event A_lines { float q; }"
    )
    assert list(replay(FIRST, NESTED).outputs["text"]) == [
        'A(A_customer("x",A_customer_home(1),null),[A_lines(1.0),A_lines(2.5)])',
        'A(A_customer("x",null,3),null)',
    ]


def test_definitions_that_are_told_can_be_pasted() -> None:
    text = f"{definitions(infer_schemas(NESTED))} {FIRST}"
    assert list(replay(text, NESTED).outputs["text"]) == list(replay(FIRST, NESTED).outputs["text"])


def test_tables_together_say_the_fields_of_objects_and_numbers() -> None:
    first, second = [{"event": "A", "v": 1, "o": {"a": 1}}], [{"event": "A", "v": 1.5, "o": {"b": "x", "a": 1.5}}]
    assert infer_schemas(first, second) == {
        "A": {"v": Type.FLOAT, "o": Type.event("A_o")},
        "A_o": {"a": Type.FLOAT, "b": Type.STRING},
    }
    with pytest.raises(InputError, match="field 'a' of 'A_o' is string here and integer before"):
        infer_schemas(first, [{"event": "A", "o": {"a": "x"}}])


@pytest.mark.parametrize(
    ("cells", "remarks"),
    [
        (["1", "oops", "3"], ('a.csv: v is text: line 3 has "oops"',)),
        (["1", "2.5", "3"], ()),
        (["a1", "7", "b2", "c"], ()),
        (["x", "y"], ()),
        (["true", "false"], ()),
        (["12", "007"], ('a.csv: v is text: line 3 has "007", and a number would lose its zeros',)),
        (["1.5", "01.5"], ('a.csv: v is text: line 3 has "01.5", and a number would lose its zeros',)),
        (["+4917", "5"], ('a.csv: v is text: line 2 has "+4917", and a number would lose its sign',)),
        (["5", "0x10", "6"], ('a.csv: v is text: line 3 has "0x10"',)),
        (["7", "1e5"], ('a.csv: v is float: line 3 has "1e5"',)),
        (["7", "NaN"], ('a.csv: v is float: line 3 has "NaN"',)),
        (["0", "-1", " 5 ", '""'], ()),
        (["20", '"1,5"'], ('a.csv: v is text: line 3 has "1,5"; with commas in decimals: `--csv decimal=,`',)),
        (['"1,5"', "x"], ()),
    ],
)
def test_why_a_column_is_text_is_told_where_it_is_not_plain(
    tmp_path: Path, cells: list[str], remarks: tuple[str, ...]
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("event,v\n" + "".join(f"A,{cell}\n" for cell in cells))
    assert infer(file).remarks == remarks


def test_text_in_one_file_is_text_in_all_of_them_and_empty_columns_say_nothing(tmp_path: Path) -> None:
    for name, cells in (("1.csv", "1,,5"), ("2.csv", "007,,6.5"), ("3.csv", "3,x,")):
        (tmp_path / name).write_text(f"at,id,note,v\n1,{cells}\n")
    found = infer(*sorted(tmp_path.iterdir()), event="A")
    assert found.schemas == {"A": {"id": Type.STRING, "note": Type.STRING, "v": Type.FLOAT}}
    assert found.remarks == (
        '2.csv: id is text: line 2 has "007", and a number would lose its zeros',
        "2.csv: id is text here and integer before; it is read as text everywhere",
    )


def test_a_column_of_several_event_types_keeps_the_zeros_of_all(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("at,event,card,v\n1,A,007,1\n2,B,107,05x\n")
    assert infer_schemas(tmp_path / "a.csv") == {
        "A": {"card": Type.STRING, "v": Type.INTEGER},
        "B": {"card": Type.STRING, "v": Type.STRING},
    }


def test_a_quoted_empty_cell_is_null_unless_the_field_is_a_string(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"at","v","s"\n"1","",""\n"2","5","x"\n')
    query = "query Q { inputs { A() retain 1; } find A as a }"
    for text in (query, f"event A {{ integer v; string s; }} {query}"):
        (tmp_path / "q.query").write_text(text)
        found = replay(tmp_path / "q.query", tmp_path / "a.csv").matches
        assert found["a.s"].tolist() == ["", "x"]
        assert found["a.v"].isna().tolist() == [True, False]


def test_columns_without_a_counterpart_are_named_once() -> None:
    table = pa.table({"event": ["A", "A"], "b": [b"x", b"y"], "d": [timedelta(1)] * 2, "n": pa.nulls(2), "v": [1, 2]})
    found = infer(table, table)
    assert found.schemas == {"A": {"v": Type.INTEGER}}
    assert found.remarks == (
        "table: column 'b' is not read: no type of the language holds binary; make it text or a number",
        "table: column 'd' is not read: no type of the language holds duration[us]; make it a number of seconds",
    )


def test_parts_without_a_counterpart_are_named() -> None:
    user = [{"id": 1, "d": timedelta(1), "tags": [], "none": {}}]
    table = pa.table({"event": ["A"], "user": user, "l": [[]], "b": [[b"x"]], "e": [[{"f": [timedelta(1)]}]]})
    found = infer(table)
    assert found.schemas == {
        "A": {"user": Type.event("A_user")},
        "A_user": {"id": Type.INTEGER},
    }
    kinds = {"user.d": "duration[us]", "b": "list<item: binary>", "e.f": "list<item: duration[us]>"}
    for (part, kind), remark in zip(kinds.items(), found.remarks, strict=True):
        assert remark.startswith(f"table: column '{part}' is not read: no type of the language holds {kind}; make it")
    told = "table: column '{}' has no value, so its type is not known; define the event"
    assert found.without_values == tuple(told.format(part) for part in ("user.tags", "user.none", "l"))


@pytest.mark.parametrize("rows", ["", "1,a,\n2,a,\n"], ids=["no rows", "empty cells"])
def test_an_empty_column_of_csv_is_named_where_the_query_needs_another_type(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rows: str
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("at,k,v\n" + rows)
    with pytest.raises(QueryErrors), caplog.at_level("WARNING", "ensue"):
        replay("inputs { A() within 9.0; } find A as a where a.v > 1", file)
    assert "a.csv: column 'v' has no value, so it is read as text; define the event" in caplog.messages


def test_a_column_that_one_table_has_values_in_is_not_empty(tmp_path: Path) -> None:
    for name, cells in (("1.csv", "1,"), ("2.csv", "2,5")):
        (tmp_path / name).write_text(f"at,v\n{cells}\n")
    found = infer(*sorted(tmp_path.iterdir()), event="A")
    assert (found.schemas, found.without_values) == ({"A": {"v": Type.INTEGER}}, ())


def test_lists_that_are_all_empty_are_read_with_a_definition() -> None:
    rows = [{"at": 1, "tags": [], "user": {"names": []}}]
    defined = "event U { sequence<string> names; }\nevent A { sequence<string> tags; U user; }\n"
    query = f"{defined}query Q {{ inputs {{ A() within 9.0; }} find A as a where a.tags.size() = a.user.names.size() }}"
    assert len(replay(query, rows)) == 1


def test_a_column_without_values_is_named_where_the_query_needs_it(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"at": 1, "k": "x", "v": None}]
    found = infer(rows, event="A")
    told = "table: column 'v' has no value, so its type is not known; define the event"
    assert (found.schemas, found.remarks, found.without_values) == ({"A": {"k": Type.STRING}}, (), (told,))
    with pytest.raises(QueryErrors):
        replay("inputs { A() within 9.0; } find A as a where a.v > 1", rows)
    assert told in capsys.readouterr().err + caplog.text


def test_a_table_without_rows_has_its_columns() -> None:
    empty = pd.DataFrame({"at": pd.Series(dtype=float), "k": pd.Series(dtype=object), "v": pd.Series(dtype=float)})
    assert len(replay('inputs { A() key k within 9.0; } find A as a where a.k = "x" and a.v > 1', empty)) == 0


def test_divisions_of_inferred_integers_are_told_once() -> None:
    text = (
        "query Q { inputs { A() within 1 hour; } find A:x where x.n / 2 > x.v / x.n { print (x.n / 3).toString(); } }"
    )
    schemas = {"A": {"n": Type.INTEGER, "v": Type.FLOAT}}
    (remark,) = truncating_divisions(querylang.compile_text(text, schemas=schemas).plan, schemas)
    assert remark == (
        "query Q: `/` truncates, because n is an integer by what the data shows;"
        " for fractions write `.toFloat()`, or define the event type"
    )
    floats = {"A": {"n": Type.FLOAT, "v": Type.FLOAT}}
    assert not list(truncating_divisions(querylang.compile_text(text, schemas=floats).plan, floats))


def test_divisions_of_defined_integers_are_not_told() -> None:
    text = """event A { integer n; }
    query Q { inputs { A() within 1 hour; B() within 1 hour; } find A:x -> B:y where x.n / 2 > y.n }"""
    schemas = {"B": {"n": Type.INTEGER}}
    assert not list(truncating_divisions(querylang.compile_text(text, schemas=schemas).plan, schemas))
    other = text.replace("x.n / 2 > y.n", "x.n > y.n / 2")
    assert len(list(truncating_divisions(querylang.compile_text(other, schemas=schemas).plan, schemas))) == 1


def test_whole_numbers_that_no_integer_holds_keep_their_digits(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("at,v,w\n1,1,1.5\n2,9223372036854775808,9223372036854775808\n")
    (tmp_path / "h.jsonl").write_text('{"at": 1, "v": 1}\n{"at": 2, "v": 9223372036854775808}\n')
    told = 'v is text: line {} has "9223372036854775808", more than an integer holds'
    csv = infer(tmp_path / "h.csv", event="A")
    assert (csv.schemas["A"], csv.remarks) == (
        {"v": Type.STRING, "w": Type.FLOAT},
        (f"h.csv: {told.format(3)}",),
    )
    assert infer(tmp_path / "h.jsonl", event="A").remarks == (f"h.jsonl: {told.format(2)}",)


def test_columns_of_too_large_integers_are_not_read() -> None:
    table = pa.table({"at": [1, 2], "u": pa.array([1, 2**63], pa.uint64()), "v": pa.array([1, 2], pa.uint64())})
    found = infer(table, event="A")
    assert found.schemas == {"A": {"v": Type.INTEGER}}
    assert found.remarks == (
        "table: column 'u' is not read: row 2 has 9223372036854775808, more than an integer holds; make it text",
    )


def test_decimals_that_become_floats_are_told() -> None:
    table = pa.table({"at": [1], "d": pa.array([1], pa.decimal128(38, 0))})
    assert infer(table, event="A").remarks == (
        "table: d is float: decimal128(38, 0) has more digits than a decimal holds; make it text if all digits count",
    )


def test_the_index_that_pandas_writes_is_a_field_only_where_it_is_defined(tmp_path: Path) -> None:
    file = tmp_path / "A.parquet"
    pd.DataFrame({"at": [1, 2], "v": [1, 2]}, index=[5, 6]).to_parquet(file)
    assert definitions(infer_schemas(str(file), event="A")) == "event A { integer v; }"
    defined = "event A { integer v; integer `__index_level_0__`; } query Q { inputs { A() retain 1; } find A as a {} }"
    assert replay(defined, str(file)).matches["a.__index_level_0__"].tolist() == [5, 6]
