"""Matches in their guaranteed order: only those of one step are compared by more than their step."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from runtime.results.matched import match_order, ordered_steps

KEYS = pa.array(["d", "c", "b", "a", "e", "e"])


def order(emitted: list[int], step: list[int], time: list[int] | None = None) -> list[int]:
    """The order of six matches with the keys KEYS."""
    columns = (np.array(column) for column in (emitted, step, time or [0] * 6, [5, 4, 3, 2, 1, 0]))
    return match_order(*columns, lambda matches: [KEYS.take(pa.array(matches))]).tolist()


def test_matches_are_ordered_by_moment_and_then_by_step() -> None:
    assert order([3, 1, 2, 2, 6, 5], [0, 0, 9, 8, 0, 0]) == [1, 3, 2, 0, 5, 4]


def test_matches_of_one_step_are_ordered_by_key() -> None:
    assert order([1, 7, 7, 7, 8, 9], [0, 2, 2, 1, 0, 0]) == [0, 3, 2, 1, 4, 5]


def test_matches_of_one_step_and_key_are_ordered_by_time_and_then_by_candidate() -> None:
    assert order([1, 2, 3, 4, 5, 5], [0] * 6, [0, 0, 0, 0, 8, 7]) == [0, 1, 2, 3, 5, 4]
    assert order([1, 2, 3, 4, 5, 5], [0] * 6) == [0, 1, 2, 3, 5, 4]


def test_matches_in_order_stay() -> None:
    assert order([1, 2, 3, 4, 5, 6], [0] * 6) == [0, 1, 2, 3, 4, 5]


def test_matches_of_coarse_moments_are_ordered_by_step() -> None:
    count = 40_000
    random = np.random.default_rng(7)
    emitted, step = random.integers(0, 9, count), random.permutation(count)
    none = np.zeros(count, np.int64)
    found = match_order(emitted, step, none, none, lambda _: [])
    assert found.tolist() == np.lexsort((step, emitted)).tolist()


@pytest.mark.parametrize("moments", [9, 30_000], ids=["coarse", "fine"])
def test_moments_and_steps_are_given_in_the_order(moments: int) -> None:
    count = 40_000
    random = np.random.default_rng(8)
    emitted, step, rank = random.integers(0, moments, count), random.integers(0, 3, count), random.permutation(count)
    order, *columns = ordered_steps(emitted, step, rank, rank, lambda _: [])
    assert order.tolist() == np.lexsort((rank, step, emitted)).tolist()
    assert [column.tolist() for column in columns] == [emitted[order].tolist(), step[order].tolist()]
