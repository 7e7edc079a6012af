"""Process released records: the engines of a bucket, through the epochs of its queries."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from job_engine.operator.bucket_state import BucketState
from job_engine.operator.epoch_records import Pieces, followed, new_notices, passed_over, without_silent
from job_engine.operator.ordering import Turn, commands_processed, commands_taken, furthest_read
from job_engine.operator.reading import ReadRows, Visit
from job_engine.operator.releasing import Released
from job_engine.wire.clock_sources import Clock
from job_engine.wire.packed_rows import COMMANDS, CONTROL, BucketInput, GroupRecords, Signal
from job_engine.wire.partition_groups import Exchange, Parcel, PartitionGroup, Routing, count_uses
from job_engine.wire.program import Stage
from job_engine.wire.tagged_rows import TaggedRow
from querylang.dataclass import dataclass, replace
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.engine import Engine, Rounds, RoutedRecords, only_result
from runtime.instants import EARLIEST, NEVER, NO_TIME
from runtime.reading import ControlEvents
from runtime.replay import results_with_steps
from runtime.results.ledger import Account, ledger_table
from runtime.results.schemas import NO_OUTPUTS, OUTPUT_SCHEMA, TIMESTAMP, Results

Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class Processed:
    """What the engines give.

    state: behind the step
    results: matches, outputs, discards and counts
    answers: to commands
    """

    state: BucketState
    results: tuple[Results, ...]
    answers: tuple[TaggedRow, ...]


GroupRounds = Generator[tuple[Routing, RoutedRecords | None], Sequence[RoutedRecords], Given]
"""The same of one group: with the routing of its stage what leaves its engine, then what comes."""


def process(visit: Visit, rows: ReadRows, turns: Sequence[Turn], released: Released) -> Exchange[Processed]:
    """Let the engines of a bucket process what is released; `turns`: per partition group."""
    work = _Work(visit, released.records, turns, Signal.FLUSH in rows.signals)
    # bucket HOME answers for all, before the engines process control events of commands
    answers = _answers(visit, rows.inputs, released.state, work) if visit.is_home else []
    run = _with_epochs if visit.program.epochs else _without_epochs
    state, results = yield from run(released.state, work)
    return Processed(state, tuple(results), tuple(answers))


def _answers(visit: Visit, inputs: Sequence[BucketInput], state: BucketState, work: _Work) -> list[TaggedRow]:
    groups = visit.groups
    answers = commands_taken(inputs, state.clock, visit.plan, len(groups), visit.program.buckets)
    for group, engine in zip(groups, state.engines, strict=True):
        answers += commands_processed(group, len(groups), work.controls(group), engine.clock)
    return answers


def _without_epochs(state: BucketState, work: _Work) -> Exchange[tuple[BucketState, list[Results]]]:
    program = work.visit.program
    routing = program.routing(program.plan_index(work.visit.bucket))
    each = zip(work.visit.groups, state.engines, strict=True)
    found = yield from in_rounds(
        program.buckets, routing, [work.results(group, engine, routing) for group, engine in each]
    )
    results = [result for own in found for result in own]
    for group in work.visit.groups:
        results += passed_over(program, group, work.passed_over(group))
    return state, results


def _with_epochs(state: BucketState, work: _Work) -> Exchange[tuple[BucketState, list[Results]]]:
    """The state after its engines have gone through the epochs, and what they give."""
    program, groups = work.visit.program, work.visit.groups
    each = zip(groups, state.engines, state.epochs, strict=True)
    stages = [_through_stages(group, engine, epoch, work) for group, engine, epoch in each]
    found = yield from in_rounds(program.buckets, program.routing(), stages)
    engines, epochs = [engine for engine, *_ in found], [epoch for _, epoch, _ in found]
    results: list[Results] = []
    for group, (*_, own) in zip(groups, found, strict=True):
        results += own + passed_over(program, group, work.passed_over(group))
    reported = state.reported
    if work.visit.is_home:
        reported, rows = new_notices(program, reported, min(epochs), has_ended=work.flush, begin=work.begin(state))
        results += rows
    return replace(state, engines=tuple(engines), epochs=tuple(epochs), reported=reported), results


def in_rounds(buckets: int, routing: Routing | None, work: Sequence[GroupRounds[Given]]) -> Exchange[list[Given]]:
    """What groups of a bucket give; those that cross work side by side.

    work: by group
    """
    taking_part = () if routing is None else routing.groups
    found = {number: only_result(own) for number, own in enumerate(work) if number not in taking_part}
    arrived: Mapping[int, Sequence[RoutedRecords]] = {}
    is_begun = False
    while len(found) < len(work):
        leaving: list[Parcel] = []
        for number in taking_part:
            try:
                own, routed = work[number].send(arrived.get(number, ()) if is_begun else None)  # type: ignore[arg-type]
            except StopIteration as end:
                found[number] = end.value
            else:
                leaving += () if routed is None else own.parcels(routed, buckets)
        is_begun = True
        if len(found) < len(work):
            assert found.keys().isdisjoint(taking_part), "groups that cross have the same calls"
            arrived = _by_group((yield leaving))
    return [found[number] for number in range(len(work))]


def _by_group(parcels: Iterable[Parcel]) -> dict[int, list[RoutedRecords]]:
    found: dict[int, list[RoutedRecords]] = {}
    for parcel in parcels:
        found.setdefault(parcel.group, []).append(parcel.routed)
    return found


def _through_stages(
    group: PartitionGroup, engine: Engine, epoch: int, work: _Work
) -> GroupRounds[tuple[Engine, int, list[Results]]]:
    """The engine of a group and its epoch at the end of a step, and what it gives."""
    results: list[Results] = []
    count = 0
    for stage, pieces, limit, next_ in work.stages(group, epoch):
        epoch = stage.number
        results.append(Results(ledger=pieces.ledger))
        own = stage.groups[group.number]
        given = yield from work.of_stage(own, engine, pieces, limit, stage.routing, is_last=next_ is None)
        steps = np.arange(count, count + len(pieces.all))
        given = [results_with_steps(item, steps, 0) for item in given] if count else given
        results += (without_silent(result, own.plan, stage.silent) for result in given)
        count += len(steps)
        if next_ is not None:
            engine, ended = followed(engine, next_, group.number)
            results.append(Results(ledger=ended))
    return engine, epoch, results


def with_routing(rounds: Rounds, routing: Routing | None) -> GroupRounds[Results]:
    """A call of an engine in rounds, with where what leaves it goes."""
    try:
        leaving = next(rounds)
        while True:
            assert routing is not None, "no other engine waits for it"
            leaving = rounds.send((yield routing, leaving))
    except StopIteration as end:
        found: Results = end.value
        return found


def _in_step(rounds: Rounds, routing: Routing | None, *, crosses: bool) -> GroupRounds[Results]:
    """A call of an engine in as many rounds as those of all groups that cross in some epoch.

    crosses: whether queries of this one do in the epoch; those of others feed each other within it
    """
    if crosses:
        return (yield from with_routing(rounds, routing))
    found: Results = only_result(rounds)
    if routing is not None:
        for _ in range(routing.crossing.rounds - 1):
            yield routing, None
    return found


@dataclass(frozen=True, slots=True)
class _Work:
    """What the engines of a bucket are called with.

    records: released
    turns: per partition group
    flush: whether time advances afterwards until no timer is left, through all epochs
    """

    visit: Visit
    records: Sequence[GroupRecords]
    turns: Sequence[Turn]
    flush: bool

    @property
    def arrive_now(self) -> bool:
        """Whether records arrive at `now`, whatever they say."""
        return self.visit.program.clock is Clock.PROCESSING

    def results(self, group: PartitionGroup, engine: Engine, routing: Routing | None) -> GroupRounds[list[Results]]:
        return self.of_stage(group, engine, self._pieces(group), NEVER, routing, is_last=True)

    def of_stage(
        self,
        group: PartitionGroup,
        engine: Engine,
        pieces: Pieces,
        limit: int,
        routing: Routing | None,
        *,
        is_last: bool,
    ) -> GroupRounds[list[Results]]:
        """What an engine gives of records, while the queries of a group run.

        limit: time advances no further, µs
        routing: of the stage
        """
        routing = routing if routing is not None and group.number in routing.groups else None
        crosses = routing is not None and any(query.title in routing.crossing.levels for query in group.plan.queries)
        engine.cross(routing.crossing if routing is not None and crosses else None)
        given: list[Results] = []
        turn = self.turns[group.number]
        reached = limit if self.flush and not is_last else turn.now
        now = None if turn.now is None or reached is None else min(reached, limit)
        arrivals = pieces.all
        if self.arrive_now:
            arrivals = _arriving_at(arrivals, now)
        if self.visit.is_home:
            given.append(Results(outputs=_control_rows(group.plan, pieces.controls, engine.clock)))
        without_idle = NO_TIME if turn.without_idle is None else min(turn.without_idle, limit)
        call = engine.process_in_rounds(arrivals, now=now, without_idle=without_idle)
        results = yield from _in_step(call, routing, crosses=crosses)
        given.append(_without_repeats(results, pieces.copies, group, is_home=self.visit.is_home))
        if self.flush and is_last:
            given.append((yield from _in_step(engine.flush_in_rounds(), routing, crosses=crosses)))
        return given

    def stages(self, group: PartitionGroup, epoch: int) -> Iterator[tuple[Stage, Pieces, int, Stage | None]]:
        """The stages that a group goes through, each with its records, the limit of its time and
        the stage that follows at once."""
        turn = self.turns[group.number]
        pieces = self._pieces(group)
        if self.arrive_now:
            pieces = pieces.changed(lambda arrivals: _arriving_at(arrivals, turn.now))
        stages = self.visit.program.stages
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
        if next_.begins is None:
            return False
        return self.flush or pieces.have_begun(next_) or (now is not None and now > next_.begins)

    def begin(self, state: BucketState) -> int | None:
        """The earliest arrival of the bucket's records, else where time is, µs; None = none."""
        arrivals = [item.arrivals.system("arrival") for item in self.records if len(item.arrivals)]
        if arrivals:
            return min(int(own.min()) for own in arrivals)
        least = min((turn.now for turn in self.turns if turn.now is not None), default=furthest_read(state.clock))
        return None if least == EARLIEST else least

    def passed_over(self, group: PartitionGroup) -> list[GroupRecords]:
        """The released records of a group that cannot concern any of its queries."""
        return [item for item in self.records if item.group == group.number and self._passes_over(group, item)]

    def _passes_over(self, group: PartitionGroup, item: GroupRecords) -> bool:
        is_for_all = item.is_copy or item.source in (CONTROL, COMMANDS)
        return not (is_for_all or self.arrive_now or group.meets(item.source))

    def _pieces(self, group: PartitionGroup) -> Pieces:
        """Released records, as a group takes them."""
        records = [item for item in self.records if not self._passes_over(group, item)]
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


def _control_rows(plan: Plan, controls: Arrivals, clock: int | None) -> pa.Table:
    """Rows that tell when control events were processed: one per query and event that is not wrong.

    An event whose arrival lies before the clock is processed at the clock. Its row tells that place
    in the order of arrival, so that a replay can put the event there.

    plan: of a partition group
    controls: records of the control stream, before they are processed
    clock: the group's clock then, µs; None = nothing has arrived
    """
    if not len(controls):
        return NO_OUTPUTS
    is_control = controls.system("kind") == RecordKind.CONTROL
    table = controls.table.filter(pa.array(is_control))
    if not len(table):
        return OUTPUT_SCHEMA.empty_table()
    wrong = {record for record, _ in ControlEvents.of(table, plan, None).errors}
    places = np.maximum(table.column("_arrival").to_numpy(), NO_TIME if clock is None else clock)
    moments = pa.array(places).cast(TIMESTAMP)
    rows = [
        {"kind": "control", "text": text, "query": query.name, "instance": query.instance, "key": "{}"}
        | {"event": json.dumps({"source": source, "offset": offset}), "time": moment, "emitted": moment}
        | {"_step": -1, "_rank": 0}
        for record, (text, source, offset, moment) in enumerate(
            zip(*(table.column(name).to_pylist() for name in ("_text", "_source", "_offset")), moments, strict=True)
        )
        if record not in wrong
        for query in plan.queries
    ]
    return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA)
