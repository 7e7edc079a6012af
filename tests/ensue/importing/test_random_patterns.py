"""A translated pattern finds the matches that SQL finds, on random rows; what may not is refused."""

from __future__ import annotations

from random import Random
from typing import Any

import pandas as pd
import pytest

import ensue
from ensue.importing.translation import translate
from querylang.errors import FileErrors
from tests.support.sql_row_patterns import SqlPattern

DRAWS = 150


def rows_of(chooser: Random, count: int) -> pd.DataFrame:
    times = [number + 0.5 * chooser.randrange(2) for number in range(count)]
    share = chooser.choice((0.0, 0.0, 0.1, 0.3))  # of nulls
    values = [None if chooser.random() < share else chooser.randrange(1, 5) for _ in range(count)]
    return pd.DataFrame({"ts": times, "k": "a", "x": pd.array(values, "Int64"), "event": "T"})


def found(query: str, rows: pd.DataFrame) -> list[tuple[int, int]]:
    """First row and number of rows of each match, in order."""
    return sorted(map(_range, ensue.replay(query, rows, arrival="ts").to_arrow().to_pylist()))


def _range(match: dict[str, Any]) -> tuple[int, int]:
    members = [match[name] for name in "abcd" if match.get(name) is not None]
    offsets = [event["offset"] for value in members for event in (value if isinstance(value, list) else [value])]
    return min(offsets) - 1, len(offsets)


def wanted(pattern: SqlPattern, rows: pd.DataFrame) -> list[tuple[int, int]]:
    values = [None if value is pd.NA else int(value) for value in rows["x"]]
    found = pattern.matches(list(zip(rows["ts"], values, strict=True)))
    return sorted((start, len(labels)) for start, labels in found)


@pytest.mark.parametrize("seed", range(5))
def test_a_translated_pattern_finds_what_sql_finds(seed: int) -> None:
    chooser, translated, matches = Random(seed), 0, 0
    for _ in range(DRAWS):
        pattern = SqlPattern.random(chooser)
        try:
            query = translate(pattern.sql, "t.sql", "Q")
        except FileErrors:
            continue
        translated += 1
        rows = rows_of(chooser, 40)
        expected = wanted(pattern, rows)
        matches += len(expected)
        assert found(query, rows) == expected, f"{pattern.sql}\n{query}\n{rows['x'].tolist()}"
    assert translated > DRAWS // 10
    assert matches > 100
