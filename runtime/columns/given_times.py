"""Columns of times in the form that users name: another unit of numbers, another form of text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from runtime.columns.timestamps import Timestamps, is_text, parse_times, within_years
from runtime.instants import NO_TIME, SECOND, micros_of
from runtime.policies.time_forms import FULL_MONTHS, MONTHS, UNITS, WEEKS, TimeForm, pattern_form

_DAY = 86_400 * SECOND
_ZONE = "^(?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-9]{2})?:?(?P<seconds>[0-9]{2})?$"


def given_times(column: pa.Array, form: TimeForm) -> Timestamps:
    """As `parse_times`, in a form that users name."""
    if form.pattern is None:
        return parse_times(column, UNITS[form.unit])
    if is_text(column.type):
        return within_years(column, _of_pattern(column, form.pattern))
    times = parse_times(column, UNITS[form.unit])
    if not pa.types.is_integer(column.type) or not _is_of_digits(form.pattern):
        return times
    dates = within_years(column, _of_pattern(pc.cast(column, pa.string()), form.pattern))
    is_date = dates.micros != NO_TIME
    return Timestamps(np.where(is_date, dates.micros, times.micros), times.bad & ~is_date)


def _is_of_digits(pattern: str) -> bool:
    """Whether a number can be a time of this form, such as 20240131."""
    return re.fullmatch("(%[YymdHMSj])+", pattern) is not None


def _of_pattern(column: pa.Array, pattern: str) -> Timestamps:
    """Text in this form; without a year it is of 1970. Each cell is a time or is not, by itself."""
    text = pc.utf8_lower(pc.utf8_trim_whitespace(pc.cast(column, pa.string())))
    if WEEKS.search(pattern):
        micros = _of_weeks(text, pattern)
    else:
        found = pc.extract_regex(text, f"^{pattern_form(pattern)}$")
        parts = {found.type[place].name: part for place, part in enumerate(found.flatten())}
        micros = _micros(parts, np.array(found.is_valid()))
    return Timestamps(micros, np.array(text.is_valid()) & (micros == NO_TIME))


def _micros(parts: Mapping[str, pa.Array], is_time: NDArray[np.bool_]) -> NDArray[np.int64]:
    """By row the time whose letters are these; NO_TIME = there is no such day."""
    days, is_day = _days(parts, len(is_time))
    clock = _clock(parts, len(is_time))
    is_clock = clock <= _DAY  # 24:00:00 is the next midnight
    zone = next((parts[letter] for letter in "zZ" if letter in parts), None)
    offset = 0 if zone is None else _offsets(zone)
    return np.where(is_time & is_day & is_clock, days * _DAY + clock - offset, NO_TIME)


def _days(parts: Mapping[str, pa.Array], rows: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Days since 1970, and whether the calendar has them."""
    years = np.full(rows, 1970)
    if "Y" in parts:
        years = _whole(parts["Y"])
    elif "y" in parts:
        short = _whole(parts["y"])
        years = short + np.where(short < 69, 2000, 1900)
    january = (years - 1970).astype("datetime64[Y]").astype("datetime64[M]")
    if "j" in parts and not parts.keys() & set("mbBd"):
        days = january.astype("datetime64[D]").astype(np.int64) + _whole(parts["j"]) - 1
        return days, days < (january + 12).astype("datetime64[D]").astype(np.int64)
    month = january + _months(parts, rows) - 1
    day = _whole(parts["d"]) if "d" in parts else np.ones(rows, np.int64)
    days = month.astype("datetime64[D]").astype(np.int64) + day - 1
    return days, days < (month + 1).astype("datetime64[D]").astype(np.int64)


def _months(parts: Mapping[str, pa.Array], rows: int) -> NDArray[np.int64]:
    if "m" in parts:
        return _whole(parts["m"])
    for letter, names in (("b", MONTHS), ("B", FULL_MONTHS)):
        if letter in parts:
            found = pc.index_in(parts[letter], value_set=pa.array(names))
            return pc.fill_null(found, 0).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    return np.ones(rows, np.int64)


def _clock(parts: Mapping[str, pa.Array], rows: int) -> NDArray[np.int64]:
    """Microseconds since midnight. Nanoseconds are cut off."""
    zero = np.zeros(rows, np.int64)
    hours = zero
    if "H" in parts:
        hours = _whole(parts["H"])
    elif "I" in parts:
        is_afternoon = pc.fill_null(pc.equal(parts["p"], "pm"), False) if "p" in parts else zero
        hours = _whole(parts["I"]) % 12 + 12 * np.array(is_afternoon).astype(np.int64)
    minutes, seconds = (_whole(parts[letter]) if letter in parts else zero for letter in "MS")
    micros = zero
    if "f" in parts:
        micros = _whole(pc.utf8_slice_codeunits(pc.utf8_rpad(parts["f"], 6, "0"), 0, 6))
    return (hours * 3600 + minutes * 60 + seconds) * SECOND + micros


def _offsets(zone: pa.Array) -> NDArray[np.int64]:
    """By row how far its zone is before UTC, in microseconds."""
    found = pc.extract_regex(zone, _ZONE)
    sign, hours, minutes, seconds = found.flatten()
    length = _whole(hours) * 3600 + _whole(minutes) * 60 + _whole(seconds)
    is_behind = np.array(pc.fill_null(pc.equal(sign, "-"), False))
    return np.where(is_behind, -length, length) * SECOND


def _whole(digits: pa.Array) -> NDArray[np.int64]:
    """Text of digits as numbers; nothing is 0."""
    filled = pc.fill_null(pc.replace_substring_regex(digits, "^ *$", "0"), "0")
    numbers: NDArray[np.int64] = pc.cast(pc.utf8_trim_whitespace(filled), pa.int64()).to_numpy()
    return numbers


def _of_weeks(text: pa.Array, pattern: str) -> NDArray[np.int64]:
    """Times by the numbers of weeks, which are rare; each distinct text is read once."""
    encoded = text.dictionary_encode()
    texts, form = encoded.dictionary.to_pylist(), re.compile(pattern_form(pattern))
    known = [_of_week(item, pattern) if form.fullmatch(item) else NO_TIME for item in texts]
    codes = pc.fill_null(encoded.indices, len(texts)).to_numpy(zero_copy_only=False)
    return np.array([*known, NO_TIME])[codes]


def _of_week(text: str, pattern: str) -> int:
    try:
        return micros_of(datetime.strptime(text, pattern))  # noqa: DTZ007  a form may have no zone
    except (ValueError, OverflowError):
        return NO_TIME
