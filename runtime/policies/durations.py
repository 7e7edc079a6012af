"""Lengths of time in settings: `1 min 30 s` as in the language, or short, as in `15s` and `2us`.

What a plain number, a sign or `none` means is decided per setting, in
`runtime.policies.policy_text`.
"""

from __future__ import annotations

import re
from fractions import Fraction

from querylang.plan.library import UNITS
from runtime.instants import LONGEST_TEXT

_SHORT = {"d": "day", "h": "hour", "m": "min", "s": "sec", "ms": "msec"}
LENGTHS = {
    **UNITS,
    **{short: UNITS[unit] for short, unit in _SHORT.items()},
    **dict.fromkeys(("us", "microsecond", "microseconds", "tick", "ticks"), 1),
}
"""Unit to microseconds: those of the language, short forms, and the tick, one microsecond."""

_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]+)\s*")


def parse_duration(text: str) -> int | None:
    """Microseconds, to the nearest; None for anything else.

    A length needs a unit with each number. Units go from large to small, without duplicates.
    """
    total, at, before = Fraction(0), 0, None
    text = text.strip()
    if len(text) > LONGEST_TEXT:
        return None
    while at < len(text):
        part = _PART.match(text, at)
        length = None if part is None else LENGTHS.get(part[2].lower())
        if part is None or length is None or (before is not None and length >= before):
            return None
        total, at, before = total + Fraction(part[1]) * length, part.end(), length
    return None if before is None else round(total)
