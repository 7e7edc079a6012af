"""Days of the Gregorian calendar, before and after the years that `datetime` knows, and zones.

The calendar repeats after 400 years, so a year beyond stands for one that `datetime` has.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo

DAY = 86_400_000_000
_CYCLE = 146_097
_OF_1970 = date(1970, 1, 1).toordinal()
_LOWEST, _HIGHEST = (day.toordinal() - _OF_1970 for day in (date(2, 1, 1), date(9998, 12, 31)))


def date_of(days: int) -> tuple[int, date]:
    """The year of a day since 1970-01-01, and the same day of a year from 1 to 400."""
    cycles, rest = divmod(days + _OF_1970 - 1, _CYCLE)
    day = date.fromordinal(rest + 1)
    return day.year + 400 * cycles, day


def days_of(year: int, month: int, day: int) -> int:
    """The days since 1970-01-01; raises ValueError if there is no such day."""
    cycles, rest = divmod(year - 1, 400)
    return date(rest + 1, month, day).toordinal() + cycles * _CYCLE - _OF_1970


def offset_at(micros: int, zone: tzinfo) -> tuple[int, str]:
    """The offset of a zone at a time, in microseconds, and its short name then."""
    local = _moment(micros).replace(tzinfo=UTC).astimezone(zone)
    return _micros(local.utcoffset()), local.tzname() or ""


def offsets_of_local(micros: int, zone: tzinfo) -> list[tuple[int, str]]:
    """What `offset_at` gives for a local time, at first what holds if it is skipped or repeated.

    A skipped time is counted on from before the change; of a repeated one the later is meant.
    """
    moment = _moment(micros)
    both = [moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1)]
    return sorted((_micros(item.utcoffset()), item.tzname() or "") for item in both)


def _moment(micros: int) -> datetime:
    days, rest = divmod(micros, DAY)
    if not _LOWEST <= days <= _HIGHEST:
        days = _LOWEST + (days - _LOWEST) % _CYCLE if days < _LOWEST else _HIGHEST - (_HIGHEST - days) % _CYCLE
    return datetime.fromordinal(days + _OF_1970) + timedelta(microseconds=rest)


def _micros(offset: timedelta | None) -> int:
    return 0 if offset is None else offset // timedelta(microseconds=1)
