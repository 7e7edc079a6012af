"""Draw a small replay as SVG: its events in their order, a line per key, and below them the matches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

LEFT, COLUMN, LANE, BAND, RIGHT = 20, 104, 64, 26, 20
STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#1f2933;text-anchor:middle}.when{fill:#66737f}.key{text-anchor:start;fill:#66737f}"
    ".lane{stroke:#d5dce3}.event{fill:#9fb1c1}.bound{fill:#d7263d}.match{stroke:#d7263d;stroke-width:2;fill:none}"
    ".answer{fill:#1f2933}.due{stroke:#c4ccd4;stroke-dasharray:3 3}.text{font-weight:600}"
)


@dataclass(frozen=True, slots=True)
class Event:
    """A row of the table: number, time, key, type, and what else it says."""

    row: int
    time: str
    key: str
    name: str
    fields: str


@dataclass(frozen=True, slots=True)
class Match:
    """The rows of a match, when it was given, and what it printed."""

    rows: tuple[int, ...]
    time: str
    text: str


def events_and_matches(found: Mapping[str, Any], rows: Sequence[Mapping[str, str]]) -> tuple[list[Event], list[Match]]:
    """From what `ensue replay --json` prints, and the rows of the table."""
    keys = list(dict.fromkeys(name for match in found["matches"] for name in match["key"]))
    is_of_one_type = len({row.get("event") for row in rows}) == 1
    events = [_event(number, row, keys, is_of_one_type) for number, row in enumerate(rows, 1)]
    texts = {output["match_id"]: output["text"] for output in found["outputs"]}
    matches = []
    for match in found["matches"]:
        time, key = _shown(match["emitted"], events), ", ".join(str(value) for value in match["key"].values())
        bound = [event["row"] for value in match["members"].values() for event in _events(value)]
        latest = [event.row for event in events if (event.time, event.key) == (time, key)]  # of `find every`
        matches.append(Match(tuple(bound or latest), time, texts.get(match["match_id"], "")))
    return events, matches


def _shown(moment: str, events: Sequence[Event]) -> str:
    """A moment as times of events are shown."""
    return _short(moment) if " " in events[0].time else moment[11:19]


def _short(moment: str) -> str:
    return moment[5:16].replace("T", " ")


def _events(value: Any) -> list[Mapping[str, Any]]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _event(number: int, row: Mapping[str, str], keys: Sequence[str], is_of_one_type: bool) -> Event:
    rest = [value for name, value in row.items() if name not in ("at", "event", *keys) and value]
    time = row["at"] if "T" not in row["at"] else _short(row["at"])
    name = "" if is_of_one_type else row.get("event", "")
    return Event(number, time, ", ".join(row[key] for key in keys), name, " ".join(rest))


def draw(events: Sequence[Event], matches: Sequence[Match]) -> str:
    """The picture."""
    moments = sorted({item.time for item in (*events, *matches)})
    keys = list(dict.fromkeys(event.key for event in events))
    across = {moment: LEFT + COLUMN // 2 + COLUMN * number for number, moment in enumerate(moments)}
    lanes = {key: 46 + LANE * number for number, key in enumerate(keys)}
    below = 46 + LANE * len(keys) - 8
    width, height = LEFT + COLUMN * len(moments) + RIGHT, below + BAND * len(matches) + 12
    parts = [*_lanes(lanes, width), *_events_drawn(events, matches, across, lanes)]
    for number, match in enumerate(matches):
        parts += _match(match, events, across, below + BAND * number)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def _lanes(lanes: Mapping[str, int], width: int) -> Iterator[str]:
    for key, y in lanes.items():
        yield f'<line class="lane" x1="{LEFT}" x2="{width - RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text class="key" x="2" y="{y - 22}">{escape(key)}</text>'


def _events_drawn(
    events: Sequence[Event], matches: Sequence[Match], across: Mapping[str, int], lanes: Mapping[str, int]
) -> Iterator[str]:
    bound = {row for match in matches for row in match.rows}
    for event in events:
        x, y = across[event.time], lanes[event.key]
        text = escape(" ".join(filter(None, (event.name, event.fields))))
        yield f'<circle class="{"bound" if event.row in bound else "event"}" cx="{x}" cy="{y}" r="6"/>'
        yield f'<text x="{x}" y="{y - 12}">{text}</text>'
        yield f'<text class="when" x="{x}" y="{y + 22}">{event.time}</text>'


def _match(match: Match, events: Sequence[Event], across: Mapping[str, int], y: int) -> Iterator[str]:
    places = sorted(across[event.time] for event in events if event.row in match.rows)
    end = across[match.time]
    yield f'<line class="match" x1="{places[0]}" x2="{places[-1]}" y1="{y}" y2="{y}"/>'
    if end > places[-1]:
        yield f'<line class="due" x1="{places[-1]}" x2="{end}" y1="{y}" y2="{y}"/>'
        yield f'<text class="when" x="{end}" y="{y - 6}">{match.time}</text>'
    yield from (f'<circle class="bound" cx="{x}" cy="{y}" r="4"/>' for x in places)
    yield f'<rect class="answer" x="{end - 2}" y="{y - 7}" width="4" height="14"/>'
    yield f'<text class="text" x="{(places[0] + end) // 2}" y="{y + 16}">{escape(match.text)}</text>'
