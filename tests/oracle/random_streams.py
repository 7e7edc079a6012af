"""Random streams: few distinct values, many ties of time, two arrivals or more in one moment."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.oracle.events import SECOND, Row

TYPES = "ABCD"
STEPS = (0, 0, 0, SECOND, SECOND, SECOND // 2, SECOND // 10, 2 * SECOND, 5 * SECOND)
LATE = 100 * SECOND
"""Longer than any stream: with such a `wait` no record is too late."""


NULLS = (0.0, 0.0, 0.1, 0.4)
"""Which share of the values of a stream is null."""


def random_stream(dice: random.Random, *, late: bool, nulls: bool = False) -> list[Row]:
    """Up to 25 rows; `late`: most of them happened before they arrived, in another order; `nulls`: with nulls."""
    rows, at = list[Row](), 100 * SECOND
    types = dice.choices(TYPES, (5, 4, 2, 1), k=dice.randint(5, 25))
    for number, type_ in enumerate(types, 1):
        at += dice.choice(STEPS)
        time = at - (dice.choice(STEPS) + dice.choice(STEPS) if late else 0)
        values = {"k": dice.choice((1, 1, 2)), "v": dice.randint(0, 3), "w": dice.choice((0.0, 0.5, 1.0, 2.5))}
        rows.append(Row(number, type_, at, time, **values, s=dice.choice(("", "a", "a", "b", "ab"))))
    share = dice.choice(NULLS) if nulls else 0.0
    return [replace(row, **{name: None for name in "vws" if dice.random() < share}) for row in rows]
