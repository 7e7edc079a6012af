"""What the rules of time promise of every stream, seen on the oracle: it is what the engine has to agree with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.timed_streams import random_timed
from tests.support.time_oracle import LONG_AGO, REASONS, TimeOracle, run
from tests.support.timed import SECOND, Record, Timed, TimedInput, stream_analytics

STREAMS = 150
ADMITTED = 1861
"""How many of their events are admitted; it changes only with what is drawn and with the rules."""


def oracles() -> Iterator[tuple[Timed, TimeOracle]]:
    """Queries with an oracle each that has seen nothing yet."""
    for number in range(STREAMS):
        query = random_timed(number)
        yield query, TimeOracle(query)


def test_definitive_times_never_go_back() -> None:
    for query, oracle in oracles():
        keys = {record.values(query.keys) for record in query.records}
        latest = dict.fromkeys(keys, LONG_AGO)
        for offset, record in query.ordered():
            oracle.take(offset, record)
            found = {key: oracle.definitive(key) for key in keys}
            assert all(found[key] >= latest[key] for key in keys)
            latest = found


def test_nothing_is_admitted_below_the_definitive_time_before_it() -> None:
    admitted = 0
    for query, oracle in oracles():
        for offset, record in query.ordered():
            oracle.advance(record.at)
            before = oracle.definitive(record.values(query.keys))
            fate = oracle.take(offset, record)
            if record.event is not None and fate.what not in (*REASONS, "filtered", "heartbeat"):
                assert fate.time is not None
                assert fate.time >= before
                admitted += 1
    assert admitted == ADMITTED


def test_events_of_a_key_are_released_in_the_order_of_their_times() -> None:
    for query, _ in oracles():
        latest: dict[object, float] = {}
        for event in run(query).released:
            assert event.time >= latest.get(event.key, LONG_AGO)
            latest[event.key] = event.time


def test_the_account_adds_up_after_every_record() -> None:
    for query, oracle in oracles():
        for number, (offset, record) in enumerate(query.ordered(), 1):
            oracle.take(offset, record)
            account = oracle.account()
            received = sum(count for (_, what), count in account.items() if what == "received")
            assert received == number == account.total() - received


@pytest.mark.parametrize("late", [0, SECOND, None])
@pytest.mark.parametrize("out_of_order", [0, 2 * SECOND])
def test_an_adjusted_time_is_the_largest_of_three(late: int | None, out_of_order: int) -> None:
    """Source time, arrival - late tolerance, newest time - out-of-order tolerance."""
    policy = stream_analytics(late=late, out_of_order=out_of_order, early=None)
    for number in range(30):
        drawn = random_timed(number, style="analytics").ordered()
        records = tuple(Record(item.at, "A", item.time) for _, item in drawn if item.time is not None)
        oracle, newest = TimeOracle(Timed((TimedInput("A", policy),), records)), LONG_AGO
        for offset, record in enumerate(records, 1):
            assert record.time is not None
            floor = LONG_AGO if late is None else record.at - late
            expected = max(record.time, floor, newest - out_of_order)
            assert oracle.take(offset, record).time == expected
            newest = max(newest, expected)
