"""Two ways to say the same: each addition beside the plain text that it stands for, over random streams."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.oracle.events import Row, total_order
from tests.oracle.query import Match
from tests.oracle.random_streams import random_stream
from tests.oracle.reader import read_find

INPUTS = "A retain 5; B; C"

SAME = (
    # A run of fixed length is a chain; a group too.
    ("A as a {3}", "A as a1 -> A as a2 -> A as a3"),
    ("A as a {2} where a.v > 1", "A as a1 -> A as a2 where a1.v > 1 where a2.v > 1"),
    ("A as a {2} consecutive", "A as a1 => A as a2"),
    ("A as a ? -> B as b", "A as a {0,1} -> B as b"),
    ("(A as a -> B as b) {2}", "A as a1 -> B as b1 -> A as a2 -> B as b2"),
    ("(A as a => B as b) {2} consecutive", "A as a1 => B as b1 => A as a2 => B as b2"),
    (
        "(A as a -> B as b) {2} where b.v > a.v",
        "A as a1 -> B as b1 -> A as a2 -> B as b2 where b1.v > a1.v where b2.v > a2.v",
    ),
    # Folds and `prev` are what they are of a chain.
    ("A as a {2} -> B as b where sum(a.v) > b.v", "A as a1 -> A as a2 -> B as b where a1.v + a2.v > b.v"),
    ("A as a {2} -> B as b where first(a).v < last(a).v", "A as a1 -> A as a2 -> B as b where a1.v < a2.v"),
    ("A as a {3} where a.v > prev(a).v", "A as a1 -> A as a2 -> A as a3 where a2.v > a1.v where a3.v > a2.v"),
    # Ranges have all events of a run.
    (
        "A as a {2} -> B as b without C as x between (a b) within 3 between (a b)",
        "A as a1 -> A as a2 -> B as b without C as x between (a1 a2 b) within 3",
    ),
    # Where nothing else is an input, strictly next is nothing in between.
    ("A as a => B as b", "A as a -> B as b without A as x without B as y without C as z"),
    # A wait in the middle is a distance; a repeated one is the same wait again.
    ("A as a -> wait(2) as t -> B as b", "A as a -> B as b where b.getTime() - a.getTime() >= 2.0"),
    ("A as a -> wait(2) as t {1,1}", "A as a -> wait(2) as t"),
)


def streams() -> Iterator[list[Row]]:
    for seed in range(24):
        dice = random.Random(seed)
        yield random_stream(dice, late=seed % 2 == 0)


def events_of(match: Match) -> tuple[int, list[int]]:
    """Its time and the numbers of its rows."""
    runs = [(bound,) if isinstance(bound, int) else bound or () for bound in match.members.values()]
    return match.time, sorted(number for run in runs for number in run)


@pytest.mark.parametrize("word", ["", "all "], ids=["find", "find all"])
@pytest.mark.parametrize(("one", "other"), SAME)
def test_both_find_the_same_events(one: str, other: str, word: str) -> None:
    first, second = read_find(f"{word}{one}", INPUTS), read_find(f"{word}{other}", INPUTS)
    found = [[events_of(match) for match in first.matches(rows)] for rows in streams()]
    assert found == [[events_of(match) for match in second.matches(rows)] for rows in streams()]
    assert any(found), "no stream has a match"


@pytest.mark.parametrize(
    "text",
    ["A as a + -> B as b", "A as a ? and B as b or C as c", "A as a -> B as b {0,2} consecutive -> C as c"],
)
def test_the_last_of_all_is_the_one_that_find_finds(text: str) -> None:
    for rows in streams():
        latest = {row.number: place for place, row in enumerate(sorted(rows, key=total_order))}
        every, one = (
            {max(latest[number] for number in events_of(match)[1]): match for match in found}
            for found in (read_find(f"all {text}", INPUTS).matches(rows), read_find(text, INPUTS).matches(rows))
        )
        assert one == every


def test_past_the_last_event_no_event_is_used_twice() -> None:
    for rows in streams():
        found = read_find("A as a + -> B as b after match skip past last event", INPUTS).matches(rows)
        used = [number for match in found for number in events_of(match)[1]]
        assert len(used) == len(set(used))


def test_of_very_many_matches_of_one_event_the_most_recent_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    find = read_find("all A as a + -> B as b", "A; B")
    rows = [*(Row(number, "A", number, number) for number in range(1, 6)), Row(6, "B", 6, 6)]
    every = find.matches(rows)
    monkeypatch.setattr("tests.oracle.query.MOST_MATCHES", 10)
    assert len(every) == 31
    assert find.matches(rows) == every[-10:]
