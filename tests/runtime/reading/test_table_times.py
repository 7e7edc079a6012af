"""Times of event tables: cells that are not times, implausible times, and events that last."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from querylang import compile_text
from querylang.plan.model import Plan
from runtime.columns.arrivals import RecordKind, Shape
from runtime.instants import NO_TIME
from runtime.policies.plan_policies import SourceOrdering, parse_ordering, with_ordering
from runtime.policies.settings_text import TimeForm
from runtime.reading.column_names import ColumnNames
from runtime.reading.tables import read_table
from runtime.replay.replay import read_records
from runtime.timestamps import format_time

SECOND = 1_000_000
PLAIN = compile_text("event A { integer id; } query Q { inputs { A() within 30.0; } find A as a -> A as b { } }").plan
WAITS = compile_text(
    "event A { integer id; } query Q { inputs { A() within 9.0 wait 9.0; } find A as a -> A as b { } }"
).plan
FIELD = compile_text(
    '@TimeFrom("t") event A { integer id; float end; float t; }'
    "query Q { inputs { A() within 9.0; } find A as a -> A as b { } }"
).plan


def lasting(plan: Plan) -> Plan:
    return with_ordering(plan, [SourceOrdering(None, parse_ordering("streaminsight"))])


def shaped(*rows: dict[str, Any], plan: Plan = PLAIN) -> list[tuple[Any, ...]]:
    """RecordKind, source time, end and shape of each row; of a malformed one why."""
    table = read_table([{"at": 9, "id": 1, **row} for row in rows], lasting(plan), ColumnNames()).arrivals.table
    found = []
    for row in table.to_pylist():
        if row["_kind"] == RecordKind.MALFORMED:
            found.append((row["_text"].split(": ")[1],))
        else:
            times = [None if time == NO_TIME else time / SECOND for time in (row["_source_time"], row["_end"])]
            found.append((*times, Shape(row["_shape"])))
    return found


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"start": 1, "end": None, "shape": None}, (1, None, Shape.POINT)),
        ({"start": 1, "end": None}, (1, None, Shape.POINT)),
        ({"start": 1, "end": 2}, (1, 2, Shape.INTERVAL)),
        ({"ts": 1, "end": 2}, (1, 2, Shape.INTERVAL)),
        ({"ts": 1, "start": 5, "end": 2}, (1, 2, Shape.INTERVAL)),
        ({"ts": None, "start": 1, "end": 2}, (1, 2, Shape.INTERVAL)),
        ({"start": "soon", "end": 2}, ("'soon' in 'start' is not a time",)),
        ({"start": "00:00:01", "end": "1970-01-01T00:00:02Z", "shape": " Interval"}, (1, 2, Shape.INTERVAL)),
        ({"start": 1, "shape": "point"}, (1, None, Shape.POINT)),
        ({"start": 1, "shape": "start_edge"}, (1, None, Shape.START_EDGE)),
        ({"start": 1, "end": 2, "shape": "end_edge"}, (1, 2, Shape.END_EDGE)),
        ({"start": None, "end": 2}, (None, 2, Shape.INTERVAL)),
        ({"start": 1, "end": 1.000001}, (1, 1.000001, Shape.INTERVAL)),
        ({"start": 1, "end": 1}, ("its 'end' 1 is not after its start",)),
        ({"start": 2, "end": 1, "shape": "end_edge"}, ("its 'end' 1 is not after its start",)),
        ({"start": 1, "end": "soon"}, ("'soon' in 'end' is not a time",)),
        ({"start": 1, "end": math.nan}, ("nan in 'end' is not a time",)),
        ({"start": 1, "end": None, "shape": "interval"}, ("an interval needs an 'end'",)),
        ({"start": 1, "shape": "end_edge"}, ("an end edge needs an 'end'",)),
        ({"start": 1, "end": 2, "shape": "point"}, ("a point has no 'end'",)),
        ({"start": 1, "end": 2, "shape": "start_edge"}, ("a start edge has no 'end'",)),
        ({"start": 1, "shape": "intervall"}, ("'intervall' in 'shape' is not a shape; did you mean 'interval'?",)),
        ({"start": 1, "shape": 3}, ("3 in 'shape' is not a shape; known",)),
    ],
)  # fmt: skip
def test_an_event_may_last(row: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert shaped(row) == [expected]


def test_without_the_columns_there_are_none() -> None:
    table = read_table([{"at": 9, "id": 1, "start": 1}], lasting(PLAIN), ColumnNames()).arrivals.table
    assert "_end" not in table.column_names
    assert table["_source_time"].to_pylist() == [SECOND]


def test_only_queries_over_lasting_events_look_at_the_columns() -> None:
    table = read_table([{"at": 9, "id": 1, "ts": 1, "end": "London", "shape": 4}], WAITS, ColumnNames()).arrivals.table
    assert "_end" not in table.column_names
    assert table["_kind"].to_pylist() == [0]


def test_a_field_called_end_serves_both() -> None:
    table = read_table([{"at": 9, "id": 1, "t": 1, "end": 2}], lasting(FIELD), ColumnNames()).arrivals.table
    assert (table["end:float"].to_pylist(), table["_end"].to_pylist()) == ([2.0], [2 * SECOND])


def test_the_start_of_an_event_that_says_it_itself_is_looked_at() -> None:
    assert shaped({"t": 3, "end": 2}, plan=FIELD) == [("its 'end' 2 is not after its start",)]


# ------------------------------------------------------------------------------------------------------- no times


OUTSIDE = "is outside of the years 1 to 9999"
IN_MILLISECONDS = f"{OUTSIDE}; is it in milliseconds? `--time-unit ms`"


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("at", None, "'at' is empty"),
        ("at", math.inf, "inf in 'at' is not a time"),
        ("at", "noon", "'noon' in 'at' is not a time"),
        ("at", 1_700_000_000_000, f"1700000000000 in 'at' {IN_MILLISECONDS}"),
        ("ts", math.nan, "nan in 'ts' is not a time"),
        ("ts", -math.inf, "-inf in 'ts' is not a time"),
        ("ts", "", "'' in 'ts' is not a time"),
        ("ts", True, "'true' in 'ts' is not a time"),
        ("ts", "1700000000000", f"'1700000000000' in 'ts' {IN_MILLISECONDS}"),
        ("ts", -62_135_596_801, f"-62135596801 in 'ts' {OUTSIDE}"),
        ("ts", 253_402_300_800.0, f"253402300800.0 in 'ts' {IN_MILLISECONDS}"),
        ("ts", "2016-12-31T23:59:60Z", "'2016-12-31T23:59:60Z' in 'ts' is not a time"),
    ],
)
def test_a_cell_that_is_no_time_spoils_its_row(column: str, cell: object, reason: str) -> None:
    rows = [{"at": 5, "ts": 4, "id": 1}, {"at": 6, "ts": 5, "id": 2, column: cell}]
    table = read_table(rows, WAITS, ColumnNames()).arrivals.table
    assert table["_kind"].to_pylist() == [0, RecordKind.MALFORMED]
    assert table["_text"][1].as_py().startswith(f"row 2: {reason}: ")


@pytest.mark.parametrize("cell", [None, pd.NaT, math.nan])
def test_a_null_source_time_is_not_malformed(cell: object) -> None:
    table = read_table(pd.DataFrame({"at": [5.0], "id": [1], "ts": [cell]}), WAITS, ColumnNames()).arrivals.table
    assert (table["_kind"].to_pylist(), table["_source_time"].to_pylist()) == ([0], [NO_TIME])


@pytest.mark.parametrize("cell", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.5Z"])
def test_the_first_and_the_last_moments_are_times(cell: str) -> None:
    table = read_table([{"at": cell, "id": 1, "ts": cell}], WAITS, ColumnNames()).arrivals.table
    assert (table["_kind"].to_pylist(), table["_arrival"].to_pylist()) == ([0], table["_source_time"].to_pylist())


def test_a_timestamp_that_python_cannot_say_is_told_all_the_same() -> None:
    table = pa.table({"at": [1], "id": [1], "ts": pa.array([10**12], pa.int64()).cast(pa.timestamp("s"))})
    (text,) = read_table(table, WAITS, ColumnNames()).arrivals.table["_text"].to_pylist()
    assert text.startswith("row 1: '<value out of range: 1000000000000>' in 'ts' is not a time: ")


def test_a_bound_outside_of_the_calendar_is_its_first_or_last_moment() -> None:
    assert format_time(-62_135_596_800_000_001) == "0001-01-01T00:00:00.000000Z"
    assert format_time(253_402_300_800_000_000) == "9999-12-31T23:59:59.999999Z"


# --------------------------------------------------------------------------------------------- hardly meant

NOW = 1_700_000_000
DAYS = 86_400


def warned(*times: tuple[float | None, float | None], plan: Plan = WAITS) -> str | None:
    rows = [{"at": at, "ts": ts, "id": 1} for at, ts in times]
    return next(iter(read_table(rows, plan, ColumnNames()).warnings), None)


def test_seconds_taken_for_milliseconds_are_told_once_a_table() -> None:
    assert warned((NOW, NOW), (NOW, NOW / 1000), (NOW, NOW / 1000), (NOW, None)) == (
        "table: 2 rows happen more than 1,000 days before or after arrival, first row 2:"
        " source time 1970-01-20T16:13:20.000000Z, arrival 2023-11-14T22:13:20.000000Z;"
        " is a column in milliseconds that should be in seconds?"
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_a_thousand_days_exactly_may_be_meant(sign: int) -> None:
    assert warned((NOW, NOW + sign * 1000 * DAYS)) is None
    assert warned((NOW, NOW + sign * (1000 * DAYS + 0.000001))) is not None


def test_times_that_no_query_looks_at_are_not_told() -> None:
    assert warned((NOW, NOW / 1000), plan=PLAIN) is None


def test_history_arrives_when_it_happened() -> None:
    assert read_table([{"ts": 1, "id": 1}, {"ts": NOW, "id": 1}], WAITS, ColumnNames()).warnings == ()


def test_a_field_that_is_the_source_time_is_looked_at() -> None:
    warning = read_table([{"at": NOW, "id": 1, "end": 1, "t": 5.0}], lasting(FIELD), ColumnNames()).warnings[0]
    assert warning.startswith("table: 1 row happens more than 1,000 days")


def test_the_records_of_several_tables_have_a_warning_each() -> None:
    strange = [{"at": NOW, "ts": 1, "id": 1}]
    records = read_records([strange, [{"at": NOW, "ts": NOW, "id": 1}], strange], WAITS)
    assert [warning.partition(":")[0] for warning in records.warnings] == ["table", "table#3"]
    assert records.until(0).warnings == records.warnings


@pytest.mark.parametrize(
    ("cells", "look"),
    [
        ([20240131], 'dates such as 20240131 (`--time-format "%Y%m%d"`)'),
        ([20240131.0, 20240201.0], 'dates such as 20240131 (`--time-format "%Y%m%d"`)'),
        (["20240131", "20240201"], 'dates such as 20240131 (`--time-format "%Y%m%d"`)'),
        ([202401, 202402], 'months such as 202401 (`--time-format "%Y%m"`)'),
        ([2023, 2024], 'years such as 2023 (`--time-format "%Y"`)'),
        ([45292, 45293], "days of a spreadsheet, 45292 for 2024-01-01: write them as dates"),
        ([45292.25, 45293.354167], "days of a spreadsheet, 45292.25 for 2024-01-01: write them as dates"),
        ([20240231], None),
        ([2024], None),
        ([45292], None),
        ([2023, 86_400], None),
        (["00:33:20", "00:33:21"], None),
        ([1_700_000_000], None),
        (["2024-01-31"], None),
    ],
)
def test_numbers_that_look_like_dates_are_told(cells: list[Any], look: str | None) -> None:
    rows = [{"at": cell, "id": 1} for cell in cells]
    expected = (
        () if look is None else (f"table: the times in 'at' look like {look}; they are read as seconds since 1970",)
    )
    assert read_table(rows, PLAIN, ColumnNames()).warnings == expected
    if look is not None and "%" in look:
        names = ColumnNames(times=TimeForm(pattern=look.split('"')[1]))
        whole = [{"at": int(cell), "id": 1} for cell in cells]
        table = read_table(whole, PLAIN, names)
        assert table.warnings == ()
        assert format_time(int(table.arrivals.system("arrival")[0])).startswith(str(cells[0])[:4])


@pytest.mark.parametrize(
    ("column", "is_told"),
    [
        (pa.array([1_000_000_001], pa.timestamp("ns")), True),
        (pa.array([1_000_000_000], pa.timestamp("ns")), False),
        (pa.array([1], pa.time64("ns")), True),
        (pa.array(["2024-01-01 10:00:00.123456789 UTC"]), True),
        (pa.array(["2024-01-01 10:00:00,123456000"]), False),
    ],
)
def test_nanoseconds_are_told_once_a_table(column: pa.Array, is_told: bool) -> None:
    table = pa.table({"at": pa.concat_arrays([column] * 3), "id": [1, 2, 3]})
    told = ("table: times in 'at' have nanoseconds, which are cut to microseconds",)
    assert read_table(table, PLAIN, ColumnNames()).warnings == (told if is_told else ())
