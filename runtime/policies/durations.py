"""Lengths of time in settings: `15 seconds` and `1 min 30 s` as in the language, `15s`, `300ms`, `2us`, `1tick` in short.

Takes text; gives microseconds, or None for what is no length. What a plain number, a sign or `none` means for a
setting is left to the setting.
"""

from __future__ import annotations

import re
from fractions import Fraction

from querylang.plan.library import UNITS

_SHORT = {"d": "day", "h": "hour", "m": "min", "s": "sec", "ms": "msec"}
LENGTHS = {
    **UNITS,
    **{short: UNITS[unit] for short, unit in _SHORT.items()},
    **dict.fromkeys(("us", "microsecond", "microseconds", "tick", "ticks"), 1),
}
"""Unit to microseconds: the language's own, short ones, and the smallest step of time, one microsecond."""

_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]+)\s*")


def parse_duration(text: str) -> int | None:
    """Microseconds, to the nearest; None for anything else: no unit, an unknown one, one that stands twice or after a smaller one."""
    total, at, before = Fraction(0), 0, None
    text = text.strip()
    while at < len(text):
        part = _PART.match(text, at)
        length = None if part is None else LENGTHS.get(part[2].lower())
        if part is None or length is None or (before is not None and length >= before):
            return None
        total, at, before = total + Fraction(part[1]) * length, part.end(), length
    return None if before is None else round(total)
