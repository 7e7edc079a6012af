"""Columns that several queries store once: found again by number, whatever is kept."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from runtime.columns import rows
from runtime.columns.rows import NumberedRows, RepeatedTexts, plain_cells, shared_cells

SCHEMA = pa.schema([("s", pa.string()), ("l", pa.list_(pa.int64())), ("missing", pa.float64())])


def records(first: int, count: int) -> pa.Table:
    texts = [None if n % 7 == 0 else f"t{n}" for n in range(first, first + count)]
    return pa.table(
        {
            "s": pa.array(texts, pa.string()),
            "other": range(count),
            "l": pa.array([[n, n] for n in range(count)], SCHEMA.field("l").type),
        }
    )


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_is_found_by_its_number(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LEAST", 10)
    monkeypatch.setattr(rows, "_OFTEN", 1 - seed % 2)
    chance, stored, written = random.Random(seed), NumberedRows(SCHEMA), 0
    known: dict[int, tuple[object, ...]] = {}
    most = 0
    for _ in range(30):
        own = records(written, chance.randrange(6))
        written += len(own)
        if chance.random() < 0.2:
            numbers = stored.add(own).tolist()
        else:
            texts = RepeatedTexts(own)
            texts.column("s")
            first = stored.begin(texts.shared())
            numbers = list(range(first, first + len(own)))
        lines = zip(own.column("s").to_pylist(), own.column("l").to_pylist(), strict=True)
        known |= {number: (*line, None) for number, line in zip(numbers, lines, strict=True)}
        wanted = chance.choices(sorted(known), k=chance.randrange(9)) if known else []
        found = plain_cells(pa.table(stored.shared(np.array(wanted, np.int64)), names=SCHEMA.names))
        assert found.schema == SCHEMA
        assert list(zip(*found.to_pydict().values(), strict=True)) == [known[number] for number in wanted]
        used = np.array([number for number in known if chance.random() < 0.7], np.int64)
        stored.keep(used, len(used), lambda used=used: used)  # type: ignore[misc]
        known = {number: known[number] for number in used.tolist()}
        most = max(most, sum(len(numbers) for numbers, _ in stored._runs) - 2 * len(used))
    assert most <= rows.LEAST


def test_without_columns_nothing_is_stored() -> None:
    stored = NumberedRows(pa.schema([]))
    assert stored.add(records(0, 3)).tolist() == [0, 1, 2]
    assert stored.begin(records(3, 2)) == 3
    stored.keep(np.array([0, 4]), 2, lambda: np.array([0, 4]))
    assert stored.shared(np.array([0, 4])) == []
    assert not stored._runs


def test_cells_that_rows_share_are_copied_when_asked_for() -> None:
    column = shared_cells(pa.array(["a", None, "c"]), np.array([2, 2, 1], np.int32))
    sources = pa.array(["x", "x", "y"]).dictionary_encode()
    table = plain_cells(pa.table({"s": column, "_source": sources}))
    assert table.column("s").to_pylist() == ["c", "c", None]
    assert table.schema.types == [pa.string(), sources.type]


def test_only_texts_that_repeat_are_known_by_their_different_ones() -> None:
    texts = RepeatedTexts(
        pa.table({"few": ["a", None, "a", "b"] * 50, "each": [str(n) for n in range(200)], "n": [1] * 200})
    )
    assert [texts.column(name) is not None for name in texts.table.column_names] == [True, False, False]
    assert plain_cells(texts.shared()).equals(texts.table)
