"""Patterns over sources that are put in order: they find what they would find in the released events, had these arrived in order.

What is released, when, and at what time, is compared with the oracle of time elsewhere; here it is what the matcher is given.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from runtime.engine.engine import Engine
from tests.differential.timed_compare import rows_of
from tests.differential.timed_streams import random_timed
from tests.support.time_oracle import TimeOracle, run
from tests.support.timed import POINT, Record, Timed, TimedInput
from tests.support.timed_engine import arrivals_of, plan_of

FINDS = (
    "A as a -> {X} as b",
    "A as a -> {X} as b where b.v >= a.v within 3.0",
    "A as a and {X} as b",
    "A as a -> {X} as b -> A as z within 4.0",
    "A as a -> {X} as b without A as x where x.v = 0",
)
WINDOWS = ("retain 3", "within 4.0", "within 2.0 retain 2", "retain 2 with unique v")
STREAMS = 6
"""For each window; other ones for each."""


@pytest.mark.parametrize("window", WINDOWS)
def test_patterns_see_events_in_the_order_of_their_times(window: str) -> None:
    found = 0
    first = WINDOWS.index(window) * STREAMS
    for number in range(first, first + STREAMS):
        query = points_only(random_timed(number))
        second = query.inputs[1].event if len(query.inputs) > 1 else "A"
        finds = [(f"Q{place}", find.replace("{X}", second)) for place, find in enumerate(FINDS)]
        expected = matches_of(in_order(query, run(query)), finds, window, random.Random(number))
        assert matches_of(query, finds, window, random.Random(number)) == expected, f"stream {number}"
        found += len(expected)
    assert found > STREAMS


def points_only(query: Timed) -> Timed:
    """The stream without ends; each record's number becomes its event's `id`."""
    records = tuple(replace(record, id=number, shape=POINT, end=None) for number, record in enumerate(query.records, 1))
    return replace(query, records=records)


def in_order(query: Timed, oracle: TimeOracle) -> Timed:
    """What was released, as a stream of which each event arrives when it happened, to inputs that take it as it comes."""
    number = {fate.offset: fate.number for fate in oracle.fates}
    released = sorted(oracle.released, key=lambda event: (event.time, event.arrival, number[event.offset]))
    records: list[Record] = [replace(query.records[event.offset - 1], at=event.time) for event in released]
    inputs = tuple(TimedInput(item.event, least=item.least) for item in query.inputs)
    return Timed(inputs, tuple(replace(record, source="s", partition=0) for record in records), query.keys)


def matches_of(query: Timed, finds: list[tuple[str, str]], window: str, chooser: random.Random) -> list[Any]:
    """Matches by query, key, time and the ids of their events; in two calls, with a snapshot between them."""
    plan, rows = plan_of(query, finds, window), query.ordered()
    cut = chooser.randint(0, len(rows))
    engine = Engine(plan)
    results = [engine.process(arrivals_of(plan, rows[:cut]))]
    engine = Engine.restore(plan, engine.snapshot())
    results += [engine.process(arrivals_of(plan, rows[cut:])), engine.flush()]
    matches = [(name, row) for name, _ in finds for result in results for row in rows_of(result.matches.get(name))]
    return sorted(
        (name, str(row["key"]), row["time"], tuple(member["fields"]["id"] for member in row["members"].values()))
        for name, row in matches
    )
