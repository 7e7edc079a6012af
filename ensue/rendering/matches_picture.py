"""Draw matches as SVG: a line per match, from its first event to the moment of its answer.

All lines have the same scale and begin at the left, so that slow matches stand out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ensue.rendering.replay_table import key_text
from ensue.rendering.text_table import shortened
from ensue.rendering.time_format import TimeFormat
from querylang.printable import printable
from runtime.results.for_users import Plain
from runtime.timestamps import parse_time

MOST = 40
"""So many matches are drawn."""

WIDTH, LEFT, RIGHT, ROW, TOP = 960, 300, 130, 26, 34
NEAR = 46
"""Closer names would be written over one another."""

STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1f2933}.when{fill:#66737f}.line{stroke:#9fb1c1;stroke-width:2}"
    ".wait{stroke:#c4ccd4;stroke-dasharray:3 3}.dot{fill:#d7263d}.answer{stroke:#1f2933;stroke-width:2}"
)

_LENGTHS = (
    (86_400_000_000, "d"),
    (3_600_000_000, "h"),
    (60_000_000, "min"),
    (1_000_000, "s"),
    (1_000, "ms"),
    (1, "µs"),
)


@dataclass(frozen=True, slots=True)
class _Line:
    """One match.

    label: its key
    moments: by event, in order of time: its name and time, µs
    answer: when the answer was given, µs
    """

    label: str
    moments: Sequence[tuple[str, int]]
    answer: int

    @property
    def start(self) -> int:
        return self.moments[0][1]

    @property
    def end(self) -> int:
        return max(self.answer, self.moments[-1][1])


def matches_svg(matches: Sequence[Plain]) -> str | None:
    """The picture of the first matches of a query; None = they have no events as members."""
    lines = [line for match in matches[:MOST] if (line := _line(match)) is not None]
    if not lines:
        return None
    longest = max(1, *(line.end - line.start for line in lines))
    height = TOP + ROW * len(lines) + ROW
    format_ = TimeFormat.of([line.start for line in lines])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">',
        f"<style>{STYLE}</style>",
        f'<text class="when" x="{LEFT}" y="{TOP - 16}">first event</text>',
        f'<text class="when" x="{WIDTH - RIGHT}" y="{TOP - 16}" text-anchor="end">{_length(longest)} later</text>',
        *(part for number, line in enumerate(lines) for part in _drawn(line, TOP + ROW * number, longest, format_)),
        "</svg>",
    ]
    return "\n".join(parts)


def _line(match: Plain) -> _Line | None:
    members = [
        (name, one) for name, own in match["members"].items() for one in (own if isinstance(own, list) else [own])
    ]
    found = [(name, parse_time(one["time"])) for name, one in members if one is not None]
    if not found:
        return None
    found.sort(key=lambda item: item[1])
    return _Line(_label(match), found, parse_time(match["emitted"]))


def _label(match: Plain) -> str:
    key: dict[str, Any] = match["key"]
    return key_text(key, is_named=len(key) > 1)


def _drawn(line: _Line, y: float, longest: int, format_: TimeFormat) -> Iterator[str]:
    def place(moment: int) -> float:
        return LEFT + (moment - line.start) / longest * (WIDTH - LEFT - RIGHT)

    label = escape(printable(shortened(line.label, 24)))
    yield f'<text x="8" y="{y + 4}">{label}</text>'
    yield f'<text class="when" x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{format_.text(line.start)}</text>'
    last = place(line.moments[-1][1])
    yield f'<path class="line" d="M{LEFT} {y}H{last:.1f}"/>'
    if line.answer > line.moments[-1][1]:
        yield f'<path class="line wait" d="M{last:.1f} {y}H{place(line.answer):.1f}"/>'
    yield f'<path class="answer" d="M{place(line.answer):.1f} {y - 6}v12"/>'
    written = float("-inf")
    for name, moment in line.moments:
        x = place(moment)
        yield f'<circle class="dot" cx="{x:.1f}" cy="{y}" r="4"/>'
        if x - written >= NEAR:
            written = x
            yield f'<text x="{x + 6:.1f}" y="{y - 6}">{escape(printable(shortened(name, 12)))}</text>'
    yield f'<text class="when" x="{place(line.end) + 10:.1f}" y="{y + 4}">{_length(line.end - line.start)}</text>'


def _length(micros: int) -> str:
    """A length of time in the unit that fits: `1.5 min`."""
    size, unit = next(((size, unit) for size, unit in _LENGTHS if micros >= size), (1, "s"))
    return f"{micros / size:.4g} {unit}"
