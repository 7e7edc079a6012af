"""Names as query texts write them, with backquotes around those that are not one word; and names of
columns."""

from __future__ import annotations

import re

MATCH_COLUMNS = frozenset(
    {
        *("match_id", "query", "instance", "key", "time", "definitive", "emitted", "waited"),
        *("members", "selected", "points"),
    }
)
"""Names of columns that all tables of matches may have; none of them can be selected."""

_WORD = re.compile(r"(?!__)[^\W\d]\w*")


def written_name(name: str) -> str:
    """The name of a field as users write it: `amount`, `` `Amount EUR` ``."""
    return name if _WORD.fullmatch(name) else f"`{name}`"
