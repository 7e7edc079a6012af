"""Tables in the shape of each kind of file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa

from job_engine.sinks.tables import flattened, json_rows, json_texts
from runtime.results.for_users import without_empty_structs

NOTHING = pa.struct([])
MEMBER = pa.struct(
    [
        ("time", pa.timestamp("us", "UTC")),
        ("fields", pa.struct([("price", pa.decimal128(38, 18)), ("parts", pa.map_(pa.string(), pa.float64()))])),
    ]
)
AT = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
MATCHES = pa.table(
    {
        "tags": pa.array([["a", "b"], []]),
        "w": pa.array(
            [{"time": AT, "fields": {"price": Decimal("1.5"), "parts": [("x", float("inf"))]}}, None], MEMBER
        ),
    }
)


def test_structs_without_fields_are_left_out_wherever_they_stand() -> None:
    table = pa.table(
        {
            "a": pa.array([{"n": 1, "inner": {}}, None], pa.struct([("n", pa.int64()), ("inner", NOTHING)])),
            "b": pa.array([{"inner": {}}, {"inner": None}], pa.struct([("inner", NOTHING)])),
            "c": pa.array([[{}], []], pa.list_(NOTHING)),
            "d": pa.array([[("k", {})], None], pa.map_(pa.string(), NOTHING)),
            "e": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    found = without_empty_structs(table)
    assert found.to_pylist() == [{"a": {"n": 1}, "e": [("k", 1)]}, {"a": None, "e": None}]


def test_a_row_of_csv_has_no_structs_and_lists_as_text() -> None:
    assert flattened(MATCHES).to_pylist() == [
        {
            "tags": '["a", "b"]',
            "w.time": AT,
            "w.fields.price": Decimal("1.500000000000000000"),
            "w.fields.parts": '{"x": "Infinity"}',
        },
        {"tags": "[]", "w.time": None, "w.fields.price": None, "w.fields.parts": None},
    ]


def test_a_row_of_json_has_what_json_can_hold() -> None:
    assert json_rows(MATCHES) == [
        {
            "tags": ["a", "b"],
            "w": {"time": "2024-01-02T03:04:05.000000Z", "fields": {"price": "1.5", "parts": {"x": "Infinity"}}},
        },
        {"tags": [], "w": None},
    ]


def test_rows_as_json_text_are_the_rows_that_json_can_hold() -> None:
    event = pa.struct([("t", pa.timestamp("us", "UTC")), ("a %s", pa.string()), ("none", pa.struct([]))])
    cells = [{"t": AT, "a %s": 'é"\n%', "none": {}}, {"t": None, "a %s": None, "none": None}, None]
    columns = {
        "n": pa.array([1, None, -3]),
        "x": pa.array([1.5, float("nan"), None]),
        "y": pa.array([0.1, None, -1e300]),
        "yes": pa.array([True, None, False]),
        "text": pa.array(["a", None, "b"], pa.large_string()),
        "word": pa.array(["a", None, "b"]).dictionary_encode(),
        "at": pa.array([AT, None, AT], pa.timestamp("us", "UTC")),
        "w": pa.array(cells, event),
        "run": pa.array([cells, None, []], pa.list_(event)),
        "numbers": pa.array([[1.0, float("inf")], None, []], pa.list_(pa.float64())),
        "map": pa.array([[("k", Decimal("1.5"))], None, []], pa.map_(pa.string(), pa.decimal128(5, 2))),
        "nothing": pa.nulls(3),
    }
    for table in (MATCHES, pa.table(columns), pa.table(columns).slice(1), pa.table(columns).slice(0, 0)):
        assert json_texts(table) == [json.dumps(row, ensure_ascii=False) for row in json_rows(table)]
    assert json_texts(pa.table(columns).select([])) == ["{}"] * 3
