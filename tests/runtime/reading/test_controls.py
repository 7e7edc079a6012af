"""Control events as text: what is read, and what is said about what cannot be."""

from __future__ import annotations

import pytest

import querylang
from runtime.columns.arrivals import RecordKind
from runtime.instants import NEVER
from runtime.reading.control_events import (
    ControlError,
    HeartbeatControl,
    SetDelayedEventsLeeway,
    control_name,
    parse_control,
)
from runtime.reading.tables import read_arrivals

SECOND = 1_000_000
EVENTS = "package com.example; event A { integer id; } query Q { inputs { A() within 5.0; } find A as a -> A as b { } }"
PLAN = querylang.compile_text(EVENTS).plan


@pytest.mark.parametrize(
    ("text", "leeway", "reorder"),
    [
        ("SetDelayedEventsLeeway(300.0, 10.0)", 300 * SECOND, 10 * SECOND),
        ("com.apama.queries.SetDelayedEventsLeeway(5, 20.0)", 5 * SECOND, 20 * SECOND),
        (" SetDelayedEventsLeeway( infinity , 0.0 ) ;", NEVER, 0),
        ("SetDelayedEventsLeeway(0.0000015, 1e3)", 2, 1000 * SECOND),
        ("SetDelayedEventsLeeway(float.INFINITY, Infinity)", NEVER, NEVER),
        ("SetDelayedEventsLeeway(3e12, 0)", 3 * 10**18, 0),
        ('{"SetDelayedEventsLeeway": [5, 20.0]}', 5 * SECOND, 20 * SECOND),
        ('{"com.apama.queries.SetDelayedEventsLeeway": ["infinity", 0]}', NEVER, 0),
        ('{"SetDelayedEventsLeeway": {"reorderBuffer": 1, "delayLeeway": 2}}', 2 * SECOND, SECOND),
        ('{"SetDelayedEventsLeeway": {"delayLeeway": 9, "reorderBuffer": 1, "delayLeeway": 2}}', 2 * SECOND, SECOND),
        ('{"SetDelayedEventsLeeway": [Infinity, 0]}', NEVER, 0),
    ],
)
def test_lengths_are_read_in_seconds(text: str, leeway: int, reorder: int) -> None:
    assert parse_control(text) == SetDelayedEventsLeeway(leeway, reorder)


@pytest.mark.parametrize(
    ("text", "event", "time"),
    [
        ('Heartbeat("A", 36000)', "A", 36_000 * SECOND),
        ('Heartbeat("com.example.A", 1384430400.0000005)', "com.example.A", 1_384_430_400 * SECOND),
        ('com.apama.queries.Heartbeat("A", -1.5);', "A", -1_500_000),
        ('Heartbeat("A", "10:00:00")', "A", 36_000 * SECOND),
        ('Heartbeat("A", "2024-01-01T10:00:00.000001Z")', "A", 1_704_103_200 * SECOND + 1),
        ('Heartbeat("A", infinity)', "A", NEVER),
        ('{"Heartbeat": ["A", 36000]}', "A", 36_000 * SECOND),
        ('{"Heartbeat": {"time": "10:00:00", "event": "A"}}', "A", 36_000 * SECOND),
    ],
)
def test_a_heartbeat_says_how_far_an_input_has_come(text: str, event: str, time: int) -> None:
    assert parse_control(text) == HeartbeatControl(event, time)


@pytest.mark.parametrize("name", ["A", "com.example.A", "other.A"])
def test_a_type_goes_by_the_name_that_the_plan_has(name: str) -> None:
    expected = next(event.name for event in PLAN.events if event.name.endswith("A"))
    assert parse_control(f'Heartbeat("{name}", 1)', PLAN) == HeartbeatControl(expected, SECOND)


LENGTH = " is not a length of time; expected 0 seconds to 100,000 years, or infinity"
TIME = " is not a time: ISO 8601, HH:MM:SS, or seconds since 1970, or infinity"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a control event: not an event: ''"),
        ("SetLeeway(1, 2)", "unknown control event 'SetLeeway'; did you mean SetDelayedEventsLeeway(delayLeeway, reorderBuffer)?"),
        ("SetDelayedEventLeeway(1, 2)", "unknown control event 'SetDelayedEventLeeway'; did you mean SetDelayedEventsLeeway(delayLeeway, reorderBuffer)?"),
        ("SetParameters(1)", "SetParameters(query, instance, values) takes 3 arguments"),
        ("SetDelayedEventsLeeway(1)", "SetDelayedEventsLeeway(delayLeeway, reorderBuffer) takes 2 arguments"),
        ("SetDelayedEventsLeeway(one, 2)", "'SetDelayedEventsLeeway(one, 2)' is not a control event: 'one' is not a value; strings are written in double quotes"),
        ("SetDelayedEventsLeeway(-1.0, 2)", "SetDelayedEventsLeeway: -1.0" + LENGTH),
        ("SetDelayedEventsLeeway(NaN, 2)", "SetDelayedEventsLeeway: NaN" + LENGTH),
        ("SetDelayedEventsLeeway(true, 2)", "SetDelayedEventsLeeway: true" + LENGTH),
        ('SetDelayedEventsLeeway("5", 2)', 'SetDelayedEventsLeeway: "5"' + LENGTH),
        ("SetDelayedEventsLeeway(1e308, 10.0)", "SetDelayedEventsLeeway: 1e308" + LENGTH),
        ("SetDelayedEventsLeeway(10.0, 4e12)", "SetDelayedEventsLeeway: 4e12" + LENGTH),
        (f"SetDelayedEventsLeeway({'9' * 400}, 10.0)", f"SetDelayedEventsLeeway: {'9' * 100} ..." + LENGTH),
        ("SetDelayedEventsLeeway(1.5d, 10.0)", 'SetDelayedEventsLeeway: "1.5"' + LENGTH),
        ("SetDelayedEventsLeeway(1e400, 1)", "SetDelayedEventsLeeway: 1e400" + LENGTH),
        (f"SetDelayedEventsLeeway({'9' * 5000}, 1)", f"'SetDelayedEventsLeeway({'9' * 76} ... is not a control event: {'9' * 40} is out of the range of numbers"),
        ("SetDelayedEventsLeeway(1e99999999999999999999d, 1)", "'SetDelayedEventsLeeway(1e99999999999999999999d, 1)' is not a control event: 1e99999999999999999999 is out of the range of numbers"),
        ('Heartbeat("A", 1e308)', "Heartbeat: 1e308" + TIME),
        (f'Heartbeat("A", {"9" * 400})', f"Heartbeat: {'9' * 100} ..." + TIME),
        (f'Heartbeat("A", "{"9" * 5000}")', f'Heartbeat: "{"9" * 99} ...' + TIME),
        (f'Heartbeat("A", "2024-01-01T10:00:00.{"9" * 5000}Z")', f'Heartbeat: "2024-01-01T10:00:00.{"9" * 79} ...' + TIME),
        ('Heartbeat("A", "1e999")', 'Heartbeat: "1e999"' + TIME),
        ("Heartbeat(A, 1)", "'Heartbeat(A, 1)' is not a control event: 'A' is not a value; strings are written in double quotes"),
        ("Heartbeat(1, 1)", "Heartbeat: 1 is not the name of an event type, written in double quotes"),
        ('Heartbeat("A")', "Heartbeat(event, time) takes 2 arguments"),
        ('Heartbeat("B", 1)', "Heartbeat: unknown event type 'B'; the queries know A"),
        ('Heartbeat("A", "noon")', 'Heartbeat: "noon"' + TIME),
        ('Heartbeat("A", null)', "Heartbeat: null" + TIME),
        ('Heartbeat("A", NaN)', "Heartbeat: NaN" + TIME),
        ('Heartbeat("A", -infinity)', "Heartbeat: -Infinity" + TIME),
        ('Heartbeat("A", 1e15)', "Heartbeat: 1e15" + TIME),
        ('{"Heartbeat": ["A", 1]', """'{"Heartbeat": ["A", 1]' is not JSON: Expecting ',' delimiter (character 23)"""),
        ('{"Heartbeat": ["A", 1e400]}', "Heartbeat: 1e400" + TIME),
        ('{"SetDelayedEventsLeeway": [1e400, 1]}', "SetDelayedEventsLeeway: 1e400" + LENGTH),
        ('{"Heartbeat": ["\\ud800", 1]}', """'{"Heartbeat": ["\\\\ud800", 1]}' is not JSON: has half of a surrogate pair, which is not text"""),
        ('{"Heartbeat": ' + "[" * 200, """'{"Heartbeat": """ + "[" * 85 + " ... is not JSON: nested more than 100 deep"),
        ('{"Heartbeat": 1}', "Heartbeat(event, time) takes 2 arguments"),
        ('{"Heartbeat": {"type": "A", "time": 1}}', "Heartbeat(event, time) has no argument 'type'"),
        ("{}", "'{}' is not a control event: as JSON it is one name with its arguments"),
    ],
)  # fmt: skip
def test_a_wrong_one_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ControlError) as caught:
        parse_control(text, querylang.compile_text(EVENTS.removeprefix("package com.example; ")).plan)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('com.apama.queries.Heartbeat("A", 1)', "com.apama.queries.Heartbeat"),
        ('{"Heartbeat": ["A", 1]}', "Heartbeat"),
        ("SetDelayedEventsLeeway(one)", "SetDelayedEventsLeeway"),
    ],
)
def test_a_control_event_has_a_name(text: str, name: str) -> None:
    assert control_name(text) == name


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ('Heartbeat("A", 1)', RecordKind.CONTROL),
        ('{"Heartbeat": ["A", 1]}', RecordKind.CONTROL),
        ({"SetDelayedEventsLeeway": {"delayLeeway": 1, "reorderBuffer": 2}}, RecordKind.CONTROL),
        ('{"Heartbeet": ["A", 1]}', RecordKind.UNKNOWN_TYPE),
        ('{"Heartbeat": ["A", 1', RecordKind.CONTROL),
        ('{"com.apama.queries.Heartbeat": ' + "[" * 100_000, RecordKind.CONTROL),
        ('{"Heartbeat": ["\\ud800", 1]}', RecordKind.CONTROL),
        ('{"Heartbeet": [', RecordKind.UNKNOWN_TYPE),
        ("{", RecordKind.UNKNOWN_TYPE),
    ],
)
def test_a_row_of_an_event_table_can_be_a_control_event(cell: object, kind: RecordKind) -> None:
    assert read_arrivals([{"at": 1, "event": cell, "id": 1}], PLAN).system("kind").tolist() == [kind]


def test_an_event_type_called_heartbeat_is_one() -> None:
    plan = querylang.compile_text("event Heartbeat { string name; integer id; }" + EVENTS.partition(";")[2]).plan
    rows = [{"at": 1, "event": 'Heartbeat("A", 1)', "id": 1}, {"at": 1, "event": '{"Heartbeat": ["A", 1]}', "id": 1}]
    arrivals = read_arrivals(rows, plan)
    names = [
        plan.events[kind].name if kind >= 0 else RecordKind(kind).name for kind in arrivals.system("kind").tolist()
    ]
    assert names == ["Heartbeat", "UNKNOWN_TYPE"]
