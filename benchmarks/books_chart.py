"""The books as a chart: time against the number of queries, both by powers of ten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log10

from benchmarks.books import Measured

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 420, 70, 110, 20, 50
_COLOURS = {"disjoint": "#c2410c", "copies": "#1d4ed8", "instances": "#15803d", "rules": "#7e22ce"}


def chart(measured: Sequence[Measured]) -> str:
    """An SVG with a line per kind of book; a point per number of queries."""
    queries = [log10(item.queries) for item in measured]
    seconds = [log10(item.seconds) for item in measured]
    axes = _Axes(_decades(queries), _decades(seconds))
    parts = [*axes.grid()]
    for name in dict.fromkeys(item.book for item in measured):
        own = sorted((item for item in measured if item.book == name), key=lambda item: item.queries)
        parts += axes.line(name, own)
    size = f'width="{_WIDTH}" height="{_HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect {size} fill="white"/>', *parts, "</svg>"]) + "\n"


def _decades(values: Sequence[float]) -> range:
    """The powers of ten around these logarithms."""
    return range(int(min(values) // 1), max(int(-(-max(values) // 1)), int(min(values) // 1) + 1) + 1)


class _Axes:
    """Where a number of queries and a time are; `queries`, `seconds`: powers of ten that are written."""

    def __init__(self, queries: range, seconds: range) -> None:
        self._queries, self._seconds = queries, seconds

    def grid(self) -> Iterator[str]:
        """Lines and their labels."""
        for power in self._queries:
            x = self._x(power)
            yield f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{_HEIGHT - _BOTTOM}" stroke="#e2e8f0"/>'
            yield f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{10**power:,}</text>'
        for power in self._seconds:
            y = self._y(power)
            yield f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="#e2e8f0"/>'
            yield f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{10.0**power:g} s</text>'
        yield f'<text x="{_LEFT}" y="{_HEIGHT - 12}">queries; processor time for all of them</text>'

    def line(self, name: str, own: Sequence[Measured]) -> Iterator[str]:
        """The line of a kind of book, with its name at the end."""
        places = [(self._x(log10(item.queries)), self._y(log10(item.seconds))) for item in own]
        points, colour = " ".join(f"{x},{y}" for x, y in places), _COLOURS[name]
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield from (f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places)
        x, y = places[-1]
        yield f'<text x="{x + 8}" y="{y + 4}" fill="{colour}">{name}</text>'

    def _x(self, power: float) -> float:
        return self._place(power, self._queries, _LEFT, _WIDTH - _RIGHT)

    def _y(self, power: float) -> float:
        return self._place(power, self._seconds, _HEIGHT - _BOTTOM, _TOP)

    @staticmethod
    def _place(power: float, of: range, first: int, last: int) -> float:
        return round(first + (power - of[0]) / (of[-1] - of[0]) * (last - first), 1)
