"""A bounded table through the engine."""

from __future__ import annotations

from runtime.replay.divided import results_with_steps
from runtime.replay.epochs import ChangeNotice, Epoch, Script, epoch_steps, replay_epochs
from runtime.replay.incremental import EngineCall, Incremental
from runtime.replay.loading import (
    events_by_source,
    files_to_read,
    plan_for_files,
    read_ordered,
    refuse_unknown,
    with_orderings,
)
from runtime.replay.records import (
    FileRecords,
    FileToRead,
    NotSortedError,
    Reading,
    Records,
    about_rows_of,
    arrived_by,
    concatenated_tables,
    source_names,
)
from runtime.replay.replay import measured_replay, read_all, replay_calls, replay_records, waiting_matches
from runtime.replay.stepping import Step
from runtime.replay.steps import are_quick, replay_steps

__all__ = [
    "ChangeNotice",
    "EngineCall",
    "Epoch",
    "FileRecords",
    "FileToRead",
    "Incremental",
    "NotSortedError",
    "Reading",
    "Records",
    "Script",
    "Step",
    "about_rows_of",
    "are_quick",
    "arrived_by",
    "concatenated_tables",
    "epoch_steps",
    "events_by_source",
    "files_to_read",
    "measured_replay",
    "plan_for_files",
    "read_all",
    "read_ordered",
    "refuse_unknown",
    "replay_calls",
    "replay_epochs",
    "replay_records",
    "replay_steps",
    "results_with_steps",
    "source_names",
    "waiting_matches",
    "with_orderings",
]
