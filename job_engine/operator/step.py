"""One bucket in one micro-batch: state and packed rows in, state and tagged rows out.

Knows of no driver. The engines do everything that has to do with queries. The stages around
them decide what "now" is and which records are released; the others are held in the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from job_engine.clock import monotonic
from job_engine.operator.bucket_state import BucketState, close_state, open_state
from job_engine.operator.joining import with_histories
from job_engine.operator.measures import measures
from job_engine.operator.ordering import order
from job_engine.operator.processing import Processed, process
from job_engine.operator.reading import ReadRows, Visit, read
from job_engine.operator.releasing import Released, release
from job_engine.wire.clock_sources import Clock
from job_engine.wire.packed_rows import GroupRecords, Signal
from job_engine.wire.partition_groups import Exchange, alone
from job_engine.wire.program import Program
from job_engine.wire.reports import added_up, report_table
from job_engine.wire.tagged_rows import Tag, TaggedRow, tagged_rows
from querylang.dataclass import dataclass, replace
from runtime.instants import NO_TIME
from runtime.results.schemas import Results


@dataclass(frozen=True, slots=True)
class OpenBucket:
    """A bucket whose engines stay open from step to step.

    state: it changes in place while a step runs; a step that fails leaves it useless
    joined: changes of the ledger by histories that it has taken over; its next step reports them
    timestamp: of its last step, ms
    newest: the furthest source time of the records of its steps since it was measured, µs; NO_TIME
        = none has one
    seconds: time spent in those steps
    """

    state: BucketState
    joined: tuple[pa.Table, ...] = ()
    timestamp: int = 0
    newest: int = NO_TIME
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class OpenStep:
    """What a step over an open bucket leaves and gives; fields as in `StepResult`."""

    bucket: OpenBucket
    rows: tuple[TaggedRow, ...]
    wake: int | None
    is_one_of_all: bool


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

    No queries of the program may cross (`run_open_step`).

    Raises InputError for a state of another version or number of buckets.
    """
    started = monotonic()
    opened = alone(open_bucket(program, bucket, state))
    work = alone(_work(program, bucket, opened.state, rows, timestamp, signal))
    data = close_state(program, bucket, work.processed.state).to_bytes()
    tagged = report(work, opened.joined)
    seconds = monotonic() - started
    metrics = measures(work.visit, work.processed.state, work.found.newest, state_bytes=len(data), seconds=seconds)
    return StepResult(data, (*tagged, *metrics), work.wake, work.is_one_of_all)


def open_bucket(program: Program, bucket: int, state: bytes | None) -> Exchange[OpenBucket]:
    """A bucket with running engines; `state`, and what is raised: as of `run_step`.

    If queries of the program cross, all buckets open at the same time, in rounds.
    """
    before = open_state(program, bucket, state)
    opened, joined = yield from with_histories(program, bucket, before, is_new=state is None)
    return OpenBucket(opened, tuple(joined))


def close_bucket(program: Program, number: int, bucket: OpenBucket) -> bytes:
    """What `open_bucket` opens again; the bucket itself stays open."""
    return close_state(program, number, bucket.state).to_bytes()


def run_open_step(
    program: Program,
    bucket: int,
    opened: OpenBucket,
    rows: Sequence[bytes],
    timestamp: int,
    signal: Signal | None = None,
) -> Exchange[OpenStep]:
    """As `run_step`, for a bucket that stays open, and that is not measured: that may take long.

    If queries of the program cross, all buckets have their steps at the same time, in rounds.
    """
    started = monotonic()
    work = yield from _work(program, bucket, opened.state, rows, timestamp, signal)
    tagged = report(work, opened.joined)
    newest, seconds = max(opened.newest, work.found.newest), opened.seconds + monotonic() - started
    left = OpenBucket(work.processed.state, (), timestamp, newest, seconds)
    return OpenStep(left, tagged, work.wake, work.is_one_of_all)


@dataclass(frozen=True, slots=True)
class SeenStep:
    """What a step over an open bucket leaves, and what its engines have got.

    records: by partition group, in the order in which its engine has got them
    clocks: by partition group, where its engine is in time, µs; None = at no time yet
    matches: by query title
    outputs: what matches have written
    """

    bucket: OpenBucket
    records: tuple[tuple[GroupRecords, ...], ...]
    clocks: tuple[int | None, ...]
    matches: tuple[Mapping[str, pa.Table], ...]
    outputs: tuple[pa.Table, ...]


def run_seen_step(
    program: Program, bucket: int, opened: OpenBucket, rows: Sequence[bytes], timestamp: int, signal: Signal | None
) -> SeenStep:
    """As `run_open_step`, for who wants to see the records. No queries may cross."""
    work = alone(_work(program, bucket, opened.state, rows, timestamp, signal))
    state = work.processed.state
    return SeenStep(
        OpenBucket(state),
        tuple(
            tuple(item for item in work.released.records if item.group == group.number and len(item.arrivals))
            for group in work.visit.groups
        ),
        tuple(engine.clock for engine in state.engines),
        tuple(results.matches for results in work.processed.results),
        tuple(results.outputs for results in work.processed.results),
    )


def measured(program: Program, bucket: int, opened: OpenBucket, state_bytes: int) -> tuple[OpenBucket, list[TaggedRow]]:
    """The measures of a bucket since it was measured last; `state_bytes`: as of `measures`."""
    visit = Visit.of(program, bucket, opened.timestamp)
    rows = measures(visit, opened.state, opened.newest, state_bytes=state_bytes, seconds=opened.seconds)
    return replace(opened, newest=NO_TIME, seconds=0.0), rows


@dataclass(frozen=True, slots=True)
class _Work:
    """What the stages of a step have found."""

    visit: Visit
    found: ReadRows
    released: Released
    processed: Processed

    @property
    def wake(self) -> int | None:
        return _wake(self.visit, self.processed.state)

    @property
    def is_one_of_all(self) -> bool:
        return any(item.progress or item.signal or item.commands or item.unread for item in self.found.inputs)


def _work(
    program: Program, bucket: int, before: BucketState, rows: Sequence[bytes], timestamp: int, signal: Signal | None
) -> Exchange[_Work]:
    """The stages between the state before and the report."""
    visit = Visit.of(program, bucket, timestamp)
    found = read(visit, rows, signal)
    ordered = order(visit, before.clock, found)
    released = release(visit, before, found.inputs, ordered)
    processed = yield from process(visit, found, ordered.turns, released)
    return _Work(visit, found, released, processed)


def report(work: _Work, joined: Sequence[pa.Table]) -> tuple[TaggedRow, ...]:
    """What was found, as tagged rows.

    joined: changes of the ledger by histories that the bucket has taken over
    """
    visit, found, released, processed = work.visit, work.found, work.released, work.processed
    counts = (Results(ledger=table) for table in joined)
    results = (*found.results, *processed.results, *counts, *released.results)
    tagged = [row for result in results for row in tagged_rows(result)]
    answers = [*processed.answers, *released.answers, *(found.asked_changes() if visit.is_home else ())]
    return (*tagged, *_reports(found), *answers)


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
