"""One bucket in one micro-batch: state and packed rows in, state and tagged rows out.

Knows nothing of Spark. The engines do everything that has to do with queries. This file decides
what "now" is and which records are released; the others are held in the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.results.ledger import Account, ledger_table
from runtime.results.schemas import Results
from spark_backend.operator.bucket_state import BucketState, close_state, open_state
from spark_backend.operator.held_records import held_ledger, split_released
from spark_backend.operator.job_clock import JobClock, ReleaseLimits
from spark_backend.operator.measures import measures
from spark_backend.wire.clock import Clock
from spark_backend.wire.packed_rows import HOME, BucketInput, GroupRecords, Signal, unpack_row
from spark_backend.wire.partition_groups import PartitionGroup, count_uses
from spark_backend.wire.program import Program
from spark_backend.wire.reports import added_up, report_table
from spark_backend.wire.tagged_rows import Tag, TaggedRow, tagged_rows


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step leaves and gives.

    state: the bucket's new state
    rows: matches, outputs, discards, ledger changes and measures
    wake: ms after the micro-batch's timestamp when the next timer expires; None = no timer
    """

    state: bytes
    rows: tuple[TaggedRow, ...]
    wake: int | None


def run_step(
    program: Program,
    bucket: int,
    state: bytes | None,
    rows: Sequence[bytes],
    timestamp: int,
    *,
    signal: Signal | None = None,
) -> StepResult:
    """Process packed rows at `timestamp` (ms).

    state: what the step before left; None = the bucket's first step
    signal: asked of the bucket in addition to those in rows

    Raises InputError for a state of another version or number of buckets.
    """
    started = perf_counter()
    index = program.plan_index(bucket)
    groups, is_home = program.groups(index), bucket % program.buckets == HOME
    inputs = [unpack_row(row, program.plan(index)) for row in rows]
    signals = {signal, *(item.signal for item in inputs)}
    before = open_state(program, bucket, state)
    is_caught_up = not signals.isdisjoint({Signal.CATCH_UP, Signal.FLUSH})
    clock = _advanced(before.clock, inputs, timestamp, is_caught_up=is_caught_up)
    now = timestamp * 1000 if program.clock is Clock.PROCESSING else clock.now(timestamp, program.idle)
    records = [*before.held, *(part for item in inputs for part in item.records)]
    released, held = split_released(records, _limits(program, clock, signals, timestamp))
    after = replace(before, clock=clock, held=held)
    work = _Work(released, now, is_home, program.clock is Clock.PROCESSING, Signal.FLUSH in signals)
    results = [Results(ledger=item.ledger) for item in inputs]
    for group, engine in zip(groups, after.engines, strict=True):
        results.extend(work.results(group, engine))
    results.append(Results(ledger=held_ledger(groups, before.held, held, is_home=is_home)))
    tagged = [row for result in results for row in tagged_rows(result)]
    data = close_state(program, after).to_bytes()
    metrics = measures(program, bucket, after, timestamp, state_bytes=len(data), seconds=perf_counter() - started)
    return StepResult(data, (*tagged, *_reports(inputs), *metrics), _wake(program, after, timestamp))


def _reports(inputs: Sequence[BucketInput]) -> Iterator[TaggedRow]:
    reports = added_up(report for item in inputs for report in item.reports)
    if reports:
        yield TaggedRow(Tag.REPORT, "", report_table(reports))


def _advanced(clock: JobClock, inputs: Sequence[BucketInput], timestamp: int, *, is_caught_up: bool) -> JobClock:
    advanced = clock.advanced((item for row in inputs for item in row.progress), timestamp)
    return advanced.caught_up(timestamp) if is_caught_up else advanced


def _limits(program: Program, clock: JobClock, signals: set[Signal | None], timestamp: int) -> ReleaseLimits:
    if program.clock is Clock.PROCESSING or Signal.FLUSH in signals:
        return ReleaseLimits.up_to()
    if Signal.CATCH_UP in signals:
        return ReleaseLimits.up_to(clock.furthest)
    return clock.release_limits(timestamp, program.idle)


@dataclass(frozen=True, slots=True)
class _Work:
    """What the engines of a bucket are called with.

    now: the clock, µs; None = no record has arrived yet
    is_home: whether this bucket counts and reports what all buckets have in common
    arrive_now: whether records arrive at `now`, whatever they say
    flush: whether time advances afterwards until no timer is left
    """

    records: Sequence[GroupRecords]
    now: int | None
    is_home: bool
    arrive_now: bool
    flush: bool

    def results(self, group: PartitionGroup, engine: Engine) -> Iterator[Results]:
        copies = self._arrivals(group, is_copy=True)
        arrivals = Arrivals.concat([self._arrivals(group, is_copy=False), copies])
        if self.arrive_now:
            arrivals = _arriving_at(arrivals, self.now)
        yield _without_repeats(engine.process(arrivals, now=self.now), copies, group, is_home=self.is_home)
        if self.flush:
            yield engine.flush()

    def _arrivals(self, group: PartitionGroup, *, is_copy: bool) -> Arrivals:
        chosen = [item.arrivals for item in self.records if item.group == group.number and item.is_copy == is_copy]
        return Arrivals.concat(chosen) if chosen else Arrivals.empty(group.plan)


def _without_repeats(results: Results, copies: Arrivals, group: PartitionGroup, *, is_home: bool) -> Results:
    """Drop what another bucket or group reports, too, for records that every bucket has."""
    if not len(copies):
        return results
    if not is_home:
        counted = count_uses(copies, group.uses(copies), np.ones(len(copies), np.bool_))
        taken_back = Account({key: -count for key, count in counted.items()})
        results = replace(results, ledger=pa.concat_tables([results.ledger, ledger_table(taken_back)]))
    if is_home and group.number == 0:
        return results
    is_error = pc.and_(pc.equal(results.outputs.column("kind"), "error"), pc.equal(results.outputs.column("query"), ""))
    return replace(results, outputs=results.outputs.filter(pc.invert(is_error)))


def _arriving_at(arrivals: Arrivals, now: int | None) -> Arrivals:
    position = arrivals.table.schema.get_field_index("_arrival")
    times = pa.array(np.full(len(arrivals), now, np.int64))
    return Arrivals(arrivals.table.set_column(position, arrivals.table.schema.field(position), times))


def _wake(program: Program, state: BucketState, timestamp: int) -> int | None:
    """When time alone changes something next: a timer, or the release of held records."""
    if not program.needs_timeouts:
        return None
    times = [wake for engine in state.engines if (wake := engine.next_wake()) is not None]
    times += [int(item.arrivals.system("arrival").min()) + 1 for item in state.held]
    if not times:
        return None
    if program.clock is Clock.PROCESSING:
        due: int | None = -(-min(times) // 1000)
    else:
        due = state.clock.timestamp_of(min(times), program.idle)
    return None if due is None else max(1, due - timestamp)
