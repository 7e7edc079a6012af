"""What a system answers in one pass over the stream."""

from __future__ import annotations

import json
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Answer:
    """One pass.

    events: how many were read in the time that is counted
    seconds: how long that took
    checksum: of the row numbers of all matches' events, in any order
    """

    events: int
    seconds: float
    matches: int
    checksum: str

    @staticmethod
    def last_of(lines: str) -> Answer:
        """The last pass of a process, which prints one line of JSON for each."""
        return Answer(**json.loads([line for line in lines.splitlines() if line.startswith("{")][-1]))

    def line(self) -> str:
        """One line of JSON."""
        return json.dumps({name: getattr(self, name) for name in ("events", "seconds", "matches", "checksum")})


@dataclass(frozen=True, slots=True)
class Measured:
    """A system's answers to one question; `rates`: by round, events a second."""

    question: str
    system: str
    threads: int
    events: int
    matches: int
    rates: tuple[float, ...]

    @property
    def rate(self) -> float:
        """The median, events a second."""
        return median(self.rates)
