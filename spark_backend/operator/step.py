"""One bucket in one micro-batch: state and packed rows in, state and tagged rows out.

Knows nothing of Spark. The engines do everything that has to do with queries. This file decides
what "now" is and which records are released; the others are held in the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.instants import NEVER, NO_TIME
from runtime.replay.divided import with_steps
from runtime.results.discards import refused_file
from runtime.results.ledger import Account, ledger_table
from runtime.results.schemas import OUTPUT_SCHEMA, Results
from spark_backend.operator.bucket_state import BucketState, close_state, open_state
from spark_backend.operator.commands import placed, processed, taken
from spark_backend.operator.control_rows import control_rows
from spark_backend.operator.epoch_records import (
    Pieces,
    QueriesAt,
    followed,
    new_notices,
    passed_over,
    without_silent,
)
from spark_backend.operator.far_records import without_far_records
from spark_backend.operator.forgetting import forget_keys
from spark_backend.operator.group_clock import ReleaseLimits
from spark_backend.operator.held_records import held_ledger, split_released
from spark_backend.operator.job_clock import JobClock
from spark_backend.operator.joining import with_histories
from spark_backend.operator.live_changes import AskedChanges
from spark_backend.operator.measures import measures
from spark_backend.operator.partition_order import in_partition_order
from spark_backend.wire.clock import Clock
from spark_backend.wire.epochs import Stage
from spark_backend.wire.packed_rows import (
    COMMANDS,
    CONTROL,
    HOME,
    BucketInput,
    GroupRecords,
    RefusedFile,
    Signal,
    unpack_row,
)
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
    """Process packed rows at `timestamp` (ms).

    state: what the step before left; None = the bucket's first step
    signal: asked of the bucket in addition to those in rows

    Raises InputError for a state of another version or number of buckets.
    """
    started = perf_counter()
    index = program.plan_index(bucket)
    groups, is_home = program.groups(index), bucket % program.buckets == HOME
    read = sorted((unpack_row(row, program.plan(index)) for row in rows), key=_first)
    near = [without_far_records(program, groups, row, timestamp, is_home=is_home) for row in read]
    changes = AskedChanges.of(program, [row for row, _ in near])
    inputs = changes.inputs
    signals = {signal, *(item.signal for item in inputs)}
    before, joined = with_histories(program, bucket, open_state(program, bucket, state), is_new=state is None)
    clock = _advanced(program, before.clock, inputs, signals, timestamp)
    turns = [_turn(program, clock, group, signals, timestamp) for group in groups]
    queries_at = QueriesAt.of(program, groups)
    own_bucket = bucket % program.buckets
    forgotten = forget_keys(program.plan(index), groups, before, inputs, own_bucket, program.buckets, queries_at)
    records = [*forgotten.held, *_read(program, before.clock, placed(inputs, clock))]
    released, held = split_released(records, [turn.limits for turn in turns], program.topic_sources)
    after = replace(before, clock=clock, held=queries_at.counted(held))
    is_now, has_ended = program.clock is Clock.PROCESSING, Signal.FLUSH in signals
    work = _Work(released, turns, is_home, is_now, has_ended, program.has_changes)
    answers = [*(_answers(program, index, inputs, after, work) if is_home else ()), *forgotten.rows()]
    answers.extend(changes.rows() if is_home else ())
    results = [Results(ledger=item.ledger) for item in inputs]
    results += [_refused(file, program.plan(index)) for item in inputs for file in item.refused]
    results.extend(result for _, refused in near for result in refused)
    after, own = _worked(program, index, after, work, is_home=is_home)
    results.extend(own)
    results += [Results(ledger=counts) for counts in (forgotten.ledger, *joined)]
    results.append(Results(ledger=held_ledger(queries_at, before.held, after.held, is_home=is_home)))
    tagged = [row for result in results for row in tagged_rows(result)]
    data = close_state(program, after).to_bytes()
    newest = max((item.newest for item in inputs), default=NO_TIME)
    metrics = measures(
        program, bucket, after, timestamp, newest, state_bytes=len(data), seconds=perf_counter() - started
    )
    is_one_of_all = any(item.progress or item.signal or item.commands or item.unread for item in inputs)
    wake = _wake(program, groups, after, timestamp)
    return StepResult(data, (*tagged, *_reports(inputs), *answers, *metrics), wake, is_one_of_all)


def _worked(
    program: Program, index: int, state: BucketState, work: _Work, *, is_home: bool
) -> tuple[BucketState, list[Results]]:
    """The state after the engines have processed what is released, and what they give."""
    results: list[Results] = []
    if not program.epochs:
        for group, engine in zip(program.groups(index), state.engines, strict=True):
            results.extend(work.results(group, engine))
        return state, results
    engines, epochs = [], []
    for group, engine, epoch in zip(program.groups(index), state.engines, state.epochs, strict=True):
        last, now_in, own = _through_stages(program, group, engine, epoch, work)
        engines.append(last)
        epochs.append(now_in)
        results += own + passed_over(program, group, work.passed_over(group))
    reported = state.reported
    if is_home:
        reported, rows = new_notices(program, reported, min(epochs), has_ended=work.flush, begin=work.first_arrival)
        results += rows
    return replace(state, engines=tuple(engines), epochs=tuple(epochs), reported=reported), results


def _through_stages(
    program: Program, group: PartitionGroup, engine: Engine, epoch: int, work: _Work
) -> tuple[Engine, int, list[Results]]:
    """The engine of a group and its epoch at the end of a step, and what it gives."""
    results: list[Results] = []
    count = 0
    for stage, pieces, limit, next_ in work.stages(program, group, epoch):
        epoch = stage.number
        results.append(Results(ledger=pieces.ledger))
        own = stage.groups[group.number]
        given = work.of_stage(own, engine, pieces, limit, is_last=next_ is None)
        steps = np.arange(count, count + len(pieces.all))
        given = (with_steps(item, steps, 0) for item in given) if count else given
        results += (without_silent(result, own.plan, stage.silent) for result in given)
        count += len(steps)
        if next_ is not None:
            engine, ended = followed(engine, next_, group.number)
            results.append(Results(ledger=ended))
    return engine, epoch, results


def _first(row: BucketInput) -> list[tuple[tuple[int, int], str]]:
    """What batches are ordered by, because Spark brings them in any order."""
    return sorted((item.first, item.source) for item in row.progress)


def _answers(
    program: Program, index: int, inputs: Sequence[BucketInput], state: BucketState, work: _Work
) -> list[TaggedRow]:
    """Answers to commands, before the engines process their control events."""
    groups = program.groups(index)
    answers = taken(inputs, state.clock, program.plan(index), len(groups), program.buckets)
    for group, engine in zip(groups, state.engines, strict=True):
        answers += processed(group, len(groups), work.controls(group), engine.clock)
    return answers


def _reports(inputs: Sequence[BucketInput]) -> Iterator[TaggedRow]:
    reports = added_up(report for item in inputs for report in item.reports)
    if reports:
        yield TaggedRow(Tag.REPORT, "", report_table(reports))


def _refused(file: RefusedFile, plan: Plan) -> Results:
    """A file that is not a table: a discarded row and an error."""
    text = f"the file '{file.source}' is discarded: {file.reason}"
    error = pa.Table.from_pylist(
        [{"kind": "error", "text": text, "query": "", "instance": "", "key": "{}", "_step": -1, "_rank": 0}],
        schema=OUTPUT_SCHEMA,
    )
    return Results(outputs=error, discarded=refused_file(plan, file.source, file.reason))


def _advanced(
    program: Program,
    clock: JobClock,
    inputs: Sequence[BucketInput],
    signals: set[Signal | None],
    timestamp: int,
) -> JobClock:
    expecting = clock.expecting((source.name for source in program.sources), timestamp)
    unread = {source: files for row in inputs for source, files in row.unread.items()}
    advanced = expecting.advanced((item for row in inputs for item in row.progress), timestamp, unread)
    return advanced.resumed(timestamp) if Signal.START in signals else advanced


def _read(program: Program, clock: JobClock, inputs: Sequence[BucketInput]) -> list[GroupRecords]:
    """The records of the micro-batch; those of a complete input are taken in order of arrival."""
    if program.is_bounded or program.clock is Clock.PROCESSING:
        return [part for item in inputs for part in item.records]
    return in_partition_order(clock, inputs, program.topic_sources, program.file_sources)


@dataclass(frozen=True, slots=True)
class _Turn:
    """How far a partition group goes in a step.

    now: its clock, µs; None = it has not begun
    without_idle: its clock if only ordering policies let time advance without silent sources, µs
    limits: which records are released
    """

    now: int | None
    without_idle: int | None
    limits: ReleaseLimits


def _turn(
    program: Program, clock: JobClock, group: PartitionGroup, signals: set[Signal | None], timestamp: int
) -> _Turn:
    if program.clock is Clock.PROCESSING:
        return _Turn(timestamp * 1000, timestamp * 1000, ReleaseLimits.up_to())
    own = clock.of(group.sources, timestamp, program.idle_times)
    if Signal.FLUSH in signals:
        return _Turn(own.furthest, own.furthest, ReleaseLimits.up_to())
    if Signal.CATCH_UP in signals:
        return _Turn(own.furthest, own.furthest, ReleaseLimits.up_to(NO_TIME if own.furthest is None else own.furthest))
    without_idle = clock.of(group.sources, timestamp, program.policies_idle_times).now
    return _Turn(own.now, without_idle, own.limits())


@dataclass(frozen=True, slots=True)
class _Work:
    """What the engines of a bucket are called with.

    turns: per partition group
    is_home: whether this bucket counts and reports what all buckets have in common
    arrive_now: whether records arrive at `now`, whatever they say
    flush: whether time advances afterwards until no timer is left
    runs_all: whether time goes through all epochs before it ends
    """

    records: Sequence[GroupRecords]
    turns: Sequence[_Turn]
    is_home: bool
    arrive_now: bool
    flush: bool
    runs_all: bool = False

    def results(self, group: PartitionGroup, engine: Engine) -> Iterator[Results]:
        return self.of_stage(group, engine, self.pieces(group, self.records), NEVER, is_last=True)

    def of_stage(
        self, group: PartitionGroup, engine: Engine, pieces: Pieces, limit: int, *, is_last: bool
    ) -> Iterator[Results]:
        """What an engine gives of records, while the queries of a group run.

        limit: time advances no further, µs
        """
        turn = self.turns[group.number]
        reached = limit if self.flush and self.runs_all and not is_last else turn.now
        now = None if turn.now is None or reached is None else min(reached, limit)
        arrivals = pieces.all
        if self.arrive_now:
            arrivals = _arriving_at(arrivals, now)
        if self.is_home:
            yield Results(outputs=control_rows(group.plan, pieces.controls, engine.clock))
        without_idle = NO_TIME if turn.without_idle is None else min(turn.without_idle, limit)
        results = engine.process(arrivals, now=now, without_idle=without_idle)
        yield _without_repeats(results, pieces.copies, group, is_home=self.is_home)
        if self.flush and is_last:
            yield engine.flush()

    def stages(
        self, program: Program, group: PartitionGroup, epoch: int
    ) -> Iterator[tuple[Stage, Pieces, int, Stage | None]]:
        """The stages that a group goes through, each with its records, the limit of its time and
        the stage that follows at once."""
        turn = self.turns[group.number]
        pieces = self.pieces(group, [item for item in self.records if not self._passes_over(group, item)])
        if self.arrive_now:
            pieces = pieces.changed(lambda arrivals: _arriving_at(arrivals, turn.now))
        stages = program.stages
        place = next(number for number, stage in enumerate(stages) if stage.number == epoch)
        while True:
            stage = stages[place]
            next_ = stages[place + 1] if place + 1 < len(stages) else None
            if next_ is None or next_.begins is None or not self._is_past(next_, turn.now, pieces):
                yield stage, pieces.of_stage(stage, group.number), NEVER, None
                return
            early, pieces = pieces.split(next_)
            yield stage, early.of_stage(stage, group.number), next_.begins, next_
            place += 1

    def _is_past(self, next_: Stage, now: int | None, pieces: Pieces) -> bool:
        if now is None or next_.begins is None:
            return False
        if pieces.have_begun(next_) or (self.flush and self.runs_all):
            return True
        return now > next_.begins or (self.flush and now >= next_.begins)

    @property
    def first_arrival(self) -> int | None:
        """The earliest arrival of the records, else where the sources have been read to, µs."""
        arrivals = [item.arrivals.system("arrival") for item in self.records if len(item.arrivals)]
        if arrivals:
            return min(int(own.min()) for own in arrivals)
        return min((turn.now for turn in self.turns if turn.now is not None), default=None)

    def passed_over(self, group: PartitionGroup) -> list[GroupRecords]:
        """The released records of a group that cannot concern any of its queries."""
        return [item for item in self.records if item.group == group.number and self._passes_over(group, item)]

    def _passes_over(self, group: PartitionGroup, item: GroupRecords) -> bool:
        return not (item.is_copy or item.source in (CONTROL, COMMANDS) or group.meets(item.source))

    def pieces(self, group: PartitionGroup, records: Sequence[GroupRecords]) -> Pieces:
        """Released records, as a group takes them."""
        own = [item for item in records if not item.is_copy]
        return Pieces(
            _together(group, (item for item in own if item.refuses)),
            _together(group, (item for item in own if not item.refuses)),
            _together(group, (item for item in records if item.is_copy)),
            self.controls(group),
        )

    def controls(self, group: PartitionGroup) -> Arrivals:
        """The control events of a group."""
        return _together(group, (item for item in self.records if item.source in (CONTROL, COMMANDS)))


def _together(group: PartitionGroup, records: Iterable[GroupRecords]) -> Arrivals:
    chosen = [item.arrivals for item in records if item.group == group.number]
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


def _wake(program: Program, groups: Sequence[PartitionGroup], state: BucketState, timestamp: int) -> int | None:
    """When time alone changes something next: a timer, or the release of held records.

    Silence moves the clock. So that it is one clock for all buckets, whatever they hold, all are
    called in the same micro-batches.
    """
    if not program.needs_timeouts:
        return None
    if program.clock is Clock.PROCESSING:
        times = [wake for engine in state.engines if (wake := engine.next_wake()) is not None]
    else:
        clocks = (state.clock.of(group.sources, timestamp, program.idle_times) for group in groups)
        times = [moment for clock in clocks if (moment := clock.next_change()) is not None]
    return max(1, -(-min(times) // 1000) - timestamp) if times else None
