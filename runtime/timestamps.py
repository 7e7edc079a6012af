"""Columns of times: every form in which users write a time, as microseconds UTC, and back.

A time is ISO 8601 (UTC unless it names a zone), `HH:MM:SS[.ffffff]` (of 1970-01-01), a timestamp,
date or time column, or seconds since 1970 as a number. Nanoseconds are cut to microseconds, towards
the past; a number with a fraction is rounded to the nearest microsecond. Users may name another
form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.errors import InputError
from runtime.instants import EARLIEST, LATEST, MIDNIGHT, NO_TIME, REWRITTEN, SECOND, micros_of
from runtime.policies.settings_text import FULL_MONTHS, MONTHS, PER_SECOND, WEEKS, TimeForm, pattern_form

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST = 9.2e18 / SECOND
_CLOCK = r"^\d{2}:\d{2}:\d{2}(\.\d+)?$"
_DATE = r"^\d{4}-\d{2}-\d{2}$"
_ZONED = r"^\d{4}-\d{2}-\d{2}[T ][0-9:.]+(Z|[+-][0-9:]{2,5})$"
_WITHOUT_ZONE = r"^\d{4}-\d{2}-\d{2}[T ][0-9:.]+$"
_MIDNIGHT = rf"^{MIDNIGHT}$"
_WHOLE = r"^-?(\d{1,18}|[0-8]\d{18}|9[01]\d{17})$"
"""What surely fits into 64 bits."""

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
"""For Arrow, whose regular expressions take time proportional to the text. Python's do not."""


@dataclass(frozen=True, slots=True)
class Timestamps:
    """A column of times.

    micros: microseconds UTC; NO_TIME = the cell is null or bad
    bad: the cell is neither null nor a time
    """

    micros: NDArray[np.int64]
    bad: NDArray[np.bool_]


def parse_times(column: pa.Array, per_second: int = 1) -> Timestamps:
    """Read a column of any type; cells that are not times in the years 1 to 9999 are bad.

    per_second: how many units of times that are numbers a second has
    """
    return within_years(column, _parsed(column, per_second))


def within_years(column: pa.Array, times: Timestamps) -> Timestamps:
    """The times of a column; those outside of the years 1 to 9999 are bad."""
    if len(column) and times.micros.min() >= EARLIEST and times.micros.max() <= LATEST:
        return times
    outside = (times.micros != NO_TIME) & ((times.micros < EARLIEST) | (times.micros > LATEST))
    if not outside.any():
        return times
    return Timestamps(np.where(outside, NO_TIME, times.micros), times.bad | outside)


def _parsed(column: pa.Array, per_second: int) -> Timestamps:
    kind = column.type
    if pa.types.is_null(kind):
        return Timestamps(np.full(len(column), NO_TIME), np.zeros(len(column), np.bool_))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return _of_units(column)
    if is_text(kind):
        return _of_text(column, per_second)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _of_numbers(column, per_second)
    return Timestamps(np.full(len(column), NO_TIME), _valid(column))


def parse_time(text: str) -> int:
    """Microseconds of one time as users write it; raises InputError for anything else."""
    times = parse_times(pa.array([text.strip()], pa.string()))
    if times.micros[0] == NO_TIME:
        raise InputError(f"{text!r} is not a time: write ISO 8601, HH:MM:SS or seconds since 1970")
    return int(times.micros[0])


def format_time(micros: int) -> str:
    """ISO 8601 with microseconds and Z: `1970-01-01T10:00:35.000000Z`.

    Times outside of the years 1 to 9999 are shown as the first or last microsecond of these years.
    """
    second, rest = divmod(max(EARLIEST, min(micros, LATEST)), SECOND)
    return f"{_second_text(second)}.{rest:06d}Z"


@lru_cache(1_024)
def _second_text(second: int) -> str:
    """A second since 1970, as `1970-01-01T10:00:35`; records that come together share theirs."""
    return (_EPOCH + timedelta(seconds=second)).isoformat(timespec="seconds").removesuffix("+00:00")


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _valid(column: pa.Array) -> NDArray[np.bool_]:
    valid: NDArray[np.bool_] = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return valid


def _known(micros: pa.Array) -> Timestamps:
    filled: NDArray[np.int64] = pc.fill_null(micros, NO_TIME).to_numpy(zero_copy_only=False)
    return Timestamps(filled, np.zeros(len(filled), np.bool_))


_IN_A_DAY = 86_400 * SECOND
_PER_UNIT = {"s": SECOND, "ms": 1_000, "us": 1}


def _of_units(column: pa.Array) -> Timestamps:
    """Times that are integers in a unit; those of nanoseconds are cut to microseconds."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "us" and not column.null_count:
        return Timestamps(column.view(pa.int64()).to_numpy(), np.zeros(len(column), np.bool_))
    valid = _valid(column)
    whole = pc.cast(column, pa.int32() if kind.bit_width == 32 else pa.int64())
    values = pc.fill_null(pc.cast(whole, pa.int64()), 0).to_numpy(zero_copy_only=False)
    if pa.types.is_date(kind):
        return _multiplied(values, _IN_A_DAY if pa.types.is_date32(kind) else 1_000, valid)
    if kind.unit == "ns":
        values = values // 1_000
    return _multiplied(values, _PER_UNIT.get(kind.unit, 1), valid)


def _multiplied(values: NDArray[np.int64], factor: int, valid: NDArray[np.bool_]) -> Timestamps:
    """Integers in a unit of so many microseconds."""
    most = (2**63 - 1) // factor
    fits = (values >= -most) & (values <= most)
    exact: NDArray[np.int64] = np.where(valid & fits, np.where(fits, values, 0) * factor, NO_TIME)
    return Timestamps(exact, valid & ~fits)


def _of_numbers(column: pa.Array, per_second: int) -> Timestamps:
    valid = _valid(column)
    if pa.types.is_integer(column.type):
        values = _as_int64(column)
        if per_second > SECOND:
            assert per_second == 1_000 * SECOND, "the only finer unit is nanoseconds"
            return _multiplied(values // 1_000, 1, valid)
        return _multiplied(values, SECOND // per_second, valid)
    numbers = pc.fill_null(pc.cast(column, pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    seconds = numbers if per_second == 1 else numbers / per_second
    with np.errstate(invalid="ignore"):
        fits = np.abs(seconds) < _LARGEST
        micros = np.rint(np.where(fits, seconds, 0.0) * SECOND).astype(np.int64)
    return Timestamps(np.where(valid & fits, micros, NO_TIME), valid & ~fits)


def _as_int64(column: pa.Array) -> NDArray[np.int64]:
    """Integers; those that are too large are the largest one."""
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(2**63 - 1))
    whole: NDArray[np.int64] = values.astype(np.int64)
    return whole


def _of_text(column: pa.Array, per_second: int) -> Timestamps:
    text = pc.cast(column, pa.string())
    at_once = _of_plain_text(text)
    if at_once is None:
        at_once = _of_plain_numbers(text, per_second)
    if at_once is not None:
        return at_once
    text = pc.utf8_trim_whitespace(text)
    numbers = pc.fill_null(pc.match_substring_regex(text, NUMBER), False)
    if not pc.any(numbers, min_count=0).as_py():
        return _of_usual_text(_rewritten(text))
    others = _of_usual_text(_rewritten(pc.if_else(numbers, pa.scalar(None, pa.string()), text)))
    seconds = _of_written_numbers(text.filter(numbers), per_second)
    micros, bad, chosen = others.micros.copy(), others.bad.copy(), numbers.to_numpy(zero_copy_only=False)
    micros[chosen], bad[chosen] = seconds.micros, seconds.bad
    return Timestamps(micros, bad)


def _of_plain_text(text: pa.Array) -> Timestamps | None:
    """The times if all cells are ISO 8601, and all or none have a zone; None = they are not.

    This is the usual case, and many times as fast as the way for all forms.
    """
    for target in (pa.timestamp("us", "UTC"), pa.timestamp("us")):
        micros = cast_whole(text, target)
        if micros is not None:
            return _known(pc.cast(micros, pa.int64()))
    return None


def _of_plain_numbers(text: pa.Array, per_second: int) -> Timestamps | None:
    """The times if all cells are `NUMBER`, without spaces; None = they are not."""
    is_simple = per_second == 1 or not text.null_count
    numbers = cast_whole(text, pa.float64()) if is_simple else None
    if numbers is None or not pc.all(pc.is_finite(numbers), min_count=0).as_py():
        return None
    return _of_numbers(numbers, 1) if per_second == 1 else _of_written_numbers(text, per_second)


def _of_written_numbers(text: pa.Array, per_second: int) -> Timestamps:
    """Numbers that are text. Whole ones of small units are integers: floats have too few digits.

    Each cell is taken by itself, so that its time does not depend on the cells beside it.
    """
    whole = pc.match_substring_regex(text, _WHOLE) if per_second > 1 else None
    if whole is None or not pc.any(whole, min_count=0).as_py():
        return _of_numbers(pc.cast(text, pa.float64()), per_second)
    exact = _of_numbers(pc.cast(text.filter(whole), pa.int64()), per_second)
    if pc.all(whole, min_count=0).as_py():
        return exact
    times = _of_numbers(pc.cast(text, pa.float64()), per_second)
    micros, bad, chosen = times.micros.copy(), times.bad.copy(), whole.to_numpy(zero_copy_only=False)
    micros[chosen], bad[chosen] = exact.micros, exact.bad
    return Timestamps(micros, bad)


def _rewritten(text: pa.Array) -> pa.Array:
    """The same times in the forms that Arrow reads, cut to microseconds."""
    for form, usual in REWRITTEN:
        text = pc.replace_substring_regex(text, form, usual)
    return text


def _of_usual_text(text: pa.Array) -> Timestamps:
    """The times of text that is ISO 8601, a clock or a date, midnight also as 24:00."""
    ends_day = pc.fill_null(pc.match_substring_regex(text, _MIDNIGHT), False)
    if not pc.any(ends_day, min_count=0).as_py():
        return _of_zoned_text(_in_full(text))
    times = _of_zoned_text(_in_full(pc.replace_substring_regex(text, _MIDNIGHT, r"\100\2")))
    is_next = ends_day.to_numpy(zero_copy_only=False) & ~times.bad
    return Timestamps(np.where(is_next, times.micros + _IN_A_DAY, times.micros), times.bad)


def _in_full(text: pa.Array) -> pa.Array:
    """The same times with date and zone written out."""
    clock = pc.match_substring_regex(text, _CLOCK)
    if pc.all(clock, min_count=0).as_py():
        return pc.binary_join_element_wise("1970-01-01T", text, "Z", "")
    date = pc.match_substring_regex(text, _DATE)
    unzoned = pc.match_substring_regex(text, _WITHOUT_ZONE)
    return pc.case_when(
        pc.make_struct(clock, date, unzoned),
        pc.binary_join_element_wise("1970-01-01T", text, "Z", ""),
        pc.binary_join_element_wise(text, "T00:00:00Z", ""),
        pc.binary_join_element_wise(text, "Z", ""),
        text,
    )


def _of_zoned_text(text: pa.Array) -> Timestamps:
    parsed = cast_or_null(text, pa.timestamp("us", "UTC"), _ZONED)
    micros = _known(pc.cast(parsed, pa.int64())).micros
    return Timestamps(micros, _valid(text) & (micros == NO_TIME))


def cast_or_null(column: pa.Array, target: pa.DataType, form: str | None = None) -> pa.Array:
    """Cast a column; cells that cannot be cast become null.

    A column without such cells is cast at once.

    form: a regular expression for text that can be cast; excludes most other cells in one pass.
        None = no filter
    """
    whole = cast_whole(column, target)
    if whole is not None:
        return whole
    if len(column) == 1:
        return pa.nulls(1, target)
    if form is not None and pa.types.is_string(column.type):
        fits = pc.match_substring_regex(column, form)
        return cast_or_null(pc.if_else(fits, column, pa.scalar(None, pa.string())), target)
    middle = len(column) // 2
    return pa.concat_arrays([cast_or_null(column[:middle], target), cast_or_null(column[middle:], target)])


def microseconds(column: pa.Array) -> NDArray[np.int64]:
    """Float or integer seconds since 1970 as microseconds, rounded to the nearest.

    NO_TIME = null, NaN, or outside of the years 1 to 9999.
    """
    missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    values = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        is_float = values.dtype == np.float64
        # The last microseconds of the year 9999 are the first second behind it as floats.
        most = (LATEST + 1) // SECOND
        usable = (values >= EARLIEST // SECOND) & ((values <= most) if is_float else (values < most))
        if is_float:
            time = np.rint(np.where(usable, values, 0.0) * SECOND).astype(np.int64)
            np.minimum(time, LATEST, out=time)
        else:
            time = np.where(usable, values, 0) * SECOND
    if missing is not None:
        usable &= ~missing
    return time if usable.all() else np.where(usable, time, NO_TIME)


_TRIED = 4
"""So many cells at both ends of a column."""


def cast_whole(column: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Cast a column; None = some cell cannot be cast.

    Arrow makes a message for each of those, so a few cells are tried first.
    """
    try:
        if len(column) > 16 * _TRIED:
            pc.cast(pa.concat_arrays([column[:_TRIED], column[-_TRIED:]]), target)
        return pc.cast(column, target)
    except pa.ArrowInvalid:
        return None


# Columns of times in the form that users name: another unit of numbers, another form of text.

_DAY = 86_400 * SECOND
_ZONE = "^(?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-9]{2})?:?(?P<seconds>[0-9]{2})?$"


def given_times(column: pa.Array, form: TimeForm) -> Timestamps:
    """As `parse_times`, in a form that users name."""
    if form.pattern is None:
        return parse_times(column, PER_SECOND[form.unit])
    if is_text(column.type):
        return within_years(column, _of_pattern(column, form.pattern))
    times = parse_times(column, PER_SECOND[form.unit])
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
