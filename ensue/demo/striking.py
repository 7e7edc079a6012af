"""What is worth a look among the matches: rich tables, and the day that is drawn.

Takes matches as `ensue.replay` gives them (columns `query`, `key`, `members`, `emitted`); gives things to print and
the data of the picture. Leaves printing and drawing to others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet
from rich.table import Table

from ensue.demo import picture

HOUR = 3600.0
TERMS = ("first", "second", "third")


@dataclass(frozen=True, slots=True)
class Match:
    """A match of one of the demo's queries: its members' fields by name, and when it was certain (seconds)."""

    query: str
    members: Mapping[str, Mapping[str, Any]]
    emitted: float


def matches_of(matches: pd.DataFrame, query: str) -> list[Match]:
    """The matches of one query."""
    rows = matches[matches["query"] == query]
    return [
        Match(query, {name: member["fields"] for name, member in row["members"].items()}, row["emitted"].timestamp())
        for row in rows.to_dict("records")
    ]


def carried_table(matches: Sequence[Match], rows: int) -> Table:
    """The longest delays that an aircraft took with it."""
    table = Table(title="Delays that the aircraft carried to its next departure", title_justify="left")
    for column in ("aircraft", "left (UTC)", "for", "late", "and then", "for", "late"):
        table.add_column(column, justify="right" if column == "late" else "left")
    for match in _top(matches, rows, lambda m: m.members["first"]["delay"] + m.members["next"]["delay"]):
        first, following = match.members["first"], match.members["next"]
        table.add_row(str(first["tail"]), *_left(first), *_left(following))
    return table


def snowball_table(matches: Sequence[Match], rows: int) -> Table:
    """The days that got worse the most."""
    table = Table(title="Three departures of one aircraft, each later than the one before", title_justify="left")
    for column in ("aircraft", "day", "first", "second", "third"):
        table.add_column(column)
    for match in _top(matches, rows, growth):
        flights = [match.members[term] for term in TERMS]
        legs = [f"{flight['origin']} → {flight['destination']} {_late(flight['delay'])}" for flight in flights]
        table.add_row(str(flights[0]["tail"]), f"{_moment(flights[0]['departure']):%d %B}", *legs)
    return table


def storm_table(matches: Sequence[Match], rows: int) -> Table:
    """The hours of fog or storm that held back the most flights."""
    held: dict[tuple[str, float], list[Match]] = defaultdict(list)
    for match in matches:
        weather = match.members["weather"]
        held[weather["origin"], weather["observed"]].append(match)
    table = Table(title="Hours of fog or storm, and the flights that they held back", title_justify="left")
    for column in ("airport", "hour (UTC)", "visibility", "wind", "flights held", "latest"):
        table.add_column(column, justify="left" if column in {"airport", "hour (UTC)"} else "right")
    for (origin, observed), group in sorted(held.items(), key=lambda item: (-len(item[1]), item[0]))[:rows]:
        weather = group[0].members["weather"]
        latest = max(match.members["flight"]["delay"] for match in group)
        sight, wind = f"{weather['visibility']:g} miles", f"{weather['wind_speed']:.0f} mph"
        table.add_row(origin, f"{_moment(observed):%d %B %H:%M}", sight, wind, str(len(group)), _late(latest))
    return table


def growth(match: Match) -> float:
    """By how many minutes a day got worse, from its first departure to its third."""
    return float(match.members["third"]["delay"]) - float(match.members["first"]["delay"])


def worst_day(matches: pd.DataFrame, events: Path) -> picture.Day:
    """The day that got worse the most, with all of that aircraft's flights from New York around it.

    `matches`: those of the query Snowball are looked at; `events`: the folder of event tables.
    """
    match = _top(matches_of(matches, "Snowball"), 1, growth)[0]
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


def _left(flight: Mapping[str, Any]) -> tuple[str, str, str]:
    moment = f"{_moment(flight['departure']):%d %b %H:%M}"
    return moment, f"{flight['origin']} → {flight['destination']}", _late(flight["delay"])


def _late(minutes: float) -> str:
    hours, rest = divmod(round(minutes), 60)
    return f"+{hours} h {rest:02} min" if hours else f"+{rest} min"


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
