"""TimeFormat: the examples of the vendor's documents, round trips over random times, and mistakes."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from querylang.plan.library import TIME_FORMAT, TIME_FORMAT_METHODS
from querylang.plan.text_forms import LETTERS, TimePatternError, pieces_of, zone_of
from runtime.interpreter.times import TIME_FORMAT_METHODS as METHODS
from runtime.interpreter.values import EvaluationError

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca")
WHOLE = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
DAY = 86_400
# 2026-03-29 and 2026-10-25, the changes of Berlin's clocks.
SKIPPED, REPEATED = 1_774_746_000, 1_792_890_000


def written(seconds: float, pattern: str, zone: str = "UTC") -> str:
    text: str = METHODS["formatWithTimeZone"](seconds, pattern, zone)
    return text


def read(pattern: str, text: str, zone: str = "UTC") -> float:
    seconds: float = METHODS["parseTimeWithTimeZone"](pattern, text, zone)
    return seconds


def test_every_method_of_the_table_has_a_meaning() -> None:
    assert {row.name for row in TIME_FORMAT_METHODS} == METHODS.keys()
    assert TIME_FORMAT.endswith(".TimeFormat")


@pytest.mark.parametrize(
    ("seconds", "pattern", "text"),
    [
        (837007736.0, "yyyy.MM.dd G 'at' HH:mm:ss", "1996.07.10 AD at 14:08:56"),
        (0.0, "EEEE, d MMMM yyyy", "Thursday, 1 January 1970"),
        (0.0, "EEE d MMM yy h:mm a", "Thu 1 Jan 70 12:00 AM"),
        (43200.0, "hh 'o''clock' a", "12 o'clock PM"),
        (0.0, "k K H", "24 0 0"),
        (-0.000001, WHOLE, "1969-12-31T23:59:59.999999"),
        (-0.001, "ss.SSS A", "59.999 86399999"),
        (1.9999, "s.S", "1.9"),
        (1.5, "s.SSSSSSSSS", "1.500000000"),
        (1700000000.123456, "SSSSSS", "123456"),
        (0.0, "D g", "1 2440588"),
        (-62135596800.0 - DAY, "yyyy-MM-dd G u", "0001-12-31 BC 0"),
        (253402300800.0, "yyyy-MM-dd u", "10000-01-01 10000"),
        (0.0, "''yyyy'''Z'", "'1970'Z"),
        (0.0, "Z ZZZZ ZZZZZ z VV", "+0000 GMT Z UTC UTC"),
    ],
)
def test_a_time_is_written(seconds: float, pattern: str, text: str) -> None:
    assert written(seconds, pattern) == text


@pytest.mark.parametrize(
    ("seconds", "zone", "text"),
    [
        (SKIPPED - 1, "Europe/Berlin", "01:59:59 CET +0100"),
        (SKIPPED, "Europe/Berlin", "03:00:00 CEST +0200"),
        (REPEATED - 1, "Europe/Berlin", "02:59:59 CEST +0200"),
        (REPEATED, "Europe/Berlin", "02:00:00 CET +0100"),
        (0, "GMT+05:30", "05:30:00 GMT+05:30 +0530"),
        (0, "-0800", "16:00:00 -0800 -0800"),
    ],
)
def test_a_time_is_written_in_a_zone(seconds: float, zone: str, text: str) -> None:
    assert written(seconds, "HH:mm:ss z Z", zone) == text


@pytest.mark.parametrize(
    ("pattern", "text", "zone", "seconds"),
    [
        ("yyyy.MM.dd G 'at' HH:mm:ss", "1996.07.10 AD at 15:08:56", "Europe/London", 837007736.0),
        ("HH:mm", "01:30", "UTC", 5400.0),
        ("yyyy-MM-dd", "1970-01-02", "Europe/Berlin", DAY - 3600.0),
        ("yyyyMMddHHmmssSSS", "19700102000001250", "UTC", DAY + 1.25),
        ("d MMMM yyyy", "2 jan 1970", "UTC", DAY),
        ("EEE, d MMM yyyy HH:mm:ss Z", "Fri, 02 Jan 1970 00:00:00 +0100", "America/New_York", DAY - 3600.0),
        ("h a", "12 pm", "UTC", 43200.0),
        ("K a", "0 PM", "UTC", 43200.0),
        ("kk", "24", "UTC", 0.0),
        ("yy D", "70 2", "UTC", DAY),
        ("yy", "68", "UTC", 3092601600.0),
        ("g A", "2440589 1500", "UTC", DAY + 1.5),
        ("HH:mm z", "00:00 EST", "UTC", 18000.0),
        ("HH:mm ZZZZ", "00:00 GMT-01:00", "UTC", 3600.0),
        ("HH:mm VV", "00:00 Asia/Tokyo", "UTC", -32400.0),
        # A skipped hour is counted on from before the change; of a repeated one the later is meant.
        ("yyyy-MM-dd HH:mm", "2026-03-29 02:30", "Europe/Berlin", SKIPPED + 1800.0),
        ("yyyy-MM-dd HH:mm", "2026-10-25 02:30", "Europe/Berlin", REPEATED + 1800.0),
        ("yyyy-MM-dd HH:mm z", "2026-10-25 02:30 CEST", "Europe/Berlin", REPEATED - 1800.0),
    ],
)
def test_a_text_is_read(pattern: str, text: str, zone: str, seconds: float) -> None:
    assert read(pattern, text, zone) == seconds


# In every zone after the birth of Christ, since `yyyy` has no era.
MOMENTS = st.one_of(
    st.integers((-62_135_596_800 + 86_400) * 10**6, 253_402_300_799 * 10**6),
    *(st.integers(change * 10**6 - 10**10, change * 10**6 + 10**10) for change in (SKIPPED, REPEATED)),
)
FAR = st.integers(-3_000_000_000_000, 3_000_000_000_000)


@given(MOMENTS, st.sampled_from(ZONES), st.sampled_from(["Z", "ZZZZZ", "ZZZZ"]))
@example(REPEATED * 10**6, "Europe/Berlin", "Z")
def test_what_is_written_with_its_offset_is_read_again(micros: int, zone: str, offset: str) -> None:
    seconds = micros / 10**6
    text = written(seconds, f"{WHOLE} {offset}", zone)
    assert read(f"{WHOLE} {offset}", text, "Asia/Tokyo") == seconds


@given(FAR, st.sampled_from(ZONES))
def test_far_times_are_read_again(seconds: int, zone: str) -> None:
    pattern = "EEEE u D HH:mm:ss Z"
    assert read(pattern, written(float(seconds), pattern, zone)) == seconds


@given(MOMENTS, st.sampled_from(ZONES))
def test_times_are_those_of_the_standard_library(micros: int, zone: str) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    try:
        local = moment.astimezone(zone_of(zone))
    except OverflowError:
        return
    expected = f"{local.year:04}-{local:%m-%dT%H:%M:%S.%f %a %j}"
    # Seconds as a float are not exact to the microsecond in far years.
    if abs(micros) < 2**52:
        assert written(micros / 10**6, f"{WHOLE} EEE DDD", zone) == expected


@given(MOMENTS, st.sampled_from(ZONES))
def test_a_local_time_means_a_time_that_is_written_like_it(micros: int, zone: str) -> None:
    seconds = micros // 10**6
    pattern = "u-MM-dd HH:mm:ss"
    text = written(float(seconds), pattern, zone)
    # A time that exists is read as itself, or as the later one of the same local time.
    again = read(pattern, text, zone)
    assert written(again, pattern, zone) == text
    assert 0 <= again - seconds <= DAY


@given(
    MOMENTS.map(lambda micros: micros // 10**6),
    st.lists(st.sampled_from(["yyyy", "MM", "dd", "HH", "mm", "ss"]), min_size=6, max_size=6, unique=True),
)
def test_letters_in_any_order_without_anything_between(seconds: int, letters: list[str]) -> None:
    assert read("".join(letters), written(float(seconds), "".join(letters))) == seconds


@pytest.mark.parametrize(
    ("pattern", "text", "problem"),
    [
        ("yyyy-MM-dd", "2026-02-30", "there is no February 30 in 2026"),
        ("yyyy-MM-dd", "2026-13-01", "13 is not between 1 and 12, as `MM` has to be"),
        ("yyyy-MM-dd", "oops", "expected a number for `yyyy` at character 1"),
        ("yyyy-MM-dd", "2026-01-01x", "there is more text from character 11 on"),
        ("yyyy-MM-dd", "2026/01/01", "expected '-' at character 5"),
        ("yyyyMMdd", "202611", "expected a number for `dd` at character 7"),
        ("yyyyMMdd", "20261", "expected 2 digits for `MM` at character 5"),
        ("D yyyy", "366 2026", "the year 2026 has no day 366"),
        ("EEE yyyy-MM-dd", "Mon 1970-01-01", "that day is a Thursday, not a Monday"),
        ("HH a", "01 xm", "expected `AM` or `PM` at character 4"),
        ("HH Z", "01 berlin", "expected an offset like +0100 at character 4"),
        ("HH z", "01 CEST", "'CEST' is not the short name of UTC then; an offset is read by `Z`"),
        ("HH HH", "01 02", "`H` stands for 1 and for 2"),
        ("HH VV", "01 Mars/Base", "unknown time zone 'Mars/Base'; zones are `Europe/Berlin`, `UTC` or `GMT+01:00`"),
    ],
)
def test_a_text_that_does_not_fit(pattern: str, text: str, problem: str) -> None:
    with pytest.raises(EvaluationError) as found:
        read(pattern, text)
    assert str(found.value) == f"cannot parse {text!r} as {pattern!r}: {problem}"


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 1e300])
def test_a_number_that_is_no_time(seconds: float) -> None:
    with pytest.raises(EvaluationError, match="is not a time that can be written"):
        written(seconds, "yyyy")


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("YYYY", "for the year write `y`"),
        ("XXX", "`ZZZZZ`"),
        ("yyyy 'at", "not closed"),
        ("b", "not a pattern letter"),
        ("EEEEE", "1 to 4 times, not 5"),
        ("V", "twice"),
        ("", "from 1 to 1000 characters"),
    ],
)
def test_a_wrong_pattern(pattern: str, problem: str) -> None:
    with pytest.raises(TimePatternError, match=problem):
        pieces_of(pattern)
    with pytest.raises(EvaluationError, match=problem):
        written(0.0, pattern)


@pytest.mark.parametrize(
    "zone", ["", "Mars/Base", "../etc/passwd", "Europe", "zone.tab", "__init__.py", "+25:00", "PST"]
)
def test_an_unknown_zone(zone: str) -> None:
    with pytest.raises(TimePatternError, match="unknown time zone"):
        zone_of(zone)


@pytest.mark.parametrize("letter", LETTERS)
def test_every_letter_is_written_and_read_again(letter: str) -> None:
    pattern = letter * (2 if letter == "V" else 1)
    text = written(0.0, pattern)
    assert read(pattern, text) == read(pattern, written(read(pattern, text), pattern))
