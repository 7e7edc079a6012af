"""The methods of TimeFormat: times to text, text to times. Without a zone they are UTC.

So the answer is the same on every machine. A time is rounded to microseconds, then each letter cuts
off what it does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from querylang.plan.constant_folding import LONGEST, of_seconds
from querylang.plan.time_patterns import TimePatternError, pieces_of, zone_of
from runtime.interpreter.time_reading import UnfitTextError, read
from runtime.interpreter.time_writing import written
from runtime.interpreter.values import EvaluationError

_SECOND = 1_000_000


def _format(seconds: float, pattern: str, zone: str = "UTC") -> str:
    micros = of_seconds(seconds)
    if abs(micros) > LONGEST:
        raise EvaluationError(f"{seconds} is not a time that can be written")
    try:
        return written(round(micros), pieces_of(pattern), zone_of(zone))
    except TimePatternError as error:
        raise EvaluationError(str(error)) from error


def _parse(pattern: str, text: str, zone: str = "UTC") -> float:
    try:
        return read(text, pieces_of(pattern), zone_of(zone)) / _SECOND
    except TimePatternError as error:
        raise EvaluationError(str(error)) from error
    except UnfitTextError as error:
        raise EvaluationError(f"cannot parse {text[:40]!r} as {pattern[:40]!r}: {error}") from error


TIME_FORMAT_METHODS: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("format", "formatUTC", "formatWithTimeZone"), _format),
    **dict.fromkeys(("parse", "parseTime", "parseUTC", "parseTimeUTC"), _parse),
    **dict.fromkeys(("parseWithTimeZone", "parseTimeWithTimeZone"), _parse),
}
