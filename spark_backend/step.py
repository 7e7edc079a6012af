"""One bucket, one micro-batch: state and packed rows in, state and tables out. Knows nothing of Spark.

Takes a program, the bucket's number, its saved state, its packed rows and the batch's timestamp; gives the new state,
tagged tables and the moment at which it wants to be called without records. The engine does all that has to do with
queries; here is only which engines there are, what "now" is, and how the bucket's value is laid out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querylang.errors import InputError
from runtime.batch import NO_TIME, Arrivals
from runtime.controls import NEVER
from runtime.engine import Engine
from runtime.ledger import Account, ledger_table
from runtime.results import Results
from spark_backend.container import ContainerError, pack, unpack
from spark_backend.groups import PartitionGroup, count_uses
from spark_backend.program import Program
from spark_backend.settings import Clock
from spark_backend.tagged import Tag, TaggedRow, tagged_rows
from spark_backend.transport import HOME, Part, unpack_row

STATE_VERSION = 1
_USE = "state"

METRIC_SCHEMA = pa.schema(
    [("bucket", pa.int32()), ("rows", pa.int64()), ("state_bytes", pa.int64()), ("seconds", pa.float64())]
)
"""One row a call of the operator: records taken, size of the state left, time spent."""


@dataclass(frozen=True, slots=True)
class Step:
    """`wake`: milliseconds after the batch's timestamp, None where only records can change anything."""

    state: bytes
    rows: tuple[TaggedRow, ...]
    wake: int | None


@dataclass(frozen=True, slots=True)
class Saved:
    """A bucket's state, opened: engines by group; the latest arrival (µs) and the batch (ms) that brought it.

    `held`: control events whose arrival the events have not reached yet.
    """

    engines: tuple[Engine, ...]
    heard: int | None
    seen: int
    held: tuple[Part, ...] = ()


def run_step(
    program: Program, bucket: int, state: bytes | None, rows: Sequence[bytes], timestamp: int, *, flush: bool = False
) -> Step:
    """Take `rows` at `timestamp` (ms); `flush` then lets time run out, as a row may ask for too.

    Raises InputError for a state of another version or number of buckets.
    """
    started = perf_counter()
    index = program.plan_index(bucket)
    packed = sorted((unpack_row(row, program.plan(index)) for row in rows), key=attrgetter("place"))
    saved = open_state(program, bucket, state)
    clocks = [row.clock for row in packed if row.clock is not None]
    if clocks:
        saved = replace(saved, heard=max(clocks), seen=timestamp)
    now = _now(program, saved, timestamp)
    flush = flush or any(row.flush for row in packed)
    has_own_clock = program.clock is Clock.PROCESSING
    controls = [*saved.held, *(part for row in packed if row.is_control for part in row.parts)]
    due, held = _divided(controls, NEVER if flush or has_own_clock else now)
    saved = replace(saved, held=held)
    parts = [*(part for row in packed if not row.is_control for part in row.parts), *due]
    call = _Call(parts, now, is_home=bucket % program.buckets == HOME, has_own_clock=has_own_clock, flush=flush)
    results = [Results(ledger=row.ledger) for row in packed]
    for group, engine in zip(program.groups(index), saved.engines, strict=True):
        results.extend(call.results(group, engine))
    tagged = [row for result in results for row in tagged_rows(result)]
    data = close_state(program, saved)
    metric = _metric(bucket, sum(len(part.arrivals) for part in parts), len(data), perf_counter() - started)
    return Step(data, (*tagged, metric), _wake(program, saved, timestamp))


def _divided(parts: Sequence[Part], now: int | None) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """What has arrived at `now`, and what has not: control events are taken in order of arrival with the events."""
    sides: tuple[list[Part], list[Part]] = ([], [])
    for part in parts:
        arrived = part.arrivals.system("arrival") <= (NO_TIME if now is None else now)
        for side, rows in zip(sides, (arrived, ~arrived), strict=True):
            if rows.any():
                side.append(replace(part, arrivals=part.arrivals.take(np.flatnonzero(rows))))
    return tuple(sides[0]), tuple(sides[1])


@dataclass(frozen=True, slots=True)
class _Call:
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


def _now(program: Program, saved: Saved, timestamp: int) -> int | None:
    """The moment, µs, that the clock has reached; engines never go back."""
    if program.clock is Clock.PROCESSING:
        return timestamp * 1000
    if program.idle is None or saved.heard is None:
        return saved.heard
    return saved.heard + max(0, (timestamp - saved.seen) * 1000 - program.idle)


def _wake(program: Program, saved: Saved, timestamp: int) -> int | None:
    if not program.needs_timeouts:
        return None
    due = min((wake for engine in saved.engines if (wake := engine.next_wake()) is not None), default=None)
    if due is None:
        return None
    if program.clock is Clock.ARRIVAL:
        assert saved.heard is not None, "what is pending has arrived"
        due += saved.seen * 1000 - saved.heard + (program.idle or 0)
    return max(1, -(-due // 1000) - timestamp)


def _metric(bucket: int, rows: int, state_bytes: int, seconds: float) -> TaggedRow:
    values = {"bucket": [bucket], "rows": [rows], "state_bytes": [state_bytes], "seconds": [seconds]}
    return TaggedRow(Tag.METRIC, "", pa.table(values, schema=METRIC_SCHEMA))


def open_state(program: Program, bucket: int, state: bytes | None) -> Saved:
    """The engines of a bucket: new ones, or as they were left."""
    groups = program.groups(program.plan_index(bucket))
    # what is told once, the first bucket tells
    plans = [group.plan if bucket % program.buckets == HOME else replace(group.plan, stopped=()) for group in groups]
    if state is None:
        return Saved(tuple(Engine(plan, program.matcher, program.sources) for plan in plans), None, 0)
    try:
        header, parts = unpack(_USE, STATE_VERSION, state)
    except ContainerError as error:
        raise InputError(f"the state of bucket {bucket} cannot be read: {error}") from error
    snapshots, held = parts[: header["groups"]], parts[header["groups"] :]
    if header["buckets"] != program.buckets or header["groups"] != len(groups):
        raise InputError(
            f"the state of bucket {bucket} was written for {header['buckets']} buckets and {header['groups']} partition"
            f" groups; this run has {program.buckets} and {len(groups)}"
        )
    engines = tuple(
        Engine.restore(plan, bytes(part), program.matcher, program.sources)
        for plan, part in zip(plans, snapshots, strict=True)
    )
    controls = tuple(
        Part(group, is_copy, Arrivals.from_bytes(bytes(part)))
        for (group, is_copy), part in zip(header["held"], held, strict=True)
    )
    return Saved(engines, header["heard"], header["seen"], controls)


def close_state(program: Program, saved: Saved) -> bytes:
    """The value to keep."""
    header = {
        "buckets": program.buckets,
        "groups": len(saved.engines),
        "heard": saved.heard,
        "seen": saved.seen,
        "held": [[part.group, part.is_copy] for part in saved.held],
    }
    held = [part.arrivals.to_bytes() for part in saved.held]
    return pack(_USE, STATE_VERSION, header, [*(engine.snapshot() for engine in saved.engines), *held])
