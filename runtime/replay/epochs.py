"""Replay records whose control events change the queries: one plan after the other.

An epoch is the time in which one plan holds. The engine of an epoch hands its state on to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import Plan
from querylang.plan.routing import Outcome
from runtime.columns.arrivals import Arrivals, as_known
from runtime.engine import Engine, metrics_table, output_events
from runtime.replay.divided import results_with_steps
from runtime.replay.records import Records
from runtime.replay.replay import CHUNK, Replayed, concatenated_results
from runtime.replay.stepping import Step
from runtime.replay.steps import StepByStep
from runtime.results.for_users import PlainMatches, plain_outputs
from runtime.results.outputs import change_rows
from runtime.results.schemas import Results, in_order


@dataclass(frozen=True, slots=True)
class ChangeNotice:
    """What became of changes at a place.

    record: the number of the record that asked for them; None = time alone brought them
    """

    outcomes: tuple[Outcome, ...]
    place: int
    record: int | None

    @property
    def is_refused(self) -> bool:
        """Whether nothing has changed."""
        return any(item.kind == "error" for item in self.outcomes)

    def is_by(self, moment: int) -> bool:
        """Whether a replay that ends at a time, µs, gets to it; what time brings is behind it."""
        return self.place <= moment if self.record is not None else self.place < moment


@dataclass(frozen=True, slots=True)
class Epoch:
    """The time in which a plan holds.

    first: the number of its first record
    begins: arrival, µs, up to which timers belong to the epoch before; None = its first record's
    heirs: as of `Engine.followed_by`
    known: the names of the event types that are known
    """

    plan: Plan
    first: int
    begins: int | None
    heirs: Mapping[str, str]
    known: Collection[str]


@dataclass(frozen=True, slots=True)
class Script:
    """All plans of a replay, in order, and what became of the changes between them.

    plan: all queries that run at some time
    """

    plan: Plan
    epochs: tuple[Epoch, ...]
    notices: tuple[ChangeNotice, ...] = field(default=())

    def until(self, moment: int | None) -> Script:
        """The same without what comes after a time, µs."""
        if moment is None:
            return self
        return replace(self, notices=tuple(item for item in self.notices if item.is_by(moment)))

    def told(self, arrivals: Arrivals, *, until: int | None = None, flush: bool = True) -> list[pa.Table]:
        """What became of changes, as outputs."""
        notices = self.until(_end(arrivals, until, flush=flush)).notices
        return [change_rows(item.outcomes, item.place, -1 if item.record is None else item.record) for item in notices]


def replay_epochs(
    script: Script, records: Records, *, until: int | None = None, flush: bool = True, matcher: str = "auto"
) -> Replayed:
    """Run the engines of all epochs over records; as `measured_replay`."""
    until = _end(records.arrivals, until, flush=flush)
    own = records.until(until)
    parts = [Results(outputs=rows) for rows in script.told(records.arrivals, until=until)]
    engine = Engine(script.epochs[0].plan, matcher, has_changes=True)
    for number, epoch in enumerate(script.epochs):
        if number and not _has_begun(epoch, own, until):
            break
        if number:
            if epoch.begins is not None:
                parts.append(engine.process(Arrivals.empty(engine.plan), now=epoch.begins))
            engine, _ = engine.followed_by(epoch.plan, epoch.heirs)
        table = _of_epoch(script, number, own)
        for start in range(0, len(table), CHUNK):
            piece = table.slice(start, CHUNK)
            at = epoch.first + start
            parts.append(results_with_steps(engine.process(Arrivals(piece)), np.arange(at, at + len(piece)), 0))
    if until is not None:
        parts.append(engine.process(Arrivals.empty(engine.plan), now=until))
    elif flush:
        parts.append(results_with_steps(engine.flush(), np.empty(0, np.int64), len(own)))
    ledger = engine.ledger()
    results = in_order(script.plan, concatenated_results(script.plan, parts, ledger))
    return results, metrics_table(engine, output_events(results), ledger=ledger)


def _end(arrivals: Arrivals, until: int | None, *, flush: bool) -> int | None:
    """When a replay ends, µs; None = when no timer is left."""
    if until is not None or flush or not len(arrivals):
        return until
    return int(arrivals.system("arrival")[-1])


def _has_begun(epoch: Epoch, records: Records, until: int | None) -> bool:
    """Whether a replay that ends early gets to an epoch."""
    if until is None:
        return True
    return epoch.begins < until if epoch.begins is not None else epoch.first <= len(records)


def _of_epoch(script: Script, number: int, records: Records) -> pa.Table:
    """The records of an epoch; events of types that are not known yet are of unknown types."""
    epoch, table = script.epochs[number], records.arrivals.table
    behind = script.epochs[number + 1].first if number + 1 < len(script.epochs) else len(table)
    part = table.slice(epoch.first, max(0, min(behind, len(table)) - epoch.first))
    return as_known(part, script.plan.events, epoch.known)


def epoch_steps(
    script: Script,
    records: Records,
    *,
    until: int | None = None,
    flush: bool = True,
    matcher: str = "auto",
    is_for_people: bool = True,
) -> Iterator[Step]:
    """All steps of a replay, as `replay_steps`, one record after the other."""
    until = _end(records.arrivals, until, flush=flush)
    own, notices = records.until(until), script.until(until).notices
    rows = {item.record: item for item in notices if item.record is not None}
    run: StepByStep | None = None
    for number, epoch in enumerate(script.epochs):
        if number and not _has_begun(epoch, own, until):
            break
        part = replace(
            own, arrivals=Arrivals(table := _of_epoch(script, number, own)), rows=own.rows[epoch.first :][: len(table)]
        )
        before = run
        run = StepByStep(epoch.plan, part, matcher, has_changes=True, is_for_people=is_for_people)
        run.plain = PlainMatches(own.row_of(), None if before is None else before.plain.routes)
        if before is not None:
            if epoch.begins is not None:
                yield from before.timers(epoch.begins)
                yield from _timed(notices, epoch.begins)
            run.follow(before, epoch.heirs)
        for index, arrival in enumerate(run.arrival.tolist()):
            yield from run.timers(arrival)
            step, *routed = run.record(index)
            yield _with_notice(step, rows.get(epoch.first + index))
            yield from routed
    assert run is not None, "there is an epoch"
    yield from run.rest(until, flush=flush)


def _timed(notices: Sequence[ChangeNotice], moment: int) -> Iterator[Step]:
    """A step for what time alone has brought."""
    for item in notices:
        if item.record is None and item.place == moment:
            yield Step(at=moment, outputs=plain_outputs(change_rows(item.outcomes, moment)))


def _with_notice(step: Step, notice: ChangeNotice | None) -> Step:
    if notice is None:
        return step
    return replace(step, outputs=[*step.outputs, *plain_outputs(change_rows(notice.outcomes, notice.place))])
