"""While Ensue reads or replays, the collector looks rarely; afterwards as often as the process wants."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from threading import Barrier, Thread

import pytest

import ensue
from runtime.threads import COLLECTIONS, rare_collections

OWN = (700, 10, 10)


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*OWN)
    yield
    gc.set_threshold(*before)


def test_calls_inside_each_other_leave_what_was_before() -> None:
    with rare_collections():
        with rare_collections():
            assert gc.get_threshold() == COLLECTIONS
        assert gc.get_threshold() == COLLECTIONS
    assert gc.get_threshold() == OWN


def test_threads_leave_what_was_before() -> None:
    first, second = Barrier(2), Barrier(2)

    def outlives() -> None:
        with rare_collections():
            first.wait(10)
            second.wait(10)

    thread = Thread(target=outlives)
    with rare_collections():
        thread.start()
        first.wait(10)
    assert gc.get_threshold() == COLLECTIONS
    second.wait(10)
    thread.join(10)
    assert gc.get_threshold() == OWN


def test_a_collector_that_is_off_stays_off() -> None:
    gc.set_threshold(0)
    with rare_collections():
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0


def test_an_error_of_a_replay_leaves_what_was_before() -> None:
    with pytest.raises(ensue.EnsueError):
        ensue.replay("query Q {", [])
    assert gc.get_threshold() == OWN
