"""The times of one table in one format: no longer than needed to tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.instants import LATEST, NO_TIME
from runtime.timestamps import format_time

_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How the times of one table are written.

    day: the day of all times, not written in the cells; None = each time is written with its day
    digits: digits after the seconds, the same for all times: 0, 3 or 6
    has_latest: whether a record has the last instant there is, which for bounds else means no end
    """

    day: str | None
    digits: int
    has_latest: bool = False

    @staticmethod
    def of(times: Sequence[int], bounds: Sequence[int] = ()) -> TimeFormat:
        """The shortest format that shows these times (µs) exactly.

        times: of records
        bounds: up to where time is definitive, or where a clock is
        """
        has_latest = LATEST in times
        written = [time for time in (*times, *bounds) if time != NO_TIME and (has_latest or time < LATEST)]
        days = {time // _DAY for time in written} or {0}
        digits = next(digits for digits in (0, 3, 6) if all(time % 10 ** (6 - digits) == 0 for time in written))
        day = format_time(min(days) * _DAY).partition("T")[0] if len(days) == 1 else None
        return TimeFormat(day, digits, has_latest)

    def text(self, micros: int | None) -> str:
        """The time of a record; empty for no time."""
        if micros is None or micros == NO_TIME:
            return ""
        day, _, time = format_time(micros).removesuffix("Z").partition("T")
        time = time[: len("00:00:00.") + self.digits].removesuffix(".")
        return f"{day} {time}" if self.day is None else time

    def bound(self, micros: int | None) -> str:
        """A bound; `infinity` for the end of time."""
        if micros is not None and micros >= LATEST and not self.has_latest:
            return "infinity"
        return self.text(micros)
