"""What is listed and waits to be read, as the clock of its source has to know it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unread:
    """The files of a source that wait.

    first: the least arrival time of their records, µs; NO_TIME = not known
    number: the least of their numbers
    path: of the file with that arrival
    """

    first: int
    number: int
    path: str
