"""Draw one aircraft's day as SVG: each flight as planned and as flown, and the match.

Times are seconds since 1970, UTC; they are labelled in New York's time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.parquet

from ensue.answer import Replay
from ensue.rendering.text_table import text_table
from querylang.dataclass import dataclass

NEW_YORK = ZoneInfo("America/New_York")

WIDTH = 1120
LEFT, RIGHT, MARGIN = 190, 160, 28
TOP, ROW, BOTTOM = 112, 74, 92
BAR = 15

INK, MUTED, FAINT, GRID = "#1f2933", "#66737f", "#c4ccd4", "#e9edf1"
PLAN, OTHER = "#dfe6ec", "#9fb1c1"
HEAT = ("#d99a16", "#ee7b30", "#d7263d", "#8f1d5b")

STYLE = (
    f"text{{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:{INK}}}"
    ".title{font-size:22px;font-weight:650}.name{font-size:14px;font-weight:600}"
    f".small{{font-size:12.5px;fill:{MUTED}}}.term{{font-size:12.5px;font-weight:700;fill:#fff}}"
    ".late{font-size:13px;font-weight:600}"
)


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight of the day.

    air_time: seconds in the air
    term: its name in the match; None = it is not a member
    """

    number: str
    origin: str
    destination: str
    scheduled: float
    departure: float
    air_time: float
    term: str | None

    @property
    def late(self) -> float:
        """Seconds from the scheduled departure to the departure; negative = early."""
        return self.departure - self.scheduled

    @property
    def landing(self) -> float:
        """When the aircraft landed, and the record of the flight arrived."""
        return self.departure + self.air_time


@dataclass(frozen=True, slots=True)
class Day:
    """What is drawn.

    flights: those of one aircraft, in order of departure
    emitted: when the match was definitive
    """

    tail: str
    query: str
    pattern: str
    flights: tuple[Flight, ...]
    emitted: float


@dataclass(frozen=True, slots=True)
class Scale:
    """Times to places across the picture."""

    start: float
    end: float

    def x(self, moment: float) -> float:
        """The place of a time, in pixels from the left edge."""
        return LEFT + (moment - self.start) / (self.end - self.start) * (WIDTH - LEFT - RIGHT)


def draw(day: Day) -> str:
    """Draw the day; gives the SVG as text. Raises ValueError for a day without flights."""
    if not day.flights:
        raise ValueError(f"aircraft {day.tail} has no flights to draw")
    hour = 3600.0
    start = min(min(flight.scheduled, flight.departure) for flight in day.flights)
    end = max(max(flight.landing, flight.scheduled + flight.air_time) for flight in day.flights)
    scale = Scale((start - 0.4 * hour) // hour * hour, -(-(end + 0.4 * hour) // hour) * hour)
    height = TOP + ROW * len(day.flights) + BOTTOM
    parts = [*_head(day), *_hours(scale, height), *_chain(day.flights, scale), *_rows(day.flights, scale)]
    parts += _foot(day, scale, height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(_title(day))}">\n<style>{STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{height}" rx="14" fill="#fff" stroke="{GRID}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def minutes(seconds: float) -> str:
    """A delay for people: `+5 h 52 min`, `+17 min`, `on time`."""
    whole = round(seconds / 60)
    if whole <= 0:
        return "on time" if whole == 0 else f"{-whole} min early"
    hours, rest = divmod(whole, 60)
    return f"+{hours} h {rest:02} min late" if hours else f"+{rest} min late"


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start", colour: str | None = None) -> str:
    fill = f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}"{fill}>{escape(text)}</text>'


def _local(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC).astimezone(NEW_YORK)


def _title(day: Day) -> str:
    date = _local(day.flights[0].departure)
    return f"Aircraft {day.tail}, {date.day} {date:%B %Y}"


def _head(day: Day) -> Iterator[str]:
    yield _text(MARGIN, 42, _title(day), "title")
    yield _text(MARGIN, 66, f"{day.query}:  {day.pattern}", "small")
    legend = float(WIDTH - MARGIN)
    for label, colour in (("as flown, in the match", HEAT[1]), ("as flown", OTHER), ("planned", PLAN)):
        yield _text(legend, 42, label, "small", "end")
        legend -= 6.8 * len(label) + 6
        yield f'<rect x="{legend - 16:.1f}" y="32" width="16" height="11" rx="3" fill="{colour}"/>'
        legend -= 36


def _hours(scale: Scale, height: int) -> Iterator[str]:
    hours = round((scale.end - scale.start) / 3600)
    step = 1 if hours <= 14 else 2
    for hour in range(0, hours + 1, step):
        x = scale.x(scale.start + hour * 3600)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - BOTTOM}" stroke="{GRID}"/>'
        yield _text(x, TOP - 15, f"{_local(scale.start + hour * 3600):%H:%M}", "small", "middle")


def _rows(flights: Sequence[Flight], scale: Scale) -> Iterator[str]:
    heat = iter(HEAT)
    for row, flight in enumerate(flights):
        colour = OTHER if flight.term is None else next(heat, HEAT[-1])
        yield from _row(flight, TOP + row * ROW, colour, scale)


def _row(flight: Flight, y: float, colour: str, scale: Scale) -> Iterator[str]:
    yield _text(MARGIN, y + 27, f"{flight.origin} → {flight.destination}", "name")
    yield _text(MARGIN, y + 45, flight.number, "small")
    planned, flown = scale.x(flight.scheduled), scale.x(flight.departure)
    width = scale.x(flight.air_time) - scale.x(0)
    yield _bar(planned, y + 12, width, PLAN)
    if flight.late > 0:
        path = f"M{planned:.1f},{y + 12 + BAR} V{y + 34 + BAR / 2} H{flown:.1f}"
        yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="3 3"/>'
    yield _bar(flown, y + 34, width, colour)
    if flight.term is not None:
        yield _term(flight.term, flown, y + 34, width, colour)
    yield _text(
        flown + width + 8, y + 34 + BAR - 3, minutes(flight.late), "late", colour=colour if flight.term else MUTED
    )


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" rx="4" fill="{colour}"/>'


def _term(term: str, x: float, y: float, width: float, colour: str) -> str:
    if width > 8.2 * len(term):
        return _text(x + width / 2, y + BAR - 3.5, term, "term", "middle")
    return _text(x + width / 2, y + BAR + 14, term, "small", "middle", colour)


def _chain(flights: Sequence[Flight], scale: Scale) -> Iterator[str]:
    """The match: a line from the end of each of its flights to the start of the next."""
    members = [(row, flight) for row, flight in enumerate(flights) if flight.term is not None]
    for (row, flight), (next_row, following) in pairwise(members):
        x1, y1 = scale.x(flight.landing), TOP + row * ROW + 34 + BAR / 2
        x2, y2 = scale.x(following.departure), TOP + next_row * ROW + 32
        curve = f"M{x1:.1f},{y1:.1f} C{x1 + 10:.1f},{(y1 + y2) / 2:.1f} {x2:.1f},{(y1 + y2) / 2:.1f} {x2:.1f},{y2:.1f}"
        yield f'<path d="{curve}" fill="none" stroke="{INK}" stroke-width="1.6" stroke-opacity=".55"/>'
        head = f"M{x2 - 4:.1f},{y2 - 7:.1f} L{x2:.1f},{y2:.1f} L{x2 + 4:.1f},{y2 - 7:.1f}"
        yield f'<path d="{head}" fill="none" stroke="{INK}" stroke-width="1.6" stroke-opacity=".55"/>'


def _foot(day: Day, scale: Scale, height: int) -> Iterator[str]:
    """When the records arrived, and when the match was definitive."""
    y = height - BOTTOM + 26
    yield f'<line x1="{LEFT}" x2="{WIDTH - MARGIN}" y1="{y}" y2="{y}" stroke="{FAINT}"/>'
    yield _text(MARGIN, y + 5, "records arrive", "small")
    for flight in day.flights:
        colour = OTHER if flight.term is None else INK
        yield f'<circle cx="{scale.x(flight.landing):.1f}" cy="{y}" r="4.5" fill="{colour}"/>'
    last = max(flight.landing for flight in day.flights if flight.term is not None)
    hours, rest = divmod(round(day.emitted - last) // 60, 60)
    certain = (
        "A flight is reported once it has landed; the query waits until no earlier departure can be missing. "
        f"The match was certain {hours} h {rest:02} min after its last record."
    )
    yield _text(MARGIN, height - 26, certain, "small")


# The most striking matches of the demo, as tables of text, and the day that is drawn.

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


def worst_day(matches: Sequence[Match], events: Path) -> Day:
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
    return Day(
        tail=tail,
        query=match.query,
        pattern="three departures, each at least 15 minutes later than the one before",
        flights=tuple(_flight(row, terms.get(row["departure"])) for row in day.to_dict("records")),
        emitted=match.emitted,
    )


def _flight(row: Mapping[Any, Any], term: str | None) -> Flight:
    return Flight(
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
