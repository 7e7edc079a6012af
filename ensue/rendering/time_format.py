"""The times of one table in one format: no longer than needed to tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.columns.timestamps import format_time
from runtime.instants import LATEST, NO_TIME

_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How the times of one table are written.

    day: the day of all times, not written in the cells; None = each time is written with its day
    digits: digits after the seconds, the same for all times: 0, 3 or 6
    """

    day: str | None
    digits: int

    @staticmethod
    def of(times: Sequence[int]) -> TimeFormat:
        """The shortest format that shows these times (µs) exactly."""
        written = [time for time in times if NO_TIME < time < LATEST]
        days = {time // _DAY for time in written} or {0}
        digits = next(digits for digits in (0, 3, 6) if all(time % 10 ** (6 - digits) == 0 for time in written))
        return TimeFormat(format_time(min(days) * _DAY).partition("T")[0] if len(days) == 1 else None, digits)

    def text(self, micros: int | None) -> str:
        """One cell: empty for no time, `infinity` for the end of time."""
        if micros is None or micros == NO_TIME:
            return ""
        if micros >= LATEST:
            return "infinity"
        day, _, time = format_time(micros).removesuffix("Z").partition("T")
        time = time[: len("00:00:00.") + self.digits].removesuffix(".")
        return f"{day} {time}" if self.day is None else time
