"""Why a match came, or did not: computed from what the engine does with the records of a key."""

from __future__ import annotations

from runtime.why.answers import (
    Awaited,
    Candidate,
    Change,
    Checked,
    EventAt,
    Explanation,
    Other,
    Reason,
    Side,
    Status,
    plain,
)
from runtime.why.asking import Asking
from runtime.why.funnel import Funnel, FunnelStep, Stop, funnel_of
from runtime.why.history import Ending
from runtime.why.reasons import short_time
from runtime.why.records import Table
from runtime.why.text import HIDDEN, Hidden, Why

__all__ = [
    "HIDDEN",
    "Asking",
    "Awaited",
    "Candidate",
    "Change",
    "Checked",
    "Ending",
    "EventAt",
    "Explanation",
    "Funnel",
    "FunnelStep",
    "Hidden",
    "Other",
    "Reason",
    "Side",
    "Status",
    "Stop",
    "Table",
    "Why",
    "funnel_of",
    "plain",
    "short_time",
]
