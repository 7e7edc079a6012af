"""Aligned tables of text, and text that fits into their cells.

The width and the colours of the terminal have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import combining, east_asian_width


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str] = frozenset()) -> str:
    """Columns two spaces apart, with a line under the header.

    right: the columns aligned to the right; the others are aligned to the left
    """
    widths = [max(map(width_of, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            _padded(cell, width, name in right) for cell, width, name in zip(line, widths, header, strict=True)
        ).rstrip()
        for line in lines
    )


def _padded(cell: str, width: int, is_right: bool) -> str:
    spaces = " " * (width - width_of(cell))
    return spaces + cell if is_right else cell + spaces


def width_of(text: str) -> int:
    """How many columns of a terminal a text fills.

    A wide East Asian letter fills two, a combining mark none.
    """
    if text.isascii():
        return len(text)
    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def one_line(text: str) -> str:
    """Text without line breaks: control characters are escaped as in the language."""
    return text if text.isprintable() else "".join(_visible(letter) for letter in text)


def _visible(letter: str) -> str:
    return letter if letter.isprintable() or letter == "\u00a0" else letter.encode("unicode_escape").decode()


def shortened(text: str, most: int = 200) -> str:
    """Text for people, cut after `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
