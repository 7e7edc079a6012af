"""One plan at work: state, calls, metrics."""

from __future__ import annotations

from runtime.engine.chains import Crossing
from runtime.engine.division import (
    NOWHERE,
    JoinRule,
    by_rules,
    divided_snapshot,
    equal_in_all,
    snapshot_beside,
    snapshot_of_queries,
    united_snapshot,
)
from runtime.engine.engine import Engine, Rounds, StoredEvents, only_result
from runtime.engine.event_marks import are_numbered
from runtime.engine.kept_states import KeyContents
from runtime.engine.metrics import metrics_table, output_events
from runtime.engine.paths import RoutedRecords
from runtime.engine.query_state import QueryParts
from runtime.engine.snapshot import STATE_VERSION, StateError

__all__ = [
    "NOWHERE",
    "STATE_VERSION",
    "Crossing",
    "Engine",
    "JoinRule",
    "KeyContents",
    "QueryParts",
    "Rounds",
    "RoutedRecords",
    "StateError",
    "StoredEvents",
    "are_numbered",
    "by_rules",
    "divided_snapshot",
    "equal_in_all",
    "metrics_table",
    "only_result",
    "output_events",
    "snapshot_beside",
    "snapshot_of_queries",
    "united_snapshot",
]
