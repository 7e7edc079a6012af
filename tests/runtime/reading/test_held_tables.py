"""Tables in Python as people have them: streams, generators, and pandas frames with an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest

import ensue
from querylang.errors import InputError

PAIRS = "query Q { inputs { A() key k within 1 hour; } find A:x -> A:y where y.v > x.v { print y.v.toString(); } }"
TABLE = pa.table({"at": [1, 2], "k": ["a", "a"], "v": [1.0, 2.5]})


class Capsule:
    """Whatever gives Arrow data."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.__arrow_c_stream__(requested_schema)


class Broken:
    """A source of Arrow data that fails."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise RuntimeError("the disk\nis gone")


def rows() -> Iterator[dict[str, Any]]:
    yield from TABLE.to_pylist()


def texts(table: Any, **named: Any) -> list[str]:
    return list(ensue.replay(PAIRS, table, **named).outputs["text"])


@pytest.mark.parametrize(
    "table",
    [
        TABLE.to_reader,
        lambda: pyarrow.dataset.dataset(TABLE),
        Capsule,
        rows,
        lambda: iter(TABLE.to_batches()),
        lambda: [TABLE.slice(0, 1).to_reader(), TABLE.slice(1).to_reader()],
    ],
    ids=["reader", "dataset", "capsule", "rows", "batches", "readers"],
)
def test_what_can_be_read_once_is_a_table(table: Callable[[], Any]) -> None:
    assert texts(table()) == ["2.5"]


def test_a_relation_of_duckdb_is_a_table() -> None:
    with duckdb.connect() as connection:
        assert texts(connection.from_arrow(TABLE)) == ["2.5"]


def test_what_fails_or_is_not_a_table_is_told() -> None:
    with pytest.raises(InputError, match="a Broken cannot be read as a table: the disk is gone"):
        texts(Broken())
    with pytest.raises(InputError, match="int is not a table; give a path"):
        texts(5)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_an_index_of_times_is_arrival(zone: str | None) -> None:
    index = pd.date_range("2024-01-01", periods=2, freq="min", tz=zone)
    frame = pd.DataFrame({"k": ["a", "a"], "v": [1.0, 2.5]}, index=index)
    assert texts(frame) == ["2.5"]
    assert texts(frame.rename_axis("when")) == ["2.5"]
    assert texts(frame.rename_axis("when"), arrival="when") == ["2.5"]


def test_named_levels_of_an_index_are_columns() -> None:
    frame = TABLE.to_pandas()
    assert texts(frame.set_index("k")) == ["2.5"]
    assert texts(frame.set_index(["k", "at"])) == ["2.5"]
