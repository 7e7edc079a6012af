"""A translated pattern finds the matches that SQL finds, on random rows; what may not is refused."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pandas as pd
import pytest

import ensue
from ensue.importing.translation import translate
from querylang.errors import FileErrors
from tests.support.sql_row_patterns import SqlPattern

DRAWS = 150


SHARES = (0.0, 0.0, 0.1, 0.3)
"""Shares of values and of keys that are null."""


def rows_of(chooser: Random, count: int, shares: Sequence[float] = SHARES) -> pd.DataFrame:
    times = [number + 0.5 * chooser.randrange(2) for number in range(count)]
    of_values, of_keys = chooser.choice(shares), chooser.choice(shares)
    values = [None if chooser.random() < of_values else chooser.randrange(1, 5) for _ in range(count)]
    most = chooser.choice((1, 1, 2))
    keys = [None if chooser.random() < of_keys else "ab"[chooser.randrange(most)] for _ in range(count)]
    types = {"k": "string", "x": "Int64"}
    return pd.DataFrame({"ts": times, "k": keys, "x": values, "event": "T"}).astype(types)


def found(query: str, rows: pd.DataFrame) -> list[list[int]]:
    """The rows of each match, in order."""
    return sorted(map(_places, ensue.replay(query, rows, arrival="ts").to_arrow().to_pylist()))


def _places(match: dict[str, Any]) -> list[int]:
    members = [match[name] for name in "abcd" if match.get(name) is not None]
    events = [event for value in members for event in (value if isinstance(value, list) else [value])]
    return sorted(event["offset"] - 1 for event in events)


def wanted(pattern: SqlPattern, rows: pd.DataFrame) -> list[list[int]]:
    """The rows of each match of each partition, in order."""
    places: list[list[int]] = []
    for _, part in rows.groupby("k", dropna=False):
        values = [None if value is pd.NA else int(value) for value in part["x"]]
        matches = pattern.matches(list(zip(part["ts"], values, strict=True)))
        places += [part.index[start : start + len(labels)].tolist() for start, labels in matches]
    return sorted(places)


@pytest.mark.parametrize("seed", range(5))
def test_a_translated_pattern_finds_what_sql_finds(seed: int) -> None:
    _compare(Random(seed), SHARES)


@pytest.mark.parametrize("seed", range(5, 7))
def test_a_translated_pattern_finds_what_sql_finds_where_half_is_null(seed: int) -> None:
    _compare(Random(seed), (0.5, 0.8))


def _compare(chooser: Random, shares: Sequence[float]) -> None:
    translated, matches = 0, 0
    for _ in range(DRAWS):
        pattern = SqlPattern.random(chooser)
        try:
            query = translate(pattern.sql, "t.sql", "Q")
        except FileErrors:
            continue
        translated += 1
        rows = rows_of(chooser, 40, shares)
        expected = wanted(pattern, rows)
        matches += len(expected)
        assert found(query, rows) == expected, f"{pattern.sql}\n{query}\n{rows}"
    assert translated > DRAWS // 10
    assert matches > 50
