"""A field that no query reads decides nothing about a row, where no definition names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue

NEXT = "query Next { inputs { E() within 1 hour; } find E as a -> E as b where b.n = a.n + 1 }"
TIMES = ["09:00:00", "09:00:01", "09:00:02"]


def printing(text: str) -> str:
    """The query, which reads one more value of `b`."""
    return NEXT.replace("a.n + 1", "a.n + 1 { print " + text + "; }")


def arrow(column: pa.Array) -> pa.Table:
    return pa.table({"at": TIMES, "n": [1, 2, 3], "x": column})


def parquet(column: pa.Array, folder: Path) -> Path:
    pq.write_table(arrow(column), folder / "e.parquet")
    return folder / "e.parquet"


def lines(column: pa.Array, folder: Path) -> Path:
    rows = [{"at": at, "n": n, "x": x} for at, n, x in zip(TIMES, (1, 2, 3), column.to_pylist(), strict=True)]
    (folder / "e.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder / "e.jsonl"


READERS: tuple[Callable[[pa.Array, Path], Any], ...] = (lambda column, _folder: arrow(column), parquet, lines)
NULLS_INSIDE = (
    pa.array([[1, None], None, [2]]),
    pa.array([[[1], None], [], [[None]]]),
    pa.array([[{"a": 1}, None], None, [{"a": None}]]),
    pa.array([{"a": [1, None]}, None, {"a": None}]),
)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("column", NULLS_INSIDE)
def test_nulls_inside_lose_no_row(column: pa.Array, reader: Callable[..., Any], tmp_path: Path) -> None:
    table = reader(column, tmp_path)
    for query in (NEXT, printing("b.x.toString()")):
        result = ensue.replay(query, table)
        assert (len(result.matches), len(result.discarded)) == (2, 0)
    assert result.outputs["text"].tolist()[1] in {"[2]", "[[null]]", "[E_x(null)]", "E_x(null)"}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
        pa.array([[1, None], None, [2, 3]], pa.list_(pa.int64(), 2)),
        pa.array([[1], None, [2, None]], pa.list_view(pa.int64())),
        pa.array([[({"k": 1}, 1)], None, []], pa.map_(pa.struct([("k", pa.int64())]), pa.int64())),
        pa.RunEndEncodedArray.from_arrays([2, 3], ["a", None]),
        pa.ListArray.from_arrays([0, 1, 2, 3], pa.RunEndEncodedArray.from_arrays([2, 3], [1, 2])),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), pa.array([{"l": 1}, {"l": 2}])),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), pa.array(["a", "b"]).dictionary_encode()),
        pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["x", "y", "z"])]),
        pa.array([(1, 2, 3), None, (1, 1, 1)], pa.month_day_nano_interval()),
        pa.array([1, None, 2**31 - 1], pa.date32()),
        pa.array([b"a" * 16, None, b"b" * 16], pa.binary(16)),
        pa.array([b"a" * 16, None, b"b" * 16], pa.uuid()) if hasattr(pa, "uuid") else pa.nulls(3),
        pa.array(["x", None, "y"], pa.string_view()),
    ],
    ids=lambda column: str(column.type)[:40],
)
def test_a_column_of_any_type_loses_no_row(column: pa.Array) -> None:
    result = ensue.replay(NEXT, arrow(column))
    assert (len(result.matches), len(result.discarded)) == (2, 0)


def test_a_uuid_is_text() -> None:
    if hasattr(pa, "uuid"):
        column = pa.array([bytes(16), None, bytes(16)], pa.uuid())
        assert (
            ensue.replay(printing("b.x"), arrow(column)).outputs["text"].tolist()[1] == f"{0:08}-0000-0000-0000-{0:012}"
        )


def test_a_null_inside_that_is_read_is_no_value() -> None:
    column = pa.array([[1, None], [None, 2], [3]])
    assert ensue.replay(printing("b.x[0].toString()"), arrow(column)).outputs["text"].tolist() == [
        "the value is null",
        "3",
    ]
    summed = "query A { inputs { E() within 1 hour; } find E as a { integer s := 0; for i in a.x { s := s + i; } print s.toString(); } }"
    assert ensue.replay(summed, arrow(column)).outputs["text"].tolist() == ["the value is null"] * 2 + ["3"]


def test_what_is_wrong_is_null_and_told_once_with_its_line(tmp_path: Path) -> None:
    table = arrow(pa.array([1, 2**31 - 1, 2**31 - 1], pa.date32()))
    result = ensue.replay(NEXT, table)
    assert result.matches["b.x"].isna().all()
    (line,) = result.warnings
    assert line.startswith("table: row 2: ")
    assert line.endswith(" is not a value of 'x' (float), and 1 row more; it is null there, as no query reads it")
    assert ensue.replay(printing("b.x.toString()"), table).discarded["reason"].tolist() == ["malformed"] * 2


def test_a_field_of_a_definition_decides_as_before() -> None:
    defined = "event E { integer n; sequence<integer> x; }\n" + NEXT
    result = ensue.replay(defined, arrow(pa.array([[1], [None], [2]])))
    assert (len(result.matches), result.discarded["reason"].tolist()) == (0, ["malformed"])


def test_text_that_is_not_utf_8_in_an_unread_field_is_null(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_bytes(b"at,n,x\n1,1,a\n2,2,\xff\n3,3,c\n")
    result = ensue.replay(NEXT, tmp_path / "e.csv")
    assert (len(result.matches), len(result.discarded), len(result.warnings)) == (2, 0, 1)
    assert "line 3: '\\xff' in 'x' is not UTF-8 text" in result.warnings[0]
    assert len(ensue.replay(printing("b.x"), tmp_path / "e.csv").discarded) == 1


def odd_among(count: int, good: Any, odd: Any, folder: Path) -> Path:
    """Lines of JSON, of which the sixth has another value."""
    rows = [{"at": n, "n": n, "x": odd if n == 5 else good} for n in range(count)]
    (folder / "e.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder / "e.jsonl"


USER = {"id": "u", "age": 3}


@pytest.mark.parametrize(
    ("good", "odd", "read", "shown"),
    [
        (USER, "gone", "b.x.age.toString()", "3"),
        (USER, [USER], "b.x.age.toString()", "3"),
        (USER, {"id": "u", "age": "old"}, "b.x.age.toString()", "3"),
        ({"u": USER}, {"u": "gone"}, "b.x.u.id", "u"),
        ([1, 2], [1, "two"], "b.x[1].toString()", "2"),
        ([{"p": 1}], [{"p": "one"}], "b.x[0].p.toString()", "1"),
        (5, "n/a", "(b.x + 1).toString()", "6"),
        (2.5, "n/a", "(b.x * 2.0).toString()", "5.0"),
        (5, {"v": 5}, "(b.x + 1).toString()", "6"),
    ],
)
def test_what_is_mixed_is_what_most_rows_are(good: Any, odd: Any, read: str, shown: str, tmp_path: Path) -> None:
    table = odd_among(1_000, good, odd, tmp_path)
    result = ensue.replay(NEXT, table)
    assert (len(result.matches), len(result.discarded)) == (999, 0)
    result = ensue.replay(printing(read), table)
    assert (len(result.matches), result.discarded["offset"].tolist()) == (997, [6])
    assert set(result.outputs["text"]) == {shown}


def test_an_odd_part_that_is_not_read_loses_no_row(tmp_path: Path) -> None:
    table = odd_among(1_000, USER, {"id": "u", "age": "old"}, tmp_path)
    result = ensue.replay(printing("b.x.id"), table)
    assert (len(result.matches), len(result.discarded), len(result.warnings)) == (999, 0, 1)
    assert result.warnings[0].startswith("e.jsonl: line 6: ")


def test_text_that_a_query_takes_as_text_remains_it(tmp_path: Path) -> None:
    result = ensue.replay(printing("b.x"), odd_among(9, 5, "n/a", tmp_path))
    assert result.outputs["text"].tolist() == ["5"] * 4 + ["n/a"] + ["5"] * 3


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_row_without_an_arrival_decides_no_type(suffix: str, tmp_path: Path) -> None:
    table = tmp_path / f"e{suffix}"
    if suffix == ".csv":
        table.write_text("at,n,x\n" + "".join(f"{n},{n},{n}\n" for n in range(9)) + "TOTAL,,many\n")
    else:
        rows = [{"at": n, "n": n, "x": n} for n in range(9)] + [{"at": "TOTAL", "n": None, "x": "many"}]
        table.write_text("\n".join(map(json.dumps, rows)))
    result = ensue.replay(printing("(b.x + 1).toString()"), table)
    assert (len(result.matches), len(result.discarded)) == (8, 1)
