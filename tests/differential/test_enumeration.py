"""The enumeration gives what the published and the specified examples say: an oracle is only worth what it is checked by."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import pattern_oracle
from tests.support.candidates import window
from tests.support.conditions import Aggregate, Constant, Name, Operation
from tests.support.pattern_oracle import Found
from tests.support.patterns import SECOND, Both, Chain, Either, Every, Leaf, Pattern, Wait, Where, Within, Without
from tests.support.scenario import InputSetup, Row, Scenario

MINUTE = 60 * SECOND


def stream(text: str) -> tuple[Row, ...]:
    """`A1 B2`: an event a second with this value; `.` is a second in which nothing happens, `A1=A2` are at one time."""
    rows = []
    for second, moment in enumerate(text.split()):
        for event in moment.strip(".").split("="):
            if event:
                rows.append(Row(second * SECOND, event[0], v=int(event[1:])))  # noqa: PERF401
    return tuple(rows)


def found(pattern: Pattern, text: str, *clauses: Any, **settings: Any) -> list[Found]:
    """What a query over long windows finds."""
    events = settings.pop("events", "ABC")
    inputs = settings.pop("inputs", tuple(InputSetup(event, within=MINUTE) for event in events))
    return pattern_oracle.run(Scenario(inputs, pattern, stream(text), clauses=clauses, **settings))[1]


def texts(pattern: Pattern, text: str, *clauses: Any, **settings: Any) -> list[str]:
    """Each match as `a1=A3 b2=-`, where the number is the event's value."""
    rows = stream(text)
    names = Scenario((), pattern, ()).names
    return [
        " ".join(
            f"{name}={'-' if offset is None else f'{rows[offset - 1].kind}{rows[offset - 1].v}'}"
            for name, offset in zip(names, match.offsets, strict=True)
        )
        for match in found(pattern, text, *clauses, **settings)
    ]


A, B, X, Y = Leaf("A", "a"), Leaf("B", "b"), Leaf("B", "x"), Leaf("C", "y")
A1, A2, A3 = Leaf("A", "a1"), Leaf("A", "a2"), Leaf("A", "a3")


def field(name: str, of: str = "v", type_: str = "integer") -> Name:
    return Name(name, of, type_)


def test_retain_with_unique_keeps_slots_for_older_duplicates() -> None:
    sensors = ["1A", "2B", "3C", "4B", "5D", "6C", "7D"]
    rows = tuple(Row(int(item[0]) * SECOND, "A", v=int(item[0]), s=item[1]) for item in sensors)
    inputs = (InputSetup("A", retain=3, unique=("s",)),)
    admitted, _ = pattern_oracle.run(Scenario(inputs, A, rows))
    seen = [
        [f"{event.row.v}{event.row.s}" for event in (admitted.released[place] for place in places)]
        for places in (window(inputs[0], 0, admitted.released[: count + 1]) for count in range(len(rows)))
    ]
    expected = "1A|1A 2B|1A 2B 3C|3C 4B|3C 4B 5D|4B 5D 6C|6C 7D"
    assert seen == [part.split() for part in expected.split("|")]


def test_the_walk_from_dublin_to_paris() -> None:
    cities = ["Dublin", "London", "London", "London", "Paris"]
    minutes = [0, 10, 20, 30, 90]
    rows = tuple(Row(minute * MINUTE, "A", s=city) for minute, city in zip(minutes, cities, strict=True))
    differ = Where(Operation("!=", field("a1", "s", "string"), field("a2", "s", "string")))
    scenario = Scenario((InputSetup("A", retain=3),), Chain((A1, A2)), rows, clauses=(differ,))
    assert [match.offsets for match in pattern_oracle.run(scenario)[1]] == [(1, 2), (1, 3), (4, 5)]


CASES = {
    "an event may serve a name on each side of and": (
        Both(Chain((X, A1)), Chain((Y, A2))), "B1 A1 C1 A2", (), ["x=B1 a1=A2 y=C1 a2=A2"]),
    "an arriving first event fires nothing": (Chain((A, B)), "A1 A2 A3", (), []),
    "nothing is consumed": (Chain((A, B)), "A1 B1 B2", (), ["a=A1 b=B1", "a=A1 b=B2"]),
    "the most recent candidate wins": (Chain((A, B)), "A1 A2 B1", (), ["a=A2 b=B1"]),
    "events of one time have an order": (Chain((A1, A2)), "A1=A2", (), ["a1=A1 a2=A2"]),
    "and takes any order": (Both(A, B), "B1 A1", (), ["a=A1 b=B1"]),
    "or takes the side of the latest event": (Either(A, B), "A1 B1", (), ["a=A1 b=-", "a=- b=B1"]),
    "both sides of or where both bind the same event": (Either(A1, A2), "A1", (), ["a1=A1 a2=A1"]),
    "the newer side of an or before something": (
        Chain((Either(A, B), Y)), "B1 A1 C1 B2 C2", (), ["a=A1 b=- y=C1", "a=- b=B2 y=C2"]),
    "a where of an unset name is ignored": (
        Either(A, B), "A1 B1", (Where(Operation(">", field("a"), Constant(5))),), ["a=- b=B1"]),
    "a tie goes to the newer event of the last written name": (
        Both(Both(A1, A2), Leaf("A", "a3")), "A1 A2", (Within(MINUTE),), ["a1=A1 a2=A1 a3=A1", "a1=A2 a2=A2 a3=A2"]),
    "a tie is decided by the last written name": (
        Both(A1, A2), "A1 A2", (Where(Operation("!=", field("a1"), field("a2"))),), ["a1=A1 a2=A2"]),
    "within is strict": (Chain((A, B)), "A1 . B1", (Within(2 * SECOND),), []),
    "within is less than": (Chain((A, B)), "A1 . B1", (Within(2 * SECOND + 1),), ["a=A1 b=B1"]),
    "within between names only": (
        Chain((A, B, Y)), "A1 B1 . . C1", (Within(2 * SECOND, ("a", "b")),), ["a=A1 b=B1 y=C1"]),
    "without blocks inside": (Chain((A, Y)), "A1 B1 C1", (Without("B", "w"),), []),
    "without looks at the whole pattern only inside": (Chain((A, Y)), "B1 A1 C1", (Without("B", "w"),), ["a=A1 y=C1"]),
    "without where a condition holds": (
        Chain((A, Y)), "A1 B1 C1", (Without("B", "w", Operation(">", field("w"), field("y"))),), ["a=A1 y=C1"]),
    "without between does not care for order": (
        Both(Both(A, Y), Leaf("A", "a3")), "C1 B1 A1", (Without("B", "w", None, ("a", "y")),), []),
    "a bound event never blocks": (Chain((A1, A2, Y)), "A1 A2 C1", (Without("A", "w"),), ["a1=A1 a2=A2 y=C1"]),
    "an unbound one of the same input does": (
        Chain((A1, A2, Y)), "A1 A2 A3 C1", (Without("A", "w"),), ["a1=A2 a2=A3 y=C1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_pattern_finds(name: str) -> None:
    pattern, text, clauses, expected = CASES[name]
    assert texts(pattern, text, *clauses) == expected


def test_find_every_averages_over_all_candidates() -> None:
    average = Aggregate("avg", (Operation("+", field("a"), field("b")),))
    clause = Where(Operation(">=", field("b"), Constant(2)))
    matches = found(Chain((A, B)), "A1 A3 B2 B4 B1", clause, every=Every((("s", average),)))
    assert [match.selected for match in matches] == [(4.0,), (5.0,)]


WAITS = {
    "silence after an event": ("A1 . . .", [("a=A1", 2)]),
    "an event inside the wait": ("A1 B1 . . .", []),
    "an event exactly at its end": ("A1 . B1 . .", [("a=A1", 2)]),
    "an event of the same time, later": ("A1=B1 . . .", []),
    "an event of the same time, earlier": ("B1=A1 . . .", [("a=A1", 2)]),
    "each match has its own timer": ("A1 A2 . . B1", [("a=A1", 2), ("a=A2", 3)]),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_trailing_wait(name: str) -> None:
    text, expected = WAITS[name]
    clause, wait = Without("B", "w"), Wait(2 * SECOND, "t")
    times = [match.time // SECOND for match in found(A, text, clause, trailing=wait)]
    assert list(zip(texts(A, text, clause, trailing=wait), times, strict=True)) == expected


def test_what_has_left_its_window_since_the_wait_began_still_blocks() -> None:
    inputs = (InputSetup("A", within=MINUTE), InputSetup("B", retain=1))
    clause = Without("B", "w", Operation("=", field("w"), Constant(1)))
    assert found(A, "A1 B1 B2 . . .", clause, trailing=Wait(4 * SECOND), inputs=inputs) == []


LEADING = {
    "silence before": ("A1", ["a=A1"]),
    "an event inside": ("B1 A1", []),
    "an event exactly at the point": ("B1 . A1", ["a=A1"]),
    "an event before the point": ("B1 . . A1", ["a=A1"]),
}


@pytest.mark.parametrize("name", LEADING)
def test_a_leading_wait(name: str) -> None:
    text, expected = LEADING[name]
    clause = Without("B", "w", None, ("t", "a"))
    assert texts(A, text, clause, leading=Wait(2 * SECOND, "t")) == expected
