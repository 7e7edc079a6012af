"""The printed table of a replay: the published ones cell by cell, and what a table of any replay may meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import ensue
from ensue.rendering.replay_table import steps_table
from ensue.rendering.text_table import TimeFormat, shortened, text_table, width_of
from querylang import compile_text
from querylang.plan.model import Plan, TimelineKind, TimePolicy
from runtime.instants import LATEST, NO_TIME
from runtime.replay.stepping import Step

QUERY = """
{mark} event A {{ integer id; }}
query Q {{
    inputs {{ A() within {within} wait {wait}; }}
    find A as a1 -> A as a2 {{ print {told}; }}
}}
"""
NAMED = '"a1=" + a1.toString() + "; a2=" + a2.toString()'
ARROW = 'a1.id.toString() + "→" + a2.id.toString()'

SHORT = [
    ("10:00:20", 1, "10:00:10"),
    ("10:00:30", 4, "10:00:20"),
    ("10:00:32", 3, "10:00:15"),
    ("10:00:37", 2, "10:00:12"),
]
DELAYED = [
    ("10:10:30", 1, "10:06:10"),
    ("10:10:31", 4, "10:06:20"),
    ("10:10:32", 3, "10:06:15"),
    ("10:10:33", 2, "10:06:13"),
    ("10:10:43", None, None),
    ("10:11:33", None, None),
    ("10:12:10", 6, "10:12:05"),
    ("10:12:11", 5, "10:12:04"),
]
HEADER = "correlator time | event | source time | definitive time | output"


def events(*rows: tuple[str, int | None, str | None]) -> list[dict[str, Any]]:
    return [{"at": at, "event": None if number is None else "A", "id": number, "ts": ts} for at, number, ts in rows]


def leeway(seconds: str) -> dict[str, Any]:
    return {"at": "10:00:00", "event": f"com.apama.queries.SetDelayedEventsLeeway({seconds})", "id": None, "ts": None}


def cells(table: str) -> list[str]:
    """The lines of a table with ` | ` between the cells; cells end where those of the ruler do."""
    lines = table.splitlines()
    starts = [place for place, sign in enumerate(lines[1]) if sign == "-" and lines[1][place - 1 : place] != "-"]
    ends = [*starts[1:], None]
    rows = [lines[0], *lines[2:]]
    return [
        " | ".join(line[start:end].strip() for start, end in zip(starts, ends, strict=True)).rstrip() for line in rows
    ]


def test_out_of_order_events_wait_until_nothing_earlier_can_come() -> None:
    query = QUERY.format(mark="@OutOfOrder()", within="30.0", wait="20 seconds", told=NAMED)
    assert cells(ensue.replay(query, events(*SHORT)).table()) == [
        HEADER,
        "10:00:20 | A(1) | 10:00:10 | 10:00:00 |",
        "10:00:30 | A(4) | 10:00:20 | 10:00:10 |",
        "10:00:32 | A(3) | 10:00:15 | 10:00:12 |",
        "10:00:35 |  |  | 10:00:15 | a1=A(1); a2=A(3)",
        "10:00:37 | A(2) | 10:00:12 | 10:00:17 | discarded: late",
        "10:00:40 |  |  | 10:00:20 | a1=A(3); a2=A(4)",
    ]


def test_of_events_in_order_those_that_are_not_are_discarded() -> None:
    query = QUERY.format(mark="", within="30.0", wait="20 seconds", told=NAMED)
    assert cells(ensue.replay(query, events(*SHORT)).table()) == [
        HEADER,
        "10:00:20 | A(1) | 10:00:10 | 10:00:10 |",
        "10:00:30 | A(4) | 10:00:20 | 10:00:20 | a1=A(1); a2=A(4)",
        "10:00:32 | A(3) | 10:00:15 | 10:00:20 | discarded: out_of_order",
        "10:00:37 | A(2) | 10:00:12 | 10:00:20 | discarded: late",
    ]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (
            None,
            [
                "10:10:30 | A(1) | 10:06:10 | 10:00:30 |",
                "10:10:31 | A(4) | 10:06:20 | 10:00:31 |",
                "10:10:32 | A(3) | 10:06:15 | 10:00:32 |",
                "10:10:33 | A(2) | 10:06:13 | 10:00:33 |",
                "10:10:40 |  |  | 10:06:10 |",  # the first held time is due: the published table leaves this out
                "10:10:43 |  |  | 10:06:20 | 1→2",
                " |  |  |  | 2→3",
                " |  |  |  | 3→4",
                "10:11:33 |  |  | 10:06:20 |",
                "10:12:10 | A(6) | 10:12:05 | 10:12:05 | 4→6",
                "10:12:11 | A(5) | 10:12:04 | 10:12:05 | discarded: out_of_order",
            ],
        ),
        (
            "300.0, 10.0",
            [
                "10:00:00 | com.apama.queries.SetDelayedEventsLeeway(300.0, 10.0) |  | 09:50:00 |",
                "10:10:30 | A(1) | 10:06:10 | 10:06:10 |",
                "10:10:31 | A(4) | 10:06:20 | 10:06:20 | 1→4",
                "10:10:32 | A(3) | 10:06:15 | 10:06:20 | discarded: out_of_order",
                "10:10:33 | A(2) | 10:06:13 | 10:06:20 | discarded: out_of_order",
                "10:10:43 |  |  | 10:06:20 |",
                "10:11:33 |  |  | 10:06:20 |",
                "10:12:10 | A(6) | 10:12:05 | 10:12:05 | 4→6",
                "10:12:11 | A(5) | 10:12:04 | 10:12:05 | discarded: out_of_order",
            ],
        ),
        (
            "10.0, 60.0",
            [
                "10:00:00 | com.apama.queries.SetDelayedEventsLeeway(10.0, 60.0) |  | 09:50:00 |",
                "10:10:30 | A(1) | 10:06:10 | 10:00:30 |",
                "10:10:31 | A(4) | 10:06:20 | 10:00:31 |",
                "10:10:32 | A(3) | 10:06:15 | 10:00:32 |",
                "10:10:33 | A(2) | 10:06:13 | 10:00:33 |",
                "10:10:43 |  |  | 10:00:43 |",
                "10:11:30 |  |  | 10:06:10 |",
                "10:11:33 |  |  | 10:06:20 | 1→2",
                " |  |  |  | 2→3",
                " |  |  |  | 3→4",
                "10:12:10 | A(6) | 10:12:05 | 10:12:05 | 4→6",
                "10:12:11 | A(5) | 10:12:04 | 10:12:05 | discarded: out_of_order",
            ],
        ),
    ],
    ids=["default", "300-10", "10-60"],
)
def test_delayed_events_under_three_leeways(setting: str | None, expected: list[str]) -> None:
    query = QUERY.format(mark="", within="30 minutes", wait="10 minutes", told=ARROW)
    rows = events(*DELAYED)
    assert cells(ensue.replay(query, [leeway(setting), *rows] if setting else rows).table()) == [HEADER, *expected]


# ------------------------------------------------------------------------------------------------------- any replay


def plan_of(text: str, policy: TimePolicy | None = None) -> Plan:
    """The plan of a text, its inputs with a policy."""
    plan = compile_text(text).plan
    queries = [
        replace(query, inputs=tuple(replace(item, policy=policy) for item in query.inputs)) for query in plan.queries
    ]
    return replace(plan, queries=tuple(queries))


PLAIN = "event A { integer id; } query Q { inputs { A() retain 2; } find A as a {} }"
SECOND = 1_000_000
DAY = 86_400 * SECOND


def test_an_adjusted_record_says_from_what_to_what_and_why() -> None:
    plan = plan_of(PLAIN, TimePolicy("p", TimelineKind.PARTITION, max_delay=15 * SECOND, action="adjust"))
    step = Step(at=40 * SECOND, row=1, text="A(1)", source_time=10 * SECOND, time=25 * SECOND, adjusted="late")
    on_time = Step(
        at=41 * SECOND, row=2, text="A(2)", source_time=30 * SECOND, time=30 * SECOND, definitive=26 * SECOND
    )
    assert cells(steps_table(plan, [step, on_time])) == [
        "correlator time | event | source time | adjusted time | definitive time | output",
        "00:00:40 | A(1) | 00:00:10 | 00:00:25 |  | adjusted: late, 00:00:10 -> 00:00:25",
        "00:00:41 | A(2) | 00:00:30 | 00:00:30 | 00:00:26 |",
    ]


def test_a_policy_that_only_drops_has_no_column_of_adjusted_times() -> None:
    plan = plan_of(PLAIN, TimePolicy("p", TimelineKind.PARTITION, max_delay=15 * SECOND))
    assert cells(steps_table(plan, [])) == [HEADER]


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        ([3600 * SECOND], ["01:00:00"]),
        ([1, 1000], ["00:00:00.000001", "00:00:00.001000"]),
        ([0, 1500], ["00:00:00.000000", "00:00:00.001500"]),
        ([2000, 500_000], ["00:00:00.002", "00:00:00.500"]),
        ([DAY - SECOND, DAY], ["1970-01-01 23:59:59", "1970-01-02 00:00:00"]),
        ([-SECOND, 0], ["1969-12-31 23:59:59", "1970-01-01 00:00:00"]),
        ([-719_162 * DAY], ["00:00:00"]),
        ([0, NO_TIME], ["00:00:00", ""]),
        ([0, LATEST], ["1970-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999"]),
    ],
)
def test_times_are_as_short_as_they_can_be(times: list[int], shown: list[str]) -> None:
    format_ = TimeFormat.of(times)
    assert [format_.text(time) for time in times] == shown


def test_the_end_of_time_is_written_so_unless_a_record_has_the_last_instant() -> None:
    without, beside = TimeFormat.of([0], [SECOND, LATEST]), TimeFormat.of([LATEST], [LATEST])
    assert [without.bound(time) for time in (SECOND, LATEST, NO_TIME)] == ["00:00:01", "infinity", ""]
    assert beside.bound(LATEST) == beside.text(LATEST) == "23:59:59.999999"


def test_a_record_of_the_last_instant_is_shown_with_its_time() -> None:
    last = "9999-12-31T23:59:59.999999Z"
    table = ensue.replay(PLAIN, [{"at": last, "id": 1}]).table()
    assert table.splitlines()[0] == "9999-12-31 (UTC)"
    assert cells(table.partition("\n\n")[2])[1] == "23:59:59.999999 | A(1) |  | 23:59:59.999999 | a=A(1)"


def test_the_one_day_of_all_times_stands_above_the_table() -> None:
    table = steps_table(plan_of(PLAIN), [Step(at=19_783 * DAY + SECOND, text="A(1)")])
    assert table.splitlines()[:2] == ["2024-03-01 (UTC)", ""]
    assert cells(table.partition("\n\n")[2])[1] == "00:00:01 | A(1) |  |  |"


def test_a_row_of_the_table_stays_a_row() -> None:
    table = steps_table(plan_of(PLAIN), [Step(at=0, text='A("x\ny")', outputs=[{"kind": "print", "text": "1\n\t2"}])])
    assert cells(table)[1:] == ['00:00:00 | A("x\\ny") |  |  | 1\\n\\t2']


def test_of_a_row_that_could_not_be_read_the_reason_is_shown() -> None:
    line = cells(ensue.replay(PLAIN, [{"at": 1, "id": 1}, {"at": 2, "id": "x"}]).table())[2]
    reason = 'row 2: \'x\' is not a value of \'id\' (integer): {"at": 2, "id": "x"}'
    assert line == f"00:00:02 |  |  | 00:00:02 | discarded: malformed, {reason}"


def test_of_what_lasts_the_end_is_shown() -> None:
    events = [{"at": 9, "id": 1, "start": 5, "end": 8}, {"at": 9, "id": 2, "start": 7, "end": None}]
    result = ensue.replay(PLAIN.replace("{}", '{ print "out"; }'), events, ordering="streaminsight final=yes")
    assert cells(result.table())[1:] == [
        "00:00:09 | A(1) | 00:00:05 .. 00:00:08 | 00:00:05 |",
        "00:00:09 | A(2) | 00:00:07 | 00:00:07 | out",
        "00:00:09 |  |  | infinity | out",
    ]


def test_long_events_are_cut_and_outputs_are_not() -> None:
    step = Step(at=0, text="x" * 300, outputs=[{"kind": "print", "text": "y" * 300}])
    _, line = cells(steps_table(plan_of(PLAIN), [step]))
    assert line == f"00:00:00 | {shortened('x' * 300, 100)} |  |  | {'y' * 300}"


def test_different_keys_of_several_queries_are_named() -> None:
    text = (
        "event A { string card; string user; }\n"
        "query C { inputs { A() key card retain 1; } find A as a {} }\n"
        "query U { inputs { A() key user retain 1; } find A as a {} }"
    )
    table = ensue.replay(text, [{"at": 1, "card": "7", "user": "ann"}]).table()
    assert cells(table)[1] == '00:00:01 | A("7","ann") | card=7 |  | 00:00:01 | C: a=A("7","ann")'
    assert cells(table)[2] == ' |  |  |  |  | U: a=A("7","ann")'


def test_wide_letters_keep_columns_aligned() -> None:
    table = text_table(["a", "b"], [["日本", "1"], ["e\u0301", "2"], ["x", "3"]])
    assert [width_of(line[: line.rindex(sign)]) for line, sign in zip(table.splitlines()[2:], "123", strict=True)] == [
        6
    ] * 3


def test_a_table_of_many_rows_has_those_with_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.answer.MOST_ROWS", 2)
    monkeypatch.setattr("ensue.answer.MOST_STEPPED", 2)
    query = 'event A { integer id; } query Q { inputs { A() retain 2; } find A as a where a.id = 2 { print "two"; } }'
    lines = ensue.replay(query, [{"at": at, "id": at} for at in (1, 2, 3)]).table().splitlines()
    assert lines[2:] == [
        "00:00:02                             00:00:02         two",
        "",
        "(matches only, because the tables have 3 rows; `--format steps` prints them all)",
    ]
