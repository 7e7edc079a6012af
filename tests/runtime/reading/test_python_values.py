"""Values of Python, numpy and pandas in rows: what is a number in one of them is one beside the others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import ensue
from querylang.errors import InputError
from runtime.reading.formats.python_rows import SCALARS, cells_of

ORDER = "query Rise { inputs { E() within 1 hour; } find E as a -> E as b where a.x < b.x }"
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "intp", "longlong", "ulonglong"]
FLOATS = ["float16", "float32", "float64", "longdouble"]


class Size(Enum):
    SMALL = 9


class Level(IntEnum):
    LOW = 9


class Word(StrEnum):
    A = "a"


class Kind(str, Enum):  # noqa: UP042  as programs for older Pythons have it
    A = "a"


@dataclass
class Point:
    x: int
    y: np.float32


def rises(first: Any, second: Any) -> list[int]:
    """How often the second value is larger: of rows, of a frame of objects, of rows that are sent."""
    rows = [{"at": 1, "x": first}, {"at": 2, "x": second}]
    frame = pd.DataFrame({"at": [1, 2], "x": pd.Series([first, second], dtype=object)})
    live = ensue.open(ORDER)
    sent = live.send(rows)
    return [len(ensue.replay(ORDER, rows).matches), len(ensue.replay(ORDER, frame).matches), len(sent.matches)]


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_a_number_of_numpy_is_one_beside_numbers_of_python(name: str) -> None:
    nine = np.dtype(name).type(9)
    for ten in (10, 10.0, Decimal(10), Fraction(10), np.int64(10), np.float32(10), np.array(10)):
        assert rises(nine, ten) == [1, 1, 1], ten
        assert rises(ten, nine) == [0, 0, 0], ten


@pytest.mark.parametrize(
    "nine", [Decimal(9), Decimal("9.5"), Fraction(9), Fraction(19, 2), Level.LOW, Size.SMALL, pa.scalar(9)]
)
@pytest.mark.parametrize("ten", [10, 10.5, Decimal(10), Decimal("Infinity"), np.uint8(10)])
def test_numbers_of_any_kind_are_numbers_beside_each_other(nine: object, ten: object) -> None:
    assert rises(nine, ten) == [1, 1, 1]


@pytest.mark.parametrize("missing", [pd.NA, pd.NaT, np.datetime64("NaT"), np.timedelta64("NaT"), None])
def test_what_is_missing_is_null(missing: object) -> None:
    assert cells_of([missing, 10, 9], "x").column.equals(pa.array([None, 10, 9]))
    assert cells_of([{"a": missing}, {"a": [missing, 1]}], "x").nested == (
        () if missing is None else cells_of([{"a": None}, {"a": [None, 1]}], "x").nested
    )


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([np.bool_(True), False], pa.array([True, False])),
        ([np.str_("a"), "b", Word.A, Kind.A], pa.array(["a", "b", "a", "a"])),
        ([UUID(int=1), UUID(int=2)], pa.array([str(UUID(int=1)), str(UUID(int=2))])),
        ([np.bytes_(b"a"), b"b", bytearray(b"c"), np.void(b"d")], pa.array([b"a", b"b", b"c", b"d"])),
        ([np.timedelta64(1, "s"), pd.Timedelta("2s"), timedelta(3)], pa.array([timedelta(seconds=1), timedelta(seconds=2), timedelta(3)])),
        ([np.array([1, 2]), [3], (4,)], pa.array([[1, 2], [3], [4]])),
        ([{"u": np.int64(1)}, {"u": 2.5}, MappingProxyType({"u": None})], pa.array([{"u": 1.0}, {"u": 2.5}, {"u": None}])),
        ([Point(1, np.float32(1.5)), {"x": 2, "y": 1}], pa.array([{"x": 1, "y": 1.5}, {"x": 2, "y": 1.0}])),
        ([date(2024, 1, 1), datetime(2024, 1, 2)], pa.array([datetime(2024, 1, 1), datetime(2024, 1, 2)])),  # noqa: DTZ001
        ([np.datetime64("2024-01-01"), pd.Timestamp("2024-01-02")], pa.array([datetime(2024, 1, 1), datetime(2024, 1, 2)])),  # noqa: DTZ001
        ([np.datetime64("9999-12-31T00:00:00.5", "ms")], pa.array([datetime(9999, 12, 31, 0, 0, 0, 500_000)])),  # noqa: DTZ001
        ([True, 1, np.True_], pa.array(["true", "1", "true"])),
        ([1j, 2, None], pa.nulls(3)),
    ],
)  # fmt: skip
def test_scalars_become_one_column(values: list[object], column: pa.Array) -> None:
    assert cells_of(values, "x").column.equals(column)


def test_moments_with_and_without_a_zone_are_in_utc() -> None:
    naive, aware = datetime(2024, 1, 1, 12), pd.Timestamp("2024-01-01 12:00", tz="Europe/Berlin")  # noqa: DTZ001
    found = cells_of([naive, aware], "x").column.to_pylist()
    assert found == [datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2024, 1, 1, 11, tzinfo=UTC)]


def test_every_scalar_of_numpy_is_in_the_table() -> None:
    kinds = {kind for kind in np.sctypeDict.values() if kind is not np.object_}
    assert [kind for kind in kinds if not any(issubclass(kind, known) for known in SCALARS)] == []


def test_a_value_that_contains_itself_is_nested_too_deeply() -> None:
    loop: dict[str, Any] = {"n": np.int64(1)}
    loop["loop"] = MappingProxyType(loop)
    with pytest.raises(InputError, match="x has a value nested more than 100 deep"):
        cells_of([loop], "x")


def test_complex_numbers_are_told_once_and_lose_no_row(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"at": second, "x": second, "z": complex(second, 1)} for second in range(3)]
    for table in (rows, pd.DataFrame(rows)):
        caplog.clear()
        result = ensue.replay(ORDER, table)
        assert (len(result.matches), len(result.discarded)) == (2, 0)
        assert (
            sum("column 'z' is not read: no type of the language holds complex" in line for line in caplog.messages)
            == 1
        )
