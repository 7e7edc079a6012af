"""Columns hold values of every type: from every kind of table, through Arrow and the state and back."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings

from querylang import compile_text
from querylang.errors import InputError
from querylang.plan.expression import Type
from querylang.plan.model import Plan
from runtime.column_types import arrow_type
from runtime.columns.arrivals import RecordKind, from_cell, row_events, to_cell
from runtime.engine.snapshot import decode, encode
from runtime.interpreter.context import PlanWorld
from runtime.interpreter.values import event_text, inner_text
from runtime.reading.conversion import agrees, convert
from runtime.reading.inference.schema import infer_schemas
from runtime.reading.tables import read_arrivals
from tests.support.typed_values import PLAN, TYPED, WORLD

TEXT = """
event B { integer n; }
event A {
    decimal d; location l; sequence<float> xs; dictionary<string, integer> m; optional<integer> o; B b; sequence<B> bs;
}
query Q { inputs { A() retain 2; } find A as a1 -> A as a2 }
"""
ONE: Plan = compile_text(TEXT, "q.query").plan
FULL = 'A(1.5d,(0.0,1.0,2.0,3.0),[1.0,2.5],{"k":1,"é":2},optional(7),B(3),[B(1),B(2)])'
EMPTY = "A(null,null,[],{},optional(),null,[])"
TARGET = {field.name: arrow_type(field.type, ONE) for field in ONE.event("A").fields}
NATIVE: list[dict[str, Any]] = [
    {
        "at": 1.0,
        "d": Decimal("1.5"),
        "l": {"x1": 0.0, "y1": 1.0, "x2": 2.0, "y2": 3.0},
        "xs": [1.0, 2.5],
        "m": [("k", 1), ("é", 2)],
        "o": 7,
        "b": {"n": 3},
        "bs": [{"n": 1}, {"n": 2}],
    },
    {"at": 2.0, "d": None, "l": None, "xs": [], "m": [], "o": None, "b": None, "bs": []},
]
WRITTEN = [
    {**NATIVE[0], "d": 1.5, "m": {"k": 1, "é": 2}},
    {**NATIVE[1], "m": {}},
]
AS_TEXT = {
    "d": "1.5",
    "l": "(0.0, 1.0, 2.0, 3.0)",
    "xs": "[1,2.5]",
    "m": '{"k": 1, "é": 2}',
    "o": "7",
    "b": "B(3)",
    "bs": "[B(1), B(2)]",
}


def arrow() -> pa.Table:
    columns = {name: pa.array([row[name] for row in NATIVE], kind) for name, kind in TARGET.items()}
    return pa.table({"at": [1.0, 2.0], **columns})


def csv(folder: Path) -> Path:
    cells = ['"{}"'.format(text.replace('"', '""')) for text in AS_TEXT.values()]
    empty = ",,[],{},,,[]"
    (folder / "e.csv").write_text(f"at,{','.join(AS_TEXT)}\n1.0,{','.join(cells)}\n2.0,{empty}\n")
    return folder / "e.csv"


def json_lines(folder: Path) -> Path:
    (folder / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in WRITTEN))
    return folder / "e.jsonl"


def parquet(folder: Path) -> Path:
    pa.parquet.write_table(arrow(), folder / "e.parquet")
    return folder / "e.parquet"


def text(_folder: Path) -> list[dict[str, Any]]:
    empty = "A(null,null,[],{},optional(),null,[])"
    return [{"at": 1.0, "event": FULL}, {"at": 2.0, "event": empty}]


TABLES = {
    "csv": csv,
    "json": json_lines,
    "parquet": parquet,
    "arrow": lambda _folder: arrow(),
    "pandas": lambda _folder: arrow().to_pandas(),
    "pandas of Python's": lambda _folder: pd.DataFrame(WRITTEN),
    "mappings": lambda _folder: WRITTEN,
    "event text": text,
}


@pytest.mark.parametrize("kind", list(TABLES))
def test_every_kind_of_table_holds_every_type(kind: str, tmp_path: Path) -> None:
    arrivals = read_arrivals(TABLES[kind](tmp_path), ONE)
    arrivals.table.validate(full=True)
    assert arrivals.table.column("_text").to_pylist() == [None, None]
    events = row_events(ONE.event("A"), arrivals.table, PlanWorld(ONE), [None, None])
    assert [event_text(event.type, event.values) for event in events] == [FULL, EMPTY]


@pytest.mark.parametrize(
    ("field", "cell"),
    [
        ("d", "x"),
        ("d", "1e30"),
        ("d", float("nan")),
        ("l", "(1,2,3)"),
        ("l", {"x1": 1.0}),
        ("xs", "[x]"),
        ("xs", '["a"]'),
        ("xs", [None]),
        ("m", '{"a"}'),
        ("m", {"a": "x"}),
        ("o", "x"),
        ("b", "C(1)"),
        ("b", {"n": "x"}),
        ("bs", "[B(1), 2]"),
    ],
)
def test_a_cell_that_is_no_value_spoils_its_row_only(field: str, cell: Any) -> None:
    good = {"at": 1.0, **AS_TEXT}
    arrivals = read_arrivals([good, {**good, field: cell}], ONE)
    assert arrivals.system("kind").tolist() == [1, RecordKind.MALFORMED]
    (_, reason) = arrivals.table.column("_text").to_pylist()
    declared = ONE.event("A").type_of(field)
    assert f"is not a value of {field!r} ({declared})" in reason


def test_a_column_that_disagrees_is_named_with_both_types() -> None:
    table = arrow().set_column(3, "xs", pa.array([["a"], []]))
    message = r"column 'xs' is list<item: string>, but field 'xs' of 'A' is sequence<float>"
    with pytest.raises(InputError, match=message):
        read_arrivals(table, ONE)


@pytest.mark.parametrize(
    ("kind", "type_", "fits"),
    [
        (pa.decimal128(10, 2), "decimal", True),
        (pa.string(), "decimal", False),
        (pa.list_(pa.int32()), "sequence<integer>", True),
        (pa.large_list(pa.string()), "sequence<float>", False),
        (pa.map_(pa.string(), pa.float64()), "dictionary<string,float>", True),
        (pa.map_(pa.int64(), pa.float64()), "dictionary<string,float>", False),
        (pa.struct([("a", pa.float64())]), "dictionary<string,float>", True),
        (pa.struct([(name, pa.float64()) for name in ("x1", "y1", "x2", "y2")]), "location", True),
        (pa.struct([("x", pa.int64()), ("o", pa.int64())]), "X", True),
        (pa.struct([("x", pa.string()), ("o", pa.int64())]), "X", False),
        (pa.int64(), "optional<integer>", True),
        (pa.bool_(), "optional<integer>", False),
    ],
)
def test_which_columns_are_of_a_type(kind: pa.DataType, type_: str, *, fits: bool) -> None:
    assert agrees(kind, Type.parse(type_), plan=PLAN) is fits


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array([0.1, 1e19, None]), [Decimal("0.1"), Decimal(10**19), None]),
        (pa.array([2**62]), [Decimal(2**62)]),
        (pa.array([Decimal("1.25")]), [Decimal("1.25")]),
        (pa.array([Decimal("0.12345678901234567850")]), [Decimal("0.123456789012345678")]),
        (pa.array(["0.1", "7", "1.5d"]), [Decimal("0.1"), Decimal(7), Decimal("1.5")]),
    ],
)
def test_decimals_of_other_numbers_have_the_digits_of_their_text(column: pa.Array, values: list[Any]) -> None:
    converted = convert(column, Type.DECIMAL)
    assert converted.bad is None
    assert converted.values.to_pylist() == values  # noqa: PD011  an Arrow array


def test_schemas_of_data_have_types_with_parts() -> None:
    table = pa.table(
        {
            "d": pa.array([Decimal("1.5")], pa.decimal128(10, 2)),
            "long": pa.array([Decimal("1.5")], pa.decimal128(38, 2)),
            "xs": [[1.0]],
            "m": pa.array([[("a", [1])]], pa.map_(pa.string(), pa.list_(pa.int64()))),
            "l": [{"x1": 0.0, "y1": 0.0, "x2": 0.0, "y2": 0.0}],
            "b": [{"n": 1}],
        }
    )
    assert {name: str(type_) for name, type_ in infer_schemas(table, event="A")["A"].items()} == {
        "d": "decimal",
        "long": "float",
        "xs": "sequence<float>",
        "m": "dictionary<string,sequence<integer>>",
        "l": "location",
        "b": "A_b",
    }


@settings(max_examples=300, deadline=None)
@given(TYPED)
def test_values_of_any_type_go_through_arrow_and_the_state(typed: tuple[Type, Any]) -> None:
    type_, value = typed
    column = pa.array([to_cell(value), None, to_cell(value)], arrow_type(type_, PLAN))
    (kept,) = decode(encode({}, {"kept": pa.table({"v": column})}))[1].values()
    taken = kept.take(pa.array(np.array([2, 1])))
    first, second = (from_cell(cell, type_, WORLD) for cell in taken.column("v").to_pylist())
    assert inner_text(first, type_) == inner_text(value, type_)
    assert second is None


@pytest.mark.parametrize(
    ("field", "cell"),
    [
        ("xs", [1.0, None]),
        ("m", [("k", None)]),
        ("l", {"x1": 0.0, "y1": None, "x2": 0.0, "y2": 0.0}),
        ("bs", [{"n": 1}, None]),
    ],
)
def test_a_value_that_lacks_a_part_is_none(field: str, cell: Any) -> None:
    type_ = ONE.event("A").type_of(field)
    found = convert(pa.array([NATIVE[0][field], cell, None], TARGET[field]), type_, plan=ONE)
    assert found.bad is not None
    assert found.bad.tolist() == [False, True, False]


@pytest.mark.parametrize("digits", [21, 30, 37])
def test_a_decimal_with_too_many_digits_is_none(digits: int) -> None:
    converted = convert(pa.array([Decimal(10) ** digits, Decimal(3)], pa.decimal128(38, 0)), Type.DECIMAL)
    assert converted.values.to_pylist() == [None, Decimal(3)]  # noqa: PD011
