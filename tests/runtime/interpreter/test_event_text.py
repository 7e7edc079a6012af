"""Events written as text."""

from __future__ import annotations

import pytest

from querylang.plan.expression import Type
from querylang.plan.model import EventType, Field, Plan
from runtime.interpreter.context import PlanWorld
from runtime.interpreter.written_values import EventTextError, TextEvent, fields_of, parse_event_text, parse_value

EVENT = EventType("A", (Field("i", Type.INTEGER),))
WORLD = PlanWorld(Plan((EVENT,), ()))


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ('A(1,"x",2.5)', TextEvent("A", (1, "x", 2.5))),
        ('a.b.A( -1 , "q\\"\\n", 4. , true);', TextEvent("a.b.A", (-1, 'q"\n', 4.0, True))),
        ("A()", TextEvent("A", ())),
        ("A(infinity,-Infinity,null)", TextEvent("A", (float("inf"), float("-inf"), None))),
        (
            "com.apama.queries.SetDelayedEventsLeeway(300.0, 10.0)",
            TextEvent("com.apama.queries.SetDelayedEventsLeeway", (300.0, 10.0)),
        ),
    ],
)
def test_an_event_is_read(text: str, event: TextEvent) -> None:
    assert parse_event_text(text) == event


@pytest.mark.parametrize("text", ["", "A", "A(", "A(1", "A(1,)", "A(x)", 'A("x)', "A(1) B", "1(2)", "A(1 2)"])
def test_what_is_no_event_says_where(text: str) -> None:
    with pytest.raises(EventTextError):
        parse_event_text(text)


@pytest.mark.parametrize(
    "number",
    ["9" * 5000, "1e99999999999999999999d", "1e-99999999999999999999d"],
)
def test_a_number_beyond_all_numbers_is_refused(number: str) -> None:
    with pytest.raises(EventTextError, match=r"is out of the range of numbers"):
        parse_event_text(f"A({number})")


@pytest.mark.parametrize(
    "number", ["1e99", "-1e20", "1e20d", "1e999999999999999999d", "9" * 400, "1e-99999999999999999999"]
)
def test_a_number_beyond_all_decimals_is_not_one(number: str) -> None:
    with pytest.raises(EventTextError, match=r"is out of the range of numbers|not a value of decimal"):
        parse_value(number, Type.DECIMAL, WORLD)


def test_a_long_value_is_cut_in_messages() -> None:
    with pytest.raises(EventTextError) as raised:
        fields_of(parse_event_text(f'A("{"x" * 5000}")'), EVENT, WORLD)
    assert str(raised.value) == f"'{'x' * 99} ... is not a value of 'i' (integer)"
