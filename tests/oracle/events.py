"""Rows of a stream, and the events that a query makes of them: one partition per key, in its total order."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

SECOND = 1_000_000
"""Microseconds; all times are microseconds."""

Value = bool | int | float | str | Fraction | None
"""A Fraction is a time or a duration, exact. None is a null."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record of the stream.

    number: its place in the table, from 1
    at: its arrival
    time: when it happened
    """

    number: int
    type: str
    at: int
    time: int
    k: int = 0
    v: int | None = 0
    w: float | None = 0.0
    s: str | None = ""

    def field(self, name: str) -> Value:
        """The value of `id` (the row's number), `k`, `v`, `w`, `s` or `getTime()`."""
        match name:
            case "id":
                return self.number
            case "k":
                return self.k
            case "v":
                return self.v
            case "w":
                return self.w
            case "s":
                return self.s
            case "getTime()":
                return Fraction(self.time, SECOND)
        raise AssertionError(f"events have no field {name!r}")


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """An admitted event of a query's partition; no two are equal.

    place: its running number in the total order of the partition
    inputs: the names of the inputs that it is an event of
    """

    place: int
    row: Row
    inputs: frozenset[str]

    @property
    def type(self) -> str:
        return self.row.type

    @property
    def time(self) -> int:
        return self.row.time


def total_order(row: Row) -> tuple[int, int, int]:
    """Time, arrival, arrival number."""
    return row.time, row.at, row.number
