"""The answer to a single event: found in Python, because a call of the engine costs more."""

from __future__ import annotations

from runtime.single_events.events import CallResults, EarlyResults, SingleEvents, can_foresee
from runtime.single_events.windows import FoundMatch, SingleEvent, UnforeseenError

__all__ = [
    "CallResults",
    "EarlyResults",
    "FoundMatch",
    "SingleEvent",
    "SingleEvents",
    "UnforeseenError",
    "can_foresee",
]
