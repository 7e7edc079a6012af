"""The oracle of time by itself: every column of the published tables comes out before it judges anybody."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.conformance.apama_tables import Trusted, trusted_cases
from tests.conformance.published import (
    Idle,
    Incremented,
    Ordered,
    Written,
    idle_cases,
    increment_cases,
    ordered_tables,
    printed,
)
from tests.support.time_oracle import LONG_AGO, REASONS, Fate, TimeOracle, run

WORDS = {"used": "pass", "early": "early_drop", "late": "late_drop", "out_of_order": "ooo_drop"}
WORDS |= {"adjusted_late": "late_adjust", "adjusted_out_of_order": "ooo_adjust"}


def test_the_tables_are_here() -> None:
    assert [len(table.rows) for table in ordered_tables()] == [5, 12, 12, 12]
    assert (len(idle_cases()), len(increment_cases())) == (5, 13)


@pytest.mark.parametrize("table", ordered_tables(), ids=lambda table: table.name)
def test_every_column_of_a_table(table: Ordered) -> None:
    query = table.timed("adjust")
    oracle = TimeOracle(query)
    for (offset, record), row in zip(query.ordered(), table.rows, strict=True):
        key = record.values(table.keys)
        if row.before is not None:
            assert oracle.definitive(key) == row.before
        earlier = len(oracle.released)
        fate = oracle.take(offset, record)
        assert (WORDS[fate.what], fate.time, oracle.definitive(key)) == (row.action, row.time, row.after)
        assert tuple(sorted(event.offset for event in oracle.released[earlier:])) == row.released


@pytest.mark.parametrize("table", ordered_tables(), ids=lambda table: table.name)
def test_the_same_table_where_nothing_is_adjusted(table: Ordered) -> None:
    fates = run(table.timed("drop")).fates
    assert [WORDS[fate.what] for fate in fates] == [row.action_if_drop for row in table.rows]


@pytest.mark.parametrize("case", trusted_cases(), ids=lambda case: case.name)
def test_every_column_of_a_table_with_delayed_events(case: Trusted) -> None:
    oracle = TimeOracle(case.query)
    shown = 0
    for (offset, record), told in zip(case.query.ordered(), case.told, strict=True):
        fate = oracle.take(offset, record)
        assert (fate.what if fate.what in REASONS else None) == told.discard
        if told.definitive is not None:
            assert oracle.definitive(()) == told.definitive
        pairs = pairs_of(case, oracle)
        assert tuple(pairs[shown:]) == told.out
        shown = len(pairs)


def pairs_of(case: Trusted, oracle: TimeOracle) -> list[tuple[int | None, int | None]]:
    """`find A as a1 -> A as a2` over what was released."""
    taken = [event for event in oracle.released if event.input == 0]
    following = [(first, second) for first, second in pairwise(taken) if second.time - first.time < case.within]
    return [(case.ids[first.offset - 1], case.ids[second.offset - 1]) for first, second in following]


@pytest.mark.parametrize("case", idle_cases(), ids=lambda case: case.name)
def test_when_silent_partitions_let_an_event_pass(case: Idle) -> None:
    oracle = run(case.query)
    (event,) = [event for event in oracle.released if event.offset == case.number]
    assert event.emitted - event.arrival == case.output_after


@pytest.mark.parametrize("case", increment_cases(), ids=lambda case: case.name)
def test_what_a_query_writes_that_passes_everything(case: Incremented) -> None:
    oracle, written = written_by(case)
    assert printed(case, written) == case.out
    assert tuple(number for number in ids_of(case, oracle.fates) if number is not None) == case.dropped
    waiting = [event.fate.offset for events in oracle.waiting.values() for event in events]
    assert tuple(case.ids[offset - 1] for offset in waiting) == case.held


def ids_of(case: Incremented, fates: list[Fate]) -> list[int | None]:
    """The events of which a record was refused."""
    return [case.ids[fate.offset - 1] for fate in fates if fate.what in REASONS]


def written_by(case: Incremented) -> tuple[TimeOracle, list[Written]]:
    """Events and punctuations in the order in which the oracle lets them pass."""
    oracle = TimeOracle(case.query)
    written: list[Written] = []
    shown = 0
    level = LONG_AGO

    def look() -> None:
        nonlocal level, shown
        written.extend((event.offset, event.time, event.end) for event in oracle.released[shown:])
        shown = len(oracle.released)
        if oracle.definitive(()) > level:
            level = oracle.definitive(())
            written.append(level)

    for offset, record in case.query.ordered():
        due = oracle._next_moment()
        if due <= record.at:
            oracle.advance(int(due))
            look()
        oracle.take(offset, record)
        look()
    if case.until is not None:
        oracle.advance(case.until)
    if case.is_final:
        oracle.finish()
    look()
    return oracle, written
