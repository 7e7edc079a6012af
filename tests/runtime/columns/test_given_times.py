"""Times in forms that users name, compared with Python's own reading."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

import pyarrow as pa
import pytest

from querylang.errors import InputError
from runtime.instants import NO_TIME, micros_of
from runtime.policies.settings_text import TimeForm, read_pattern
from runtime.timestamps import given_times

PATTERNS = [
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M:%S.%f",
    "%m/%d/%y %I:%M %p",
    "%Y%m%d%H%M%S",
    "%Y%j",
    "%b %d %Y",
    "%A, %d %B %Y",
    "%d/%b/%Y:%H:%M:%S %z",
    "%a %b %d %H:%M:%S %Y",
    "%H:%M",
    "%c",
    "%x %X",
    "%G-W%V-%u",
    "100%% %Y-%m-%dT%H.%M",
]


def expected(text: str, pattern: str) -> int:
    """As Python reads it; without a year it is of 1970."""
    has_year = any(f"%{letter}" in pattern for letter in "YyGcx")
    try:
        if has_year:
            return micros_of(datetime.strptime(text, pattern))  # noqa: DTZ007
        return micros_of(datetime.strptime(f"1970 {text}", f"%Y {pattern}"))  # noqa: DTZ007
    except ValueError:
        return NO_TIME


@pytest.mark.parametrize("pattern", PATTERNS)
def test_texts_are_read_as_python_reads_them(pattern: str) -> None:
    random = Random(pattern)
    first = datetime(1000, 1, 1, tzinfo=UTC)
    moments = [first + timedelta(microseconds=random.randrange(9_000 * 365 * 86_400_000_000)) for _ in range(300)]
    moments += [datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), datetime(1969, 12, 31, 23, 59, 59, 1, UTC)]
    texts = [moment.strftime(pattern) for moment in moments]
    for _ in range(600):
        text = list(random.choice(texts))
        text[random.randrange(len(text))] = random.choice("0123456789 :.apm+")
        texts.append("".join(text).strip())
    texts = [
        text for text in texts if not re.search(r"[ T:]24:|\+\d*$(?<!\+\d{4})|\.\d{7}", text)
    ]  # midnight, hours of zones, nanoseconds
    micros = given_times(pa.array(texts), TimeForm(pattern=read_pattern(pattern))).micros.tolist()
    differing = [(text, got) for text, got in zip(texts, micros, strict=True) if got != expected(text, pattern)]
    assert differing == []
    assert sum(got != NO_TIME for got in micros) > 100


@pytest.fixture
def of_berlin() -> Iterator[None]:
    """A machine in another zone."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


@pytest.mark.parametrize(
    ("text", "hours"),
    [("UTC", 10), ("GMT", 10), ("utc", 10), ("Z", 10), ("+0200", 8), ("-02:30", 12.5), ("CET", None), ("EST", None)],
)
def test_only_zones_that_are_the_same_everywhere_are_read(of_berlin: None, text: str, hours: float | None) -> None:
    column = pa.array([f"01.01.1970 10:00 {text}", None])
    times = given_times(column, TimeForm(pattern=read_pattern("%d.%m.%Y %H:%M %Z")))
    assert times.micros.tolist() == [NO_TIME if hours is None else int(hours * 3600) * 1_000_000, NO_TIME]
    assert times.bad.tolist() == [hours is None, False]


@pytest.mark.parametrize(
    ("pattern", "text", "micros"),
    [
        ("%Y-%m-%d %H:%M:%S", "1970-01-01 24:00:00", 86_400_000_000),
        ("%Y-%m-%d %H:%M:%S", "1970-01-01 24:00:01", NO_TIME),
        ("%Y-%m-%d %H:%M:%S.%f", "1969-12-31 23:59:59.999999999", -1),
        ("%Y-%m-%d %H:%M:%S.%f", "1000-01-01 00:00:00.000000999", -30_610_224_000_000_000),
        ("%Y-%m-%d %H:%M:%S%z", "1970-01-01 02:00:00+02", 0),
        ("%d.%m.%Y", "29.02.2023", NO_TIME),
        ("%d.%m.%Y", "31.12.9999", 253_402_214_400_000_000),
        ("%Y%j", "2023366", NO_TIME),
        ("%I:%M %p", "10:00\u202fPM", 79_200_000_000),
    ],
)
def test_what_python_does_not_read(pattern: str, text: str, micros: int) -> None:
    assert given_times(pa.array([text]), TimeForm(pattern=pattern)).micros.tolist() == [micros]


def test_numbers_are_dates_where_the_form_has_digits_only() -> None:
    column = pa.array([20240101, 1_700_000_000, None, 20240231])
    times = given_times(column, TimeForm(pattern="%Y%m%d"))
    assert times.micros.tolist() == [1_704_067_200_000_000, 1_700_000_000_000_000, NO_TIME, 20_240_231_000_000]
    assert given_times(pa.array([20240101]), TimeForm(pattern="%Y-%m-%d")).micros.tolist() == [20_240_101_000_000]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("%Y %Q", "'%Q' has no meaning"),
        ("%Y %", "'%' has no meaning"),
        ("%Y %Y", "'%Y' occurs twice"),
        ("%d.%m.", "neither a date nor a time"),
        ("%G", "is not a form of times"),
    ],
)
def test_what_is_no_form_is_told(pattern: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_pattern(pattern)
