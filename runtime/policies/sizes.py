"""Sizes in settings: `16 MB`."""

from __future__ import annotations

import re

_UNITS = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,9})\s*([A-Za-z]{2})")

SMALLEST, LARGEST = 1 << 10, 1 << 30


def parse_size(text: str) -> int | None:
    """Bytes, from 1 kB to 1 GB; None for anything else. A kB is 1,024 bytes."""
    found = _SIZE.fullmatch(text.strip())
    unit = None if found is None else _UNITS.get(found[2].lower())
    if found is None or unit is None:
        return None
    size = int(found[1]) * unit
    return size if SMALLEST <= size <= LARGEST else None
