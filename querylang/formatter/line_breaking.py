"""Break a line of the layout that is too wide.

The printer has marked where a line may be broken. A line wider than WIDEST is broken at all of its
loosest marks, and the parts are indented one level more; sums and products are broken only where
the next operand does not fit. A line without marks outside of brackets is broken inside its widest
brackets. Lines that are still too wide are broken again. Strings and names are never broken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

INDENT = "    "
WIDEST = 100
"""Columns of a line, unless it cannot be broken."""
MARK = "\t"
"""A space at which a line may be broken. Layouts contain no other tab: strings escape them."""

_CLAUSES = ("where", "between", "to", "at", "key", "within", "retain", "with", "time", "wait")
_LISTED = 1
"""The looseness of a mark after a comma."""
_LOOSENESS = {
    **dict.fromkeys(_CLAUSES, 0),
    **dict.fromkeys(("->", "=>"), 2),
    "or": 3,
    "xor": 4,
    "and": 5,
    **dict.fromkeys(("=", "!=", "<", "<=", ">", ">="), 6),
    **dict.fromkeys(("+", "-"), 7),
    **dict.fromkeys(("*", "/", "%"), 8),
}
"""The looseness of a mark by the word after it, the loosest first."""
_FILLED = 7
"""From this looseness on, a line gets as many operands as fit."""
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[^"\t()\[\]{}]+|.')
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class _Segment:
    """A part of a line.

    `first`, `rest`: by how many levels its first line and further lines are indented.
    """

    text: str
    first: int
    rest: int

    @property
    def fits(self) -> bool:
        """Whether it fits on one line."""
        return len(self.text) + self.first * len(INDENT) <= WIDEST


def wrapped(line: str) -> list[str]:
    """The line without marks, or its parts.

    After a head of several lines the block's brace gets its own line.
    """
    text = line.lstrip(" ")
    level = (len(line) - len(text)) // len(INDENT)
    if _Segment(text, level, level).fits:
        return [line.replace(MARK, " ")]
    head, brace = next(((text.removesuffix(end), end[1:]) for end in (" {", " { }") if text.endswith(end)), (text, ""))
    lines = _broken(_Segment(head, level, level + 1))
    if not brace:
        return lines
    return [*lines, INDENT * level + brace] if len(lines) > 1 else [f"{lines[0]} {brace}"]


def _broken(whole: _Segment) -> list[str]:
    """The lines of a segment; a stack of segments instead of recursion allows deep nesting."""
    lines: list[str] = []
    stack = [whole]
    while stack:
        segment = stack.pop()
        parts = [] if segment.fits else _at_marks(segment) or _at_brackets(segment)
        if parts:
            stack += reversed(parts)
        else:
            lines.append(INDENT * segment.first + segment.text.replace(MARK, " "))
    return lines


def _at_marks(segment: _Segment) -> list[_Segment]:
    """The segment broken at its loosest marks outside of brackets; empty if there are no marks."""
    text, depth = segment.text, 0
    marks: list[tuple[int, int]] = []
    for piece in _PIECE.finditer(text):
        depth = max(0, depth + _deeper(piece.group()))
        if depth == 0 and piece.group() == MARK:
            marks.append((piece.start(), _looseness(text, piece.start())))
    if not marks:
        return []
    loosest = min(looseness for _, looseness in marks)
    places = [place for place, looseness in marks if looseness == loosest]
    texts = [text[a + 1 : b] for a, b in zip([-1, *places], [*places, len(text)], strict=True)]
    first, *others = _filled(texts, segment) if loosest >= _FILLED else texts
    deeper = segment.rest + 1
    return [_Segment(first, segment.first, deeper), *(_Segment(text, segment.rest, deeper) for text in others)]


def _looseness(text: str, mark: int) -> int:
    word = _WORD.match(text, mark + 1)
    return _LISTED if word is None or text[mark - 1] == "," else _LOOSENESS[word.group()]


def _filled(texts: list[str], segment: _Segment) -> list[str]:
    """The texts of a sum, as many on each line as fit."""
    lines = texts[:1]
    for text in texts[1:]:
        longer = f"{lines[-1]}{MARK}{text}"
        if _Segment(longer, segment.first if len(lines) == 1 else segment.rest, 0).fits:
            lines[-1] = longer
        else:
            lines.append(text)
    return lines


def _at_brackets(segment: _Segment) -> list[_Segment]:
    """The segment with the inside of its widest brackets on lines of its own.

    Empty without brackets.
    """
    depth, opened = 0, 0
    widest = (0, 0)
    for piece in _PIECE.finditer(segment.text):
        deeper = _deeper(piece.group())
        if (depth, deeper) == (0, 1):
            opened = piece.end()
        elif (depth, deeper) == (1, -1):
            widest = max(widest, (opened, piece.start()), key=lambda place: place[1] - place[0])
        depth = max(0, depth + deeper)
    start, end = widest
    if not segment.text[start:end].strip():
        return []
    inside = max(segment.rest, segment.first + 1)
    return [
        _Segment(segment.text[:start], segment.first, inside),
        _Segment(segment.text[start:end], inside, inside),
        _Segment(segment.text[end:], inside - 1, inside),
    ]


def _deeper(piece: str) -> int:
    """The depth after a bracket; closing brackets of an outer segment do not count."""
    return 1 if piece in {"(", "[", "{"} else -1 if piece in {")", "]", "}"} else 0
