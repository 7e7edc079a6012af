"""Lines of at most 120 columns for the pages that are generated; inline code and links are not broken."""

from __future__ import annotations

import re

WIDTH = 120
_WORD = re.compile(r"(?:``[^\n]+?``|`[^`\n]*`|[^\s`])+")


def filled(text: str, first: str = "", rest: str | None = None) -> str:
    """A paragraph; `first` begins its first line, `rest` all others, else as many spaces."""
    rest = " " * len(first) if rest is None else rest
    lines, line = [], ""
    for word in _WORD.findall(text):
        begin = first if not lines else rest
        if line and len(begin) + len(line) + 1 + len(word) > WIDTH:
            lines.append(begin + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    lines.append((first if not lines else rest) + line)
    return "\n".join(lines)
