"""One bucket, one micro-batch: state and packed rows in, state and tables out. Knows nothing of Spark.

Takes a program, the bucket's number, its saved state, its packed rows and the batch's timestamp; gives the new state,
tagged tables and the moment at which it wants to be called without records. The engine does all that has to do with
queries; here is only which engines there are, what "now" is, and which records have their turn: those of a source that
was read further than the others wait here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.instants import NEVER
from runtime.results.ledger import Account, ledger_table
from runtime.results.schemas import Results
from spark_backend.job.settings import Clock
from spark_backend.operator.bucket_state import Saved, close_state, open_state
from spark_backend.operator.job_clock import Clocks, Turn
from spark_backend.operator.measures import measured
from spark_backend.wire.packed_rows import HOME, Call, Packed, Part, unpack_row
from spark_backend.wire.partition_groups import PartitionGroup, count_uses
from spark_backend.wire.program import Program
from spark_backend.wire.tagged_rows import TaggedRow, tagged_rows


@dataclass(frozen=True, slots=True)
class Step:
    """`wake`: milliseconds after the batch's timestamp, None where only records can change anything."""

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
    call: Call | None = None,
) -> Step:
    """Take `rows` at `timestamp` (ms); `call`: what is asked of the bucket, as a row may do too.

    Raises InputError for a state of another version or number of buckets.
    """
    started = perf_counter()
    index = program.plan_index(bucket)
    groups, is_home = program.groups(index), bucket % program.buckets == HOME
    packed = [unpack_row(row, program.plan(index)) for row in rows]
    calls = {call, *(row.call for row in packed)}
    before = open_state(program, bucket, state)
    clocks = _clocks(before.clocks, packed, timestamp, is_caught_up=not calls.isdisjoint({Call.CATCH_UP, Call.FLUSH}))
    now = timestamp * 1000 if program.clock is Clock.PROCESSING else clocks.now(timestamp, program.idle)
    waiting = [*before.held, *(part for row in packed for part in row.parts)]
    due, held = divided(waiting, _turn(program, clocks, calls, timestamp))
    saved = replace(before, clocks=clocks, held=held)
    work = _Work(due, now, is_home, program.clock is Clock.PROCESSING, Call.FLUSH in calls)
    results = [Results(ledger=row.ledger) for row in packed]
    for group, engine in zip(groups, saved.engines, strict=True):
        results.extend(work.results(group, engine))
    results.append(Results(ledger=_waiting_account(groups, before.held, held, is_home)))
    tagged = [row for result in results for row in tagged_rows(result)]
    data = close_state(program, saved)
    metrics = measured(program, bucket, saved, timestamp, state_bytes=len(data), seconds=perf_counter() - started)
    return Step(data, (*tagged, *metrics), _wake(program, saved, timestamp))


def _clocks(before: Clocks, packed: Sequence[Packed], timestamp: int, *, is_caught_up: bool) -> Clocks:
    clocks = before.after((item for row in packed for item in row.heard), timestamp)
    return clocks.caught_up(timestamp) if is_caught_up else clocks


def _turn(program: Program, clocks: Clocks, calls: set[Call | None], timestamp: int) -> Turn:
    if program.clock is Clock.PROCESSING or Call.FLUSH in calls:
        return Turn.of_all()
    if Call.CATCH_UP in calls:
        return Turn.of_all(clocks.furthest)
    return clocks.turn(timestamp, program.idle)


def divided(parts: Iterable[Part], turn: Turn) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """What has its turn, in the order of sources, and what has not: that in one part a source, group and kind."""
    due: list[Part] = []
    held: dict[tuple[int, bool, str, int], list[Part]] = {}
    for part in sorted(parts, key=attrgetter("place")):
        limit = turn.limit(part.source, part.arrivals)
        has_turn = None if isinstance(limit, int) and limit == NEVER else part.arrivals.system("arrival") < limit
        if has_turn is None or has_turn.all():
            due.append(part)
            continue
        if has_turn.any():
            due.append(_rows_of(part, has_turn))
        kind = (part.group, part.is_copy, part.source, part.place)
        held.setdefault(kind, []).append(_rows_of(part, ~has_turn))
    joined = [replace(some[0], arrivals=Arrivals.concat([part.arrivals for part in some])) for some in held.values()]
    return tuple(due), tuple(joined)


def _rows_of(part: Part, rows: NDArray[np.bool_]) -> Part:
    return replace(part, arrivals=part.arrivals.take(np.flatnonzero(rows)))


@dataclass(frozen=True, slots=True)
class _Work:
    """What all engines of a bucket are called with. `has_own_clock`: records arrive at `now`, whatever they say."""

    parts: Sequence[Part]
    now: int | None
    is_home: bool
    has_own_clock: bool
    flush: bool

    def results(self, group: PartitionGroup, engine: Engine) -> Iterator[Results]:
        copies = self._arrivals(group, is_copy=True)
        arrivals = Arrivals.concat([self._arrivals(group, is_copy=False), copies])
        if self.has_own_clock:
            arrivals = _arriving_at(arrivals, self.now)
        yield _own_share(engine.process(arrivals, now=self.now), copies, group, is_home=self.is_home)
        if self.flush:
            yield engine.flush()

    def _arrivals(self, group: PartitionGroup, *, is_copy: bool) -> Arrivals:
        parts = [part for part in self.parts if part.group == group.number]
        chosen = [part.arrivals for part in parts if part.is_copy == is_copy]
        return Arrivals.concat(chosen) if chosen else Arrivals.empty(group.plan)


def _own_share(results: Results, copies: Arrivals, group: PartitionGroup, *, is_home: bool) -> Results:
    """The results without what another bucket or group tells of the records that every bucket has."""
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
    moments = pa.array(np.full(len(arrivals), now, np.int64))
    return Arrivals(arrivals.table.set_column(position, arrivals.table.schema.field(position), moments))


def _waiting_account(
    groups: Sequence[PartitionGroup], before: Sequence[Part], after: Sequence[Part], is_home: bool
) -> pa.Table:
    """Records that wait for their turn are pending; their engine counts them as received when it gets them."""
    account: Account = Account()
    for parts, sign in ((before, -1), (after, 1)):
        for part in parts:
            if part.is_copy and not is_home:
                continue
            for item in pc.value_counts(part.arrivals.table.column("_source")).to_pylist():
                for query in groups[part.group].plan.queries:
                    for word in ("received", "pending"):
                        account[query.title, item["values"], word] += sign * item["counts"]
    return ledger_table(account)


def _wake(program: Program, saved: Saved, timestamp: int) -> int | None:
    """When time alone does something next: an engine's timers, or the turn of what waits."""
    if not program.needs_timeouts:
        return None
    moments = [wake for engine in saved.engines if (wake := engine.next_wake()) is not None]
    moments += [int(part.arrivals.system("arrival").min()) + 1 for part in saved.held]
    if not moments:
        return None
    if program.clock is Clock.PROCESSING:
        due: int | None = -(-min(moments) // 1000)
    else:
        due = saved.clocks.when(min(moments), program.idle)
    return None if due is None else max(1, due - timestamp)
