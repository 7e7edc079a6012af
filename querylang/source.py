"""A source text, and spans in it with line and column (from 1)."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache

from querylang.dataclass import dataclass, field
from querylang.printable import one_line

WIDEST_SNIPPET = 160
"""A longer source line is cut around the span."""


@dataclass(frozen=True, slots=True)
class Source:
    """A text, and the path that messages show for it."""

    path: str
    text: str

    def span(self, start: int, end: int) -> Span:
        """The span from offset `start` up to, not including, `end`."""
        return Span(self, start, end)


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets `start` to `end` (exclusive) of a source."""

    source: Source = field(repr=False)
    start: int
    end: int

    @property
    def line(self) -> int:
        """The number of the line in which the span begins, from 1."""
        return bisect_right(_line_starts(self.source.text), self.start)

    @property
    def column(self) -> int:
        """The number of the first character within its line, from 1."""
        return self.start - _line_starts(self.source.text)[self.line - 1] + 1

    @property
    def text(self) -> str:
        """The text of the span."""
        return self.source.text[self.start : self.end]

    def until(self, last: Span) -> Span:
        """The span from the start of this one to the end of `last`."""
        return Span(self.source, self.start, max(self.end, last.end))

    def snippet(self) -> str:
        """The line in which the span begins, and a line with carets under it."""
        begin = _line_starts(self.source.text)[self.line - 1]
        end = self.source.text.find("\n", begin)
        line, first = _cut(self.source.text, begin, end if end >= 0 else len(self.source.text), self.start)
        last = first + max(0, self.end - self.start)
        before, marked, after = map(_visible, (line[:first], line[first:last], line[last:]))
        indent = "".join("\t" if character == "\t" else " " for character in before) + " " * (first - len(line))
        number = str(self.line)
        return f"  {number} | {before}{marked}{after}\n  {' ' * len(number)} | {indent}{'^' * max(1, len(marked))}"


@lru_cache(maxsize=8)
def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _cut(text: str, begin: int, end: int, start: int) -> tuple[str, int]:
    """The line from `begin` to `end`, cut around the span if it is long.

    And where the span is in it.
    """
    end -= text.endswith("\r", begin, end)
    first, last = begin, end
    if end - begin > WIDEST_SNIPPET:
        first = max(begin, start - WIDEST_SNIPPET // 2)
        last = min(end, first + WIDEST_SNIPPET)
    before, after = "..." if first > begin else "", "..." if last < end else ""
    return f"{before}{text[first:last]}{after}", start - first + len(before)


def _visible(text: str) -> str:
    return "\t".join(map(one_line, text.split("\t")))
