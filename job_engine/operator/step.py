"""One bucket in one micro-batch: state and packed rows in, state and tagged rows out.

Knows of no driver. The engines do everything that has to do with queries. The stages around
them decide what "now" is and which records are released; the others are held in the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from job_engine.clock import monotonic
from job_engine.operator.bucket_state import BucketState, close_state, open_state
from job_engine.operator.joining import with_histories
from job_engine.operator.measures import measures
from job_engine.operator.ordering import order
from job_engine.operator.processing import Processed, process
from job_engine.operator.reading import ReadRows, Visit, read
from job_engine.operator.releasing import Released, release
from job_engine.wire.clock import Clock
from job_engine.wire.packed_rows import Signal
from job_engine.wire.program import Program
from job_engine.wire.reports import added_up, report_table
from job_engine.wire.tagged_rows import Tag, TaggedRow, tagged_rows
from runtime.results.schemas import Results


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step leaves and gives.

    state: the bucket's new state
    rows: matches, outputs, discards, ledger changes and measures
    wake: ms after the micro-batch's timestamp when the next timer expires; None = no timer
    is_one_of_all: whether all buckets have a step in this micro-batch, because all have been sent
        something
    """

    state: bytes
    rows: tuple[TaggedRow, ...]
    wake: int | None
    is_one_of_all: bool


def run_step(
    program: Program,
    bucket: int,
    state: bytes | None,
    rows: Sequence[bytes],
    timestamp: int,
    *,
    signal: Signal | None = None,
) -> StepResult:
    """Process packed rows at `timestamp` (ms): read, order, release, process, report.

    state: what the step before left; None = the bucket's first step
    signal: asked of the bucket in addition to those in rows

    Raises InputError for a state of another version or number of buckets.
    """
    started = monotonic()
    visit = Visit.of(program, bucket, timestamp)
    found = read(visit, rows, signal)
    before, joined = with_histories(program, bucket, open_state(program, bucket, state), is_new=state is None)
    ordered = order(visit, before.clock, found)
    released = release(visit, before, found.inputs, ordered)
    processed = process(visit, found, ordered.turns, released)
    return report(visit, found, joined, released, processed, started)


def report(
    visit: Visit,
    found: ReadRows,
    joined: Sequence[pa.Table],
    released: Released,
    processed: Processed,
    started: float,
) -> StepResult:
    """The state as bytes, and what was found as tagged rows.

    joined: changes of the ledger by histories that the bucket has taken over
    started: when the step began, as `monotonic` tells it
    """
    counts = (Results(ledger=table) for table in joined)
    results = (*found.results, *processed.results, *counts, *released.results)
    tagged = [row for result in results for row in tagged_rows(result)]
    answers = [*processed.answers, *released.answers, *(found.asked_changes() if visit.is_home else ())]
    state = close_state(visit.program, processed.state).to_bytes()
    metrics = measures(visit, processed.state, found.newest, state_bytes=len(state), seconds=monotonic() - started)
    is_one_of_all = any(item.progress or item.signal or item.commands or item.unread for item in found.inputs)
    rows = (*tagged, *_reports(found), *answers, *metrics)
    return StepResult(state, rows, _wake(visit, processed.state), is_one_of_all)


def _reports(found: ReadRows) -> Iterator[TaggedRow]:
    reports = added_up(item for row in found.inputs for item in row.reports)
    if reports:
        yield TaggedRow(Tag.REPORT, "", report_table(reports))


def _wake(visit: Visit, state: BucketState) -> int | None:
    """When time alone changes something next: a timer, or the release of held records.

    Silence moves the clock. So that it is one clock for all buckets, whatever they hold, all are
    called in the same micro-batches.
    """
    program, timestamp = visit.program, visit.timestamp
    if not program.needs_timeouts:
        return None
    if program.clock is Clock.PROCESSING:
        times = [wake for engine in state.engines if (wake := engine.next_wake()) is not None]
    else:
        clocks = (state.clock.of(group.sources, timestamp, program.idle_times) for group in visit.groups)
        times = [moment for clock in clocks if (moment := clock.next_change()) is not None]
    return max(1, -(-min(times) // 1000) - timestamp) if times else None
