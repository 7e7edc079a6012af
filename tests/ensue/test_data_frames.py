"""Small tables become the DataFrames that large ones become."""

from __future__ import annotations

from decimal import Decimal

import pandas as pd
import pyarrow as pa

from ensue.rendering.data_frames import frame_of
from runtime.results.schemas import TIMESTAMP

COLUMNS = {
    "n": pa.array([1, None, -(2**63)]),
    "m": pa.array([4, 5, 6]),
    "f": pa.array([0.5, None, float("nan")]),
    "b": pa.array([True, None, False]),
    "s": pa.array(["x", None, "ü"]),
    "t": pa.array([0, None, -1], TIMESTAMP),
    "u": pa.array([1, 2, 3], TIMESTAMP),
    "r": pa.array(["", "y", "z"]),
}


def test_a_small_table_has_the_types_of_a_large_one() -> None:
    large = pa.table({name: pa.concat_arrays([column] * 50) for name, column in COLUMNS.items()})
    expected = frame_of(large)
    for start, rows in ((0, 3), (3, 1), (4, 1), (1, 5)):
        small = frame_of(large.slice(start, rows))
        pd.testing.assert_frame_equal(small, expected[start : start + rows].reset_index(drop=True))
    small.loc[0, "n"] = 7  # a column does not share its memory with another
    assert small["m"].tolist() == [5, 6, 4, 5, 6]


def test_columns_of_other_types_are_converted_as_before() -> None:
    table = pa.table({"d": pa.array([Decimal("1.5")]), "l": pa.array([[1, 2]])})
    assert frame_of(table).to_dict("records") == [{"d": Decimal("1.5"), "l": [1, 2]}]
