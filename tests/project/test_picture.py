"""The picture: what is drawn, where, and how delays are said."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from ensue.demo.picture import Day, Flight, draw, minutes

NOON = 1_373_472_000.0


def flight(scheduled: float, late: float, term: str | None = None) -> Flight:
    start = NOON + scheduled * 3600
    return Flight("B6 1", "JFK", "B<S", start, start + late * 60, 3600.0, term)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


DAY = Day("N1", "Q", "a pattern", (flight(0, 0), flight(2, 20, "first"), flight(5, 95, "second")), NOON + 20 * 3600)


def test_it_is_well_formed_and_names_everything() -> None:
    drawn = texts(draw(DAY))
    assert "Aircraft N1, 10 July 2013" in drawn
    assert {"first", "second", "on time", "+20 min late", "+1 h 35 min late"} <= set(drawn)
    assert drawn.count("JFK → B<S") == 3


def test_the_chain_joins_the_flights_of_the_match_only() -> None:
    assert draw(DAY).count(" C") == 1


def test_a_day_without_flights_is_refused() -> None:
    with pytest.raises(ValueError, match="no flights"):
        draw(Day("N1", "Q", "a pattern", (), NOON))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "on time"),
        (-180, "3 min early"),
        (61, "+1 min late"),
        (3600, "+1 h 00 min late"),
        (22_500, "+6 h 15 min late"),
    ],
)
def test_delays_are_said_for_people(seconds: float, text: str) -> None:
    assert minutes(seconds) == text
