from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from runtime.columns.rows import ColdRows, stable_order


@pytest.mark.parametrize("seed", range(40))
def test_rows_are_ordered_as_by_comparing_them(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.choice([0, 1, 2, 3, 50, 255, 256, 257]))
    widths = random.choice([1, 2, 8, 31, 40, 62], size=random.integers(1, 4))
    columns = [random.integers(-(1 << width), 1 << width, count) for width in widths.tolist()]
    assert stable_order(*columns).tolist() == np.lexsort(columns[::-1]).tolist()


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_the_least_and_the_greatest_number_have_their_places(dtype: type[np.signedinteger]) -> None:
    ends = np.iinfo(dtype)
    column = np.array([ends.max, 0, ends.min, ends.max, ends.min], dtype)
    assert stable_order(column).tolist() == [2, 4, 1, 0, 3]
    assert stable_order(column, -np.arange(5)).tolist() == [4, 2, 1, 3, 0]


@pytest.mark.parametrize("widths", [[1], [11], [12], [30], [20, 20], [3, 40, 8], [30, 40], [62, 8], [8, 62]])
def test_many_rows_are_ordered_digit_by_digit(widths: list[int]) -> None:
    random = np.random.default_rng(5)
    columns = [random.integers(-(1 << (width - 1)), 1 << (width - 1), 40_000) for width in widths]
    given = [column.copy() for column in columns]
    assert stable_order(*columns).tolist() == np.lexsort(columns[::-1]).tolist()
    assert all((one == other).all() for one, other in zip(columns, given, strict=True))


@pytest.mark.parametrize("bits", [1, 12, 40, 64])
def test_rows_of_equal_and_of_near_hashes_are_in_order(bits: int) -> None:
    chance = np.random.default_rng(bits)
    for count in (0, 1, 2, 1000, 5000):
        hashes = chance.integers(0, 2**bits - 1, count, np.uint64, endpoint=True)
        hashes[::3] = np.uint64(2**64 - 1) - hashes[::3] % np.uint64(7)
        rows = ColdRows(pa.table({"row": pa.array([], pa.int64())}))
        half = count // 2
        for part in (slice(0, half), slice(half, count)):
            here = hashes[part]
            rows.add(pa.table({"row": pa.array(np.arange(count)[part])}), here, np.zeros(len(here), np.int64))
        wanted = np.unique(np.append(hashes[: count // 5], np.uint64(2**64 - 1)))
        taken = rows.take(wanted)["row"].to_pylist()
        assert sorted(taken) == np.flatnonzero(np.isin(hashes, wanted)).tolist()
        by_hash: dict[int, list[int]] = {}
        for row in taken:
            by_hash.setdefault(int(hashes[row]), []).append(row)
        assert all(own == sorted(own) for own in by_hash.values())
        assert len(rows) == count - len(taken)
