"""Control events: rows of the stream that change how the engine runs.

Takes the event's text in Apama's event syntax, with or without the package; gives a typed control or a `ControlError`
that says what is wrong. This release knows `SetDelayedEventsLeeway(delayLeeway, reorderBuffer)` in seconds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

NEVER = 4 * 10**18
"""A moment or length, in microseconds, beyond every time that can be written; "for ever" in admission."""

_CALL = re.compile(r"\s*(?P<name>[A-Za-z_][\w.]*)\s*\((?P<arguments>.*)\)\s*;?\s*\Z", re.DOTALL)
_KNOWN = "SetDelayedEventsLeeway"


class ControlError(ValueError):
    """A control event that changes nothing; the message says what was wrong with it."""


@dataclass(frozen=True, slots=True)
class SetDelayedEventsLeeway:
    """From its arrival on, for every partition: both lengths in microseconds, NEVER for infinity."""

    leeway: int
    reorder: int


def parse_control(text: str) -> SetDelayedEventsLeeway:
    """The control event written in `text`; raises ControlError."""
    call = _CALL.match(text)
    if call is None:
        raise ControlError(f"{text!r} is not an event; expected {_KNOWN}(delayLeeway, reorderBuffer)")
    name = call["name"].rpartition(".")[2]
    if name != _KNOWN:
        raise ControlError(f"control event {name!r} is not known; expected {_KNOWN}(delayLeeway, reorderBuffer)")
    arguments = [argument.strip() for argument in call["arguments"].split(",")]
    if len(arguments) != 2:
        raise ControlError(f"{_KNOWN} takes two numbers of seconds, delayLeeway and reorderBuffer: {text!r}")
    leeway, reorder = (_microseconds(argument) for argument in arguments)
    return SetDelayedEventsLeeway(leeway, reorder)


def _microseconds(text: str) -> int:
    if text in ("infinity", "float.INFINITY"):
        return NEVER
    try:
        seconds = float(text)
    except ValueError:
        raise ControlError(f"{_KNOWN}: {text!r} is not a number of seconds") from None
    if math.isnan(seconds) or seconds < 0:
        raise ControlError(f"{_KNOWN}: {text!r} is not a length of time; expected 0 or more seconds, or infinity")
    return min(NEVER, round(seconds * 1_000_000)) if math.isfinite(seconds) else NEVER
