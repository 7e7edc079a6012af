"""The process's limit of recursion is as before, whoever raises it and in whatever order they end."""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest

from querylang.system_limits import room_for


def waiting(frames: int) -> Generator[int]:
    with room_for(frames):
        yield sys.getrecursionlimit()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_the_limit_is_the_largest_wanted_and_then_as_before(order: tuple[int, ...]) -> None:
    before = sys.getrecursionlimit()
    wanted = [before + 500, before + 2_000, before + 1_000]
    open_ = {number: waiting(frames) for number, frames in enumerate(wanted)}
    for generator in open_.values():
        next(generator)
    for number in order:
        assert sys.getrecursionlimit() == max(wanted[left] for left in open_)
        open_.pop(number).close()
    assert sys.getrecursionlimit() == before


def test_a_smaller_one_than_usual_changes_nothing() -> None:
    before = sys.getrecursionlimit()
    with room_for(before // 2):
        assert sys.getrecursionlimit() == before
    assert sys.getrecursionlimit() == before
