"""Control events as text: what is read, and what is said about what cannot be."""

import pytest

from runtime.controls import NEVER, ControlError, SetDelayedEventsLeeway, parse_control

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "leeway", "reorder"),
    [
        ("SetDelayedEventsLeeway(300.0, 10.0)", 300 * SECOND, 10 * SECOND),
        ("com.apama.queries.SetDelayedEventsLeeway(5, 20.0)", 5 * SECOND, 20 * SECOND),
        (" SetDelayedEventsLeeway( infinity , 0.0 ) ;", NEVER, 0),
        ("SetDelayedEventsLeeway(0.0000015, 1e3)", 2, 1000 * SECOND),
        ("SetDelayedEventsLeeway(float.INFINITY, Infinity)", NEVER, NEVER),
    ],
)
def test_lengths_are_read_in_seconds(text: str, leeway: int, reorder: int) -> None:
    assert parse_control(text) == SetDelayedEventsLeeway(leeway, reorder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not an event; expected SetDelayedEventsLeeway(delayLeeway, reorderBuffer)"),
        (
            "SetLeeway(1, 2)",
            "control event 'SetLeeway' is not known; expected SetDelayedEventsLeeway(delayLeeway, reorderBuffer)",
        ),
        (
            "SetDelayedEventsLeeway(1)",
            "SetDelayedEventsLeeway takes two numbers of seconds, delayLeeway and reorderBuffer: 'SetDelayedEventsLeeway(1)'",
        ),
        ("SetDelayedEventsLeeway(one, 2)", "SetDelayedEventsLeeway: 'one' is not a number of seconds"),
        (
            "SetDelayedEventsLeeway(-1.0, 2)",
            "SetDelayedEventsLeeway: '-1.0' is not a length of time; expected 0 or more seconds, or infinity",
        ),
        (
            "SetDelayedEventsLeeway(nan, 2)",
            "SetDelayedEventsLeeway: 'nan' is not a length of time; expected 0 or more seconds, or infinity",
        ),
    ],
)
def test_a_wrong_one_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ControlError) as caught:
        parse_control(text)
    assert str(caught.value) == message
