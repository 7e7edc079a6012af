"""The most striking matches of the demo, as tables of text, and the day that is drawn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet

from ensue.demo import picture
from ensue.rendering.text_table import text_table
from ensue.result import Replay

HOUR = 3600.0
TERMS = ("first", "second", "third")


@dataclass(frozen=True, slots=True)
class Match:
    """A match of one of the demo's queries.

    members: the members' fields, by name
    emitted: when it was definitive, seconds since 1970
    """

    query: str
    members: Mapping[str, Mapping[str, Any]]
    emitted: float


def matches_of(replay: Replay, query: str) -> list[Match]:
    """The matches of one query."""
    rows = replay.to_arrow(query).to_pylist()
    terms = [term.name for term in replay.plan.query(query).terms]
    return [Match(query, {term: row[term]["fields"] for term in terms}, row["emitted"].timestamp()) for row in rows]


def carried_table(matches: Sequence[Match], rows: int) -> str:
    """The longest delays that an aircraft kept at its next departure."""
    header = ["aircraft", "departure (UTC)", "flight", "delay", "next departure", "next flight", "next delay"]
    cells = []
    for match in _top(matches, rows, lambda m: m.members["first"]["delay"] + m.members["next"]["delay"]):
        first, following = match.members["first"], match.members["next"]
        cells.append([str(first["tail"]), *_departure(first), *_departure(following)])
    return text_table(header, cells, right=frozenset({"delay", "next delay"}))


def snowball_table(matches: Sequence[Match], rows: int) -> str:
    """The days on which delays grew the most."""
    cells = []
    for match in _top(matches, rows, growth):
        flights = [match.members[term] for term in TERMS]
        legs = [f"{flight['origin']} → {flight['destination']} {_late(flight['delay'])}" for flight in flights]
        cells.append([str(flights[0]["tail"]), f"{_moment(flights[0]['departure']):%d %B}", *legs])
    return text_table(["aircraft", "day", *TERMS], cells)


def storm_table(matches: Sequence[Match], rows: int) -> str:
    """The hours of fog or storm that delayed the most flights."""
    delayed: dict[tuple[str, float], list[Match]] = defaultdict(list)
    for match in matches:
        weather = match.members["weather"]
        delayed[weather["origin"], weather["observed"]].append(match)
    cells = []
    for (origin, observed), group in sorted(delayed.items(), key=lambda item: (-len(item[1]), item[0]))[:rows]:
        weather = group[0].members["weather"]
        latest = max(match.members["flight"]["delay"] for match in group)
        visibility, wind = f"{weather['visibility']:g} miles", f"{weather['wind_speed']:.0f} mph"
        hour = f"{_moment(observed):%d %B %H:%M}"
        cells.append([origin, hour, visibility, wind, str(len(group)), _late(latest)])
    header = ["airport", "hour (UTC)", "visibility", "wind", "flights delayed", "longest delay"]
    return text_table(header, cells, right=frozenset(header[2:]))


def growth(match: Match) -> float:
    """By how many minutes the delay grew from the first departure to the third."""
    return float(match.members["third"]["delay"]) - float(match.members["first"]["delay"])


def worst_day(matches: Sequence[Match], events: Path) -> picture.Day:
    """The day on which delays grew the most, with all flights of that aircraft around it.

    matches: those of the query Snowball
    events: the folder of event tables
    """
    match = _top(matches, 1, growth)[0]
    departures = [match.members[term]["departure"] for term in TERMS]
    tail = str(match.members["first"]["tail"])
    flights = pyarrow.parquet.read_table(events, filters=[("tail", "==", tail)]).to_pandas()
    near = flights["departure"].between(departures[0] - 6 * HOUR, departures[-1] + 2 * HOUR)
    day = flights[near & flights["air_time"].notna()].sort_values("departure")
    terms = dict(zip(departures, TERMS, strict=True))
    return picture.Day(
        tail=tail,
        query=match.query,
        pattern="three departures, each at least 15 minutes later than the one before",
        flights=tuple(_flight(row, terms.get(row["departure"])) for row in day.to_dict("records")),
        emitted=match.emitted,
    )


def _flight(row: Mapping[Any, Any], term: str | None) -> picture.Flight:
    return picture.Flight(
        number=row["number"],
        origin=row["origin"],
        destination=row["destination"],
        scheduled=row["scheduled"],
        departure=row["departure"],
        air_time=row["air_time"] * 60.0,
        term=term,
    )


def _top(matches: Sequence[Match], rows: int, measure: Callable[[Match], float]) -> list[Match]:
    return sorted(matches, key=lambda match: (-measure(match), match.emitted))[:rows]


def _departure(flight: Mapping[str, Any]) -> tuple[str, str, str]:
    moment = f"{_moment(flight['departure']):%d %b %H:%M}"
    return moment, f"{flight['origin']} → {flight['destination']}", _late(flight["delay"])


def _late(minutes: float) -> str:
    hours, rest = divmod(round(minutes), 60)
    return f"+{hours} h {rest:02} min" if hours else f"+{rest} min"


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
