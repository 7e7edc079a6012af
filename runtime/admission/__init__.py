"""Which records count, with which time, and when they are released in order."""

from __future__ import annotations

from runtime.admission.arrays import (
    BoundRule,
    KeyedRows,
    Punctuation,
    Ready,
    Released,
    RowOrigin,
    Timelines,
    Timers,
    Waited,
)
from runtime.admission.filter_index import Filtered, FilterIndex, FoundRecords, lookup_of
from runtime.admission.key_times import KeyTimes, Lengths, Release
from runtime.admission.per_key import Admitted, admit
from runtime.admission.rules import ADMITTED, NO_MOVES, Group, Moves, Outcome, after_admission, reason_words
from runtime.admission.selection import (
    Selection,
    Selector,
    furthest_time,
    interval_ends,
    of_layers,
    selectors_of,
    shared_selectors,
)
from runtime.admission.shared_clock import CLOCK_SCHEMA, ClocksRun, QueryClocks, no_clocks_run
from runtime.admission.timelines import NewRecords

__all__ = [
    "ADMITTED",
    "CLOCK_SCHEMA",
    "NO_MOVES",
    "Admitted",
    "BoundRule",
    "ClocksRun",
    "FilterIndex",
    "Filtered",
    "FoundRecords",
    "Group",
    "KeyTimes",
    "KeyedRows",
    "Lengths",
    "Moves",
    "NewRecords",
    "Outcome",
    "Punctuation",
    "QueryClocks",
    "Ready",
    "Release",
    "Released",
    "RowOrigin",
    "Selection",
    "Selector",
    "Timelines",
    "Timers",
    "Waited",
    "admit",
    "after_admission",
    "furthest_time",
    "interval_ends",
    "lookup_of",
    "no_clocks_run",
    "of_layers",
    "reason_words",
    "selectors_of",
    "shared_selectors",
]
