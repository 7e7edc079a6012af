"""Threads beside the engine's: every item and every result once, in order, with its mistake."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from time import sleep

import pytest

from runtime.replay.replay import Workers
from tests.support.waiting import LONGEST


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_items_and_results_come_in_order(threads: int) -> None:
    with Workers[int](threads) as workers:
        tasks = [workers.do(lambda item=item: slow(item)) for item in workers.ahead(iter(range(40)))]  # type: ignore[misc]
        assert [result() for result in tasks] == list(range(40))


def slow(item: int) -> int:
    sleep(item % 3 / 1000)
    return item


@pytest.mark.parametrize("threads", [0, 2])
def test_mistakes_of_items_and_tasks_are_raised(threads: int) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("item")

    with Workers[float](threads) as workers:
        failed = workers.do(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            failed()
        with pytest.raises(ValueError, match="item"):
            list(workers.ahead(items()))


def test_work_that_nobody_wants_any_more_is_left() -> None:
    with Workers[None](1) as workers:
        assert next(workers.ahead(iter(range(10)))) == 0


def test_an_interrupt_while_the_caller_helps_is_raised_at_once() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    is_over = Event()
    with Workers[object](1) as workers:
        workers.do(is_over.wait)  # so that the only thread is busy
        try:
            with pytest.raises(KeyboardInterrupt):
                list(map(workers.do, [interrupted] * 10))
        finally:
            is_over.set()


def test_two_items_are_made_while_one_is_in_use() -> None:
    made: list[int] = []
    is_third = Event()

    def items() -> Iterator[int]:
        for number in range(5):
            made.append(number)
            if number == 2:
                is_third.set()
            yield number

    with Workers[None](1) as workers:
        own = workers.ahead(items())
        assert next(own) == 0
        assert is_third.wait(LONGEST)
        assert 3 not in made
        assert list(own) == [1, 2, 3, 4]
