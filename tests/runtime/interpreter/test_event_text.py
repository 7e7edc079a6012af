"""Events written as text."""

from __future__ import annotations

import pytest

from runtime.interpreter.event_text import EventTextError, TextEvent, parse_event_text


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
