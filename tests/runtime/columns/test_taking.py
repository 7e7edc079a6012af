"""Rows taken from columns, repeated texts, counts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from runtime.columns.rows import counts_of, only_value, repeated, taken_cells, taken_rows


def test_rows_are_taken_in_the_order_asked_for() -> None:
    values, rows = np.array([10, 11, 12], np.int8), np.array([2, 0, 2], np.int32)
    assert taken_rows(values, rows).tolist() == [12, 10, 12]
    assert taken_cells(pa.array(["a", None, "c"]), pa.array(rows)).to_pylist() == ["c", "a", "c"]


def test_a_column_has_one_value_if_all_its_entries_are_equal() -> None:
    assert only_value(np.array([7, 7])) == 7
    assert only_value(np.array([7, 8])) is None
    assert only_value(np.empty(0, np.int64)) is None


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 1000])
@pytest.mark.parametrize("text", ["", "A", "Größe"])
def test_a_repeated_text_is_a_column_of_that_length(text: str, count: int) -> None:
    assert repeated(text, count).equals(pa.array([text] * count, pa.string()))


@pytest.mark.parametrize("values", [[], [0], [3, 3], [0, 2, 2, 1], list(range(12)) * 2])
@pytest.mark.parametrize("kind", [np.int8, np.int32])
def test_counts_are_those_of_numpy(values: list[int], kind: type) -> None:
    column = np.array(values, kind)
    assert counts_of(column).tolist() == np.bincount(column).tolist()
