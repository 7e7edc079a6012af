"""Times as users write them."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from itertools import product
from random import Random

import pyarrow as pa
import pytest

from querylang.errors import InputError
from runtime.instants import NO_TIME, is_known_time, parse_moment
from runtime.timestamps import format_time, parse_time, parse_times

CLOCK = 36_020_000_000


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("10:00:20", CLOCK),
        (" 10:00:20.5 ", CLOCK + 500_000),
        ("10:00:20.000001", CLOCK + 1),
        ("1970-01-01T10:00:20Z", CLOCK),
        ("1970-01-01 10:00:20", CLOCK),
        ("1970-01-01T12:00:20.25+02:00", CLOCK + 250_000),
        ("1970-01-01T10:00:20.1234564Z", CLOCK + 123_456),
        ("1970-01-01T10:00:20.9999995", CLOCK + 999_999),
        ("1970-01-01 12:00:20.123456789+02:00", CLOCK + 123_456),
        ("1970-01-01T10:00", 36_000_000_000),
        ("1970-01-02", 86_400_000_000),
        ("1969-12-31T23:59:59Z", -1_000_000),
        ("1969-12-31T23:59:59.9999999Z", -1),
        ("10:00:20.1234567", CLOCK + 123_456),
        ("1970-01-01 12:00:20 +0200", CLOCK),
        ("1970-01-01 12:00:20 +02", CLOCK),
        ("1970-01-01 10:00:20.5 UTC", CLOCK + 500_000),
        ("1970-01-01 10:00:20 gmt", CLOCK),
        ("1970-01-01T10:00:20UTC", CLOCK),
        ("1970-01-01T10:00:20 Z", CLOCK),
        ("1970-01-01T10:00:20,25Z", CLOCK + 250_000),
        ("1970-01-01 10:00:20,250", CLOCK + 250_000),
        ("10:00:20,5", CLOCK + 500_000),
        ("1970-01-01t10:00:20.25z", CLOCK + 250_000),
        ("19700101T100020Z", CLOCK),
        ("19700101T1000+0000", 36_000_000_000),
        ("1970-01-01T24:00:00Z", 86_400_000_000),
        ("1969-12-31 24:00", 0),
        ("1970-01-01 24:00:00.000 +0200", 79_200_000_000),
        ("24:00:00", 86_400_000_000),
        ("36020", CLOCK),
        ("-1.5", -1_500_000),
        ("3.602e4", CLOCK),
        ("0.0000005", 0),
        ("0.0000015", 2),
    ],
)
def test_a_time_is_read(text: str, micros: int) -> None:
    assert parse_time(text) == micros


@pytest.mark.parametrize(
    "text",
    ["", "soon", "25:00:00", "10:00", "2020-13-01", "1e30", "nan", "x.1234567Z", "24:00:01", "2024-01-01 10:00 CET"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a time"):
        parse_time(text)


def test_forms_may_be_mixed_in_a_column_and_one_bad_cell_spoils_no_other() -> None:
    moments = parse_times(pa.array(["10:00:20", None, "36020", "no", "1970-01-01T10:00:20Z", "1970-01-01"]))
    assert moments.micros.tolist() == [CLOCK, NO_TIME, CLOCK, NO_TIME, CLOCK, 0]
    assert moments.bad.tolist() == [False, False, False, True, False, False]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([36020]),
        pa.array([36020.0]),
        pa.array([Decimal("36020.00")]),
        pa.array([datetime.time(10, 0, 20)]),
        pa.array([CLOCK], pa.timestamp("us")),
        pa.array([CLOCK // 1000], pa.timestamp("ms", "UTC")),
        pa.array([CLOCK * 1000 + 999], pa.timestamp("ns")),
        pa.array([CLOCK // 1_000_000], pa.timestamp("s", "Europe/Dublin")),
    ],
    ids=lambda column: str(column.type),
)
def test_typed_columns_are_times(column: pa.Array) -> None:
    assert parse_times(column).micros.tolist() == [CLOCK]


def test_nanoseconds_are_cut_towards_the_past_in_every_form() -> None:
    columns = [
        pa.array([-1, 999, -1001], pa.timestamp("ns")),
        pa.array(["1969-12-31T23:59:59.999999999Z", "1970-01-01T00:00:00.000000999", "1969-12-31 23:59:59.999998999"]),
    ]
    assert [parse_times(column).micros.tolist() for column in columns] == [[-1, 0, -2]] * 2
    numbers = [pa.array([-1, 999, -1001]), pa.array(["-1", "999", "-1001"])]
    assert [parse_times(column, 1_000_000_000).micros.tolist() for column in numbers] == [[-1, 0, -2]] * 2
    assert parse_times(pa.array([CLOCK * 1000 + 999], pa.time64("ns"))).micros.tolist() == [CLOCK]


def random_texts(seed: int, count: int) -> list[str]:
    """Times of ISO 8601 and what is nearly one."""
    random = Random(seed)
    dates = ["2024-01-01", "0001-01-01", "9999-12-31", "1969-12-31", "2023-02-29", "20240229", "1600-06-15", "2024-1-1"]
    clocks = ["10:00:01", "23:59", "100001", "1000", "24:00:00", "24:00", "240000", "24:00:01", "23:59:60", "1:00:00"]
    fractions = ["", "", "", ".5", ",5", ".123456", ".123456789", ",9999999", ".", ".000", " .5"]
    zones = ["", "", "Z", "z", " Z", "+02", "+0200", "+02:00", " +0200", " -02:30", " UTC", "UTC", " utc", " GMT"]
    zones += ["-00:00", "+24:00", "+2", " CET", "  UTC", "-14:00"]
    return [
        random.choice(dates) + random.choice(["T", "t", " ", " ", "_", ""])
        + random.choice(clocks) + random.choice(fractions) + random.choice(zones)
        for _ in range(count)
    ]  # fmt: skip


_WIDER = re.compile(
    r"""_|[ ]{2}|[.,](\D|$)|\d{2}:\d{2}[.,]   # any separator, no fraction, one of minutes
    |^\d{8}[^Tt]|^[-\d]{10}.?\d{4}|^\d{8}.\d{2}:|T\d{4}[.,]|^\d{8}.\d{4}[.,]  # basic and extended forms mixed""",
    re.VERBOSE,
)
"""What Python reads and we do not."""


def independent(text: str) -> int | None:
    """Microseconds by Python's own reading, and its ways round what that does not read; None = no time."""
    words = text.replace(" UTC", "Z").replace("UTC", "Z").replace(" utc", "Z").replace(" GMT", "Z").upper()
    for sign in " +", " -", " Z":
        words = words.replace(sign, sign[1])
    days = 0
    head, clock = words[:11] if words[4:5] == "-" else words[:9], words[11:] if words[4:5] == "-" else words[9:]
    digits = "".join(filter(str.isdigit, clock.split("Z")[0].split("+")[0].split("-")[0]))
    if clock.startswith("24") and not digits[2:].strip("0"):
        clock, days = "00" + clock[2:], 1
    try:
        moment = datetime.datetime.fromisoformat(head + clock)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    gap = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    micros = gap // datetime.timedelta(microseconds=1) + days * 86_400_000_000
    return micros if is_known_time(micros) else None


def test_random_texts_mean_what_an_independent_reading_says() -> None:
    texts = [text for text in random_texts(7, 20_000) if not _WIDER.search(text)]
    together = parse_times(pa.array(texts)).micros.tolist()
    expected = [independent(text) for text in texts]
    assert [None if micros == NO_TIME else micros for micros in together] == expected
    assert sum(micros is not None for micros in expected) > 500


def test_one_moment_and_a_column_are_read_alike() -> None:
    texts = [text for text in random_texts(8, 20_000) if not text.replace(".", "").isdigit()]
    together = parse_times(pa.array(texts)).micros.tolist()
    assert [NO_TIME if (moment := parse_moment(text)) is None else moment for text in texts] == together
    alone = [int(parse_times(pa.array([text])).micros[0]) for text in texts[:1_000]]
    assert alone == together[:1_000]


def test_numbers_too_large_for_a_time_are_bad_not_wrapped() -> None:
    moments = parse_times(pa.array([1e300, float("inf"), float("nan"), 5.0]))
    assert moments.bad.tolist() == [True, True, True, False]
    assert parse_times(pa.array([2**62, 5])).bad.tolist() == [True, False]


def test_a_time_is_written_with_microseconds_and_zone() -> None:
    assert format_time(CLOCK) == "1970-01-01T10:00:20.000000Z"
    assert format_time(-1) == "1969-12-31T23:59:59.999999Z"
    assert parse_time(format_time(CLOCK + 1)) == CLOCK + 1


def test_a_time_does_not_depend_on_the_forms_of_others() -> None:
    forms = ["2024-01-02", "2024-01-02T03:04:05Z", "2024-01-02 03:04:05.123456+02:00", "2024-01-02T03:04:05"]
    forms += ["2024-01-02 03:04", "2024-01-02T03:04:05.1234567Z", "12:00:00", "12.5", "20240102", "", " 2024-01-02 "]
    forms += ["2024-02-30", "9999-12-31T23:59:59.999999Z", "0000-01-01", "2024-01-02Z", "x"]
    alone = {form: parse_times(pa.array([form])) for form in forms}
    for pair in product(forms, forms):
        both = parse_times(pa.array(pair))
        assert both.micros.tolist() == [alone[form].micros[0] for form in pair]
        assert both.bad.tolist() == [alone[form].bad[0] for form in pair]


@pytest.mark.parametrize("per_second", [1, 1_000, 1_000_000, 1_000_000_000])
def test_the_time_of_a_number_does_not_depend_on_the_cells_beside_it(per_second: int) -> None:
    cells = ["1700000000123456789", "1700000000123456.5", "-3", "+4", "1.5e3", "99999999999999999999", "17", None]
    alone = [parse_times(pa.array([cell]), per_second).micros[0] for cell in cells]
    assert parse_times(pa.array(cells), per_second).micros.tolist() == alone
    if per_second == 1_000_000_000:
        assert alone[0] == 1_700_000_000_123_456


@pytest.mark.parametrize(
    "odd", ["", " 1.5", "nan", "1e400", "12:00:00", "2020-01-01", "x", "1.5", "2020-01-01T00:00:00+01:00"]
)
@pytest.mark.parametrize("usual", ["2020-01-01 00:00:00.5", "2020-01-01T00:00:00Z", "1.25", "7"])
@pytest.mark.parametrize("per_second", [1, 1000])
def test_one_odd_cell_in_the_middle_changes_no_other(usual: str, odd: str, per_second: int) -> None:
    cells = [usual] * 40 + [odd, None] + [usual] * 40
    together = parse_times(pa.array(cells), per_second)
    alone = [parse_times(pa.array([cell], pa.string()), per_second) for cell in cells]
    assert together.micros.tolist() == [int(times.micros[0]) for times in alone]
    assert together.bad.tolist() == [bool(times.bad[0]) for times in alone]
