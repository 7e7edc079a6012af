"""A replay step by step: one step per record, and one per key and expired timer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from querylang.plan.model import Plan
from runtime.replay.chunked_steps import ChunkedSteps
from runtime.replay.file_records import FileRecords
from runtime.replay.records import Records
from runtime.replay.step_by_step import StepByStep
from runtime.replay.step_times import have_own_time
from runtime.replay.stepping import Step
from runtime.results.schemas import Results


def replay_steps(
    plan: Plan,
    records: Records | FileRecords,
    *,
    until: int | None = None,
    flush: bool = True,
    matcher: str = "auto",
    known: Results | None = None,
    is_for_people: bool = True,
) -> Iterator[Step]:
    """All steps of a replay; `until` and `flush` as in `replay_records`.

    known: the results of this replay; None = the engine finds them, some records at a time
    is_for_people: as of `Stepping`
    """
    whole = records if isinstance(records, Records) else records.whole()
    own = whole.until(until)
    if not are_quick(plan, own):
        return StepByStep(plan, own, matcher, is_for_people=is_for_people).steps(until, flush=flush)
    return ChunkedSteps(plan, own, matcher, known, is_for_people=is_for_people).steps(until, flush=flush)


def are_quick(plan: Plan, records: Records | FileRecords) -> bool:
    """Whether the steps are found for many records at once."""
    return have_own_time(plan, records.arrivals.table, records.arrivals.system("kind").astype(np.int64))
