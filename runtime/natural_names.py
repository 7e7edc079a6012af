"""The natural order of names: digits in them are compared as numbers, `9.csv` before `10.csv`."""

from __future__ import annotations

import re

_DIGITS = re.compile("([0-9]+)")

NaturalKey = tuple[tuple[object, ...], str]


def natural_key(path: str) -> NaturalKey:
    """What paths are sorted by, folder by folder; equal ones (`01`, `1`) by their characters."""
    return tuple(tuple(map(_part, enumerate(_DIGITS.split(name)))) for name in path.split("/")), path


def _part(numbered: tuple[int, str]) -> object:
    """A text, or the value of digits, as (length, digits): digits may be too many for a number."""
    place, text = numbered
    value = text.lstrip("0")
    return (len(value), value) if place % 2 else text
