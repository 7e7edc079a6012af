"""Aligned tables of text, and text that fits into their cells.

The width and the colours of the terminal have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import combining, east_asian_width

from querylang.printable import one_line


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str] = frozenset()) -> str:
    """Columns two spaces apart, with a line under the header.

    Cells are put on one line each; what acts on a terminal is escaped.

    right: the columns aligned to the right; the others are aligned to the left
    """
    is_right = [name in right for name in header]
    header, *rows = [[*map(one_line, line)] for line in (header, *rows)]
    widths = [max(map(width_of, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            _padded(cell, width, of_right) for cell, width, of_right in zip(line, widths, is_right, strict=True)
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


def shortened(text: str, most: int = 200) -> str:
    """Text for people, cut after `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
