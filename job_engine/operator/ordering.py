"""Order the records of a step: the clock of the job, where each record arrives, how far time goes.

Arrival never goes back along a source partition, however its records are cut into batches. A record
in a file that arrives before the clock of its source partition arrives at the clock. Records of the
files of a micro-batch are merged by arrival. Elsewhere a micro-batch may bring several batches of
one partition, read by several tasks. A record that arrives before a record ahead of it in its
partition arrives with that one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from job_engine.operator.clocks import JobClock, ReleaseLimits
from job_engine.operator.reading import ReadRows, Visit
from job_engine.wire.clock_sources import Clock
from job_engine.wire.packed_rows import COMMANDS, BucketInput, GroupRecords, Signal
from job_engine.wire.partition_groups import PartitionGroup
from job_engine.wire.reports import clock_partitions
from job_engine.wire.tagged_rows import Tag, TaggedRow
from querylang.dataclass import dataclass, replace
from querylang.plan.model import Plan
from runtime.column_types import has_column
from runtime.columns.arrivals import MOVED_FIELD, Arrivals, RecordKind, is_moved
from runtime.instants import EARLIEST, NO_TIME
from runtime.reading import ControlError, ControlEvents, parse_engine_control

# Commands in a bucket: where control events take place, and what is answered.
#
# All buckets have the same clock, so a command has the same place in all of them. Bucket HOME
# answers for all.

ANSWER_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("part", pa.string()),
        ("of", pa.int64()),
        ("kind", pa.string()),
        ("time", pa.int64()),
        ("text", pa.string()),
        ("count", pa.int64()),
    ]
)
"""One row per answer, as in `job_engine.sources.listing.command_folder.Answer`."""

TAKEN, ERROR, EVENT, FORGET = "taken", "error", "event", "forget"


def commands_placed(inputs: Sequence[BucketInput], clock: JobClock) -> list[BucketInput]:
    """The same rows; control events of commands arrive where sources have been read to, or later.

    clock: after the micro-batch
    """
    least = furthest_read(clock)
    return [
        replace(
            row, records=tuple(_not_before(item, least) if item.source == COMMANDS else item for item in row.records)
        )
        for row in inputs
    ]


def furthest_read(clock: JobClock) -> int:
    """The furthest arrival that was read; EARLIEST = none."""
    return max([EARLIEST, *(item.arrival for item in clock.sources if item.arrival != NO_TIME)])


def _not_before(records: GroupRecords, least: int) -> GroupRecords:
    table = records.arrivals.table
    position = table.schema.get_field_index("_arrival")
    places = pa.array(np.maximum(records.arrivals.system("arrival"), least))
    return replace(records, arrivals=Arrivals(table.set_column(position, table.schema.field(position), places)))


def commands_taken(
    inputs: Sequence[BucketInput], clock: JobClock, plan: Plan, groups: int, buckets: int
) -> list[TaggedRow]:
    """Answers that commands were taken, or what is wrong with them; bucket HOME gives them.

    groups: how many partition groups process each control event
    buckets: how many forget a key
    """
    least = furthest_read(clock)
    rows = []
    for command in (command for row in inputs for command in row.commands):
        known = {"number": command["number"], "part": "", "count": 0}
        time = max(least, EARLIEST if command["at"] is None else command["at"])
        mistake = _mistake(command, plan)
        parts = buckets if command["kind"] == FORGET else groups
        answer = (parts, TAKEN, "") if mistake is None else (1, ERROR, mistake)
        kind = dict(zip(("of", "kind", "text"), answer, strict=True))
        rows.append(known | kind | {"time": None if time == EARLIEST else time})
    return tagged_answers(rows)


def _mistake(command: Mapping[str, Any], plan: Plan) -> str | None:
    """What is wrong with a command; None = nothing."""
    if command["kind"] == EVENT:
        try:
            parse_engine_control(command["text"], plan)
        except ControlError as error:
            return str(error)
    return command["text"] if command["kind"] == ERROR else None


def commands_processed(group: PartitionGroup, groups: int, controls: Arrivals, clock: int | None) -> list[TaggedRow]:
    """Answers for commands that a partition group processes now; bucket HOME gives them.

    controls: its control events, before they are processed
    clock: the group's clock then, µs; None = nothing has arrived
    """
    if not len(controls):
        return []
    table = controls.table
    is_own = np.array([source == COMMANDS for source in table.column("_source").to_pylist()], np.bool_)
    table = table.filter(pa.array(is_own & (controls.system("kind") == RecordKind.CONTROL)))
    if not len(table):
        return []
    wrong = dict(ControlEvents.of(table, group.plan, None).errors)
    places = np.maximum(table.column("_arrival").to_numpy(), NO_TIME if clock is None else clock)
    names = json.dumps([query.title for query in group.plan.queries])
    return tagged_answers(
        {"number": number, "part": str(group.number), "of": groups, "time": int(places[row]), "count": 0}
        | ({"kind": ERROR, "text": wrong[row]} if row in wrong else {"kind": "control", "text": names})
        for row, number in enumerate(table.column("_offset").to_pylist())
    )


def tagged_answers(rows: Iterable[Mapping[str, object]]) -> list[TaggedRow]:
    """Answers as the rows of a step."""
    found = list(rows)
    return [TaggedRow(Tag.ANSWER, "", pa.Table.from_pylist(found, schema=ANSWER_SCHEMA))] if found else []


Floors = Mapping[int, int]
"""By partition of one source: the least arrival that its records can have, µs."""


@dataclass(frozen=True, slots=True)
class Turn:
    """How far a partition group goes in a step.

    now: its clock, µs; None = it has not begun
    without_idle: its clock if only ordering policies let time advance without silent sources, µs
    limits: which records are released
    """

    now: int | None
    without_idle: int | None
    limits: ReleaseLimits


@dataclass(frozen=True, slots=True)
class OrderedRecords:
    """The records of a step at their places in the order of arrival.

    clock: of the job, after the micro-batch
    turns: per partition group
    records: of the micro-batch; those that are held from before come ahead of them
    """

    clock: JobClock
    turns: tuple[Turn, ...]
    records: tuple[GroupRecords, ...]


def order(visit: Visit, clock: JobClock, rows: ReadRows) -> OrderedRecords:
    """Advance the clock, `clock`: before the micro-batch, and give each record its arrival."""
    after = _advanced(visit, clock, rows)
    turns = tuple(_turn(visit, after, group, rows.signals) for group in visit.groups)
    return OrderedRecords(after, turns, tuple(_arriving(visit, clock, commands_placed(rows.inputs, after))))


def _advanced(visit: Visit, clock: JobClock, rows: ReadRows) -> JobClock:
    expecting = clock.expecting((source.name for source in visit.program.sources), visit.timestamp)
    unread = {source: files for item in rows.inputs for source, files in item.unread.items()}
    advanced = expecting.advanced((it for item in rows.inputs for it in item.progress), visit.timestamp, unread)
    return advanced.resumed(visit.timestamp) if Signal.START in rows.signals else advanced


def _turn(visit: Visit, clock: JobClock, group: PartitionGroup, signals: Collection[Signal]) -> Turn:
    program, timestamp = visit.program, visit.timestamp
    if program.clock is Clock.PROCESSING:
        return Turn(timestamp * 1000, timestamp * 1000, ReleaseLimits.up_to())
    own = clock.of(group.sources, timestamp, program.idle_times)
    if Signal.FLUSH in signals:
        return Turn(own.furthest, own.furthest, ReleaseLimits.up_to())
    if Signal.CATCH_UP in signals:
        return Turn(own.furthest, own.furthest, ReleaseLimits.up_to(NO_TIME if own.furthest is None else own.furthest))
    without_idle = clock.of(group.sources, timestamp, program.policies_idle_times).now
    return Turn(own.now, without_idle, own.limits())


def _arriving(visit: Visit, clock: JobClock, inputs: Sequence[BucketInput]) -> list[GroupRecords]:
    """The records of the micro-batch; those of a complete input are taken in order of arrival."""
    program = visit.program
    if program.is_bounded or program.clock is Clock.PROCESSING:
        return [part for item in inputs for part in item.records]
    return in_partition_order(clock, inputs, program.topic_sources, program.file_sources)


def in_partition_order(
    clock: JobClock,
    inputs: Sequence[BucketInput],
    topic_sources: Collection[str] = (),
    file_sources: Collection[str] = (),
) -> list[GroupRecords]:
    """The records of a micro-batch; `clock`: before it.

    file_sources: as in `Program`
    topic_sources: as in `Program`. Their records are not reported as moved: the running maximum is
        what arrival means there, within a batch too

    Where a whole source is one partition, nothing is known of its order.
    """
    floors = _floors(clock, inputs, file_sources)
    return [
        _raised(item, floors[at], by_topic=item.source in topic_sources)
        for at, row in enumerate(inputs)
        for item in row.records
    ]


def _floors(clock: JobClock, inputs: Sequence[BucketInput], file_sources: Collection[str]) -> list[dict[int, int]]:
    """The floors of each batch."""
    floors: list[dict[int, int]] = [{} for _ in inputs]
    reached: dict[tuple[str, int], int] = {}
    batches = sorted(
        (item.source, item.partition, item.first, at, item.arrival)
        for at, row in enumerate(inputs)
        for item in row.progress
        if item.partition is not None
    )
    for source, partition, _, at, arrival in batches:
        before = reached.get((source, partition), clock.settled_of(source, partition))
        floors[at][partition] = before
        if source in file_sources:
            continue
        reached[source, partition] = max(before, arrival)
    return floors


def _raised(records: GroupRecords, floors: Floors, *, by_topic: bool) -> GroupRecords:
    if all(floor == NO_TIME for floor in floors.values()):
        return records
    arrival = records.arrivals.system("arrival")
    least = _by_record(records.arrivals, floors, by_topic=by_topic)
    is_before = arrival < least
    if not is_before.any():
        return records
    table = records.arrivals.table
    position = table.schema.get_field_index("_arrival")
    moved = pa.array(is_moved(table) | is_before)
    if has_column(table, MOVED_FIELD.name):
        table = table.drop_columns([MOVED_FIELD.name])
    table = table.set_column(position, table.schema.field(position), pa.array(np.maximum(arrival, least)))
    if by_topic:
        return replace(records, arrivals=Arrivals(table))
    return replace(records, arrivals=Arrivals(table.append_column(MOVED_FIELD, moved)))


def _by_record(arrivals: Arrivals, floors: Floors, *, by_topic: bool) -> int | NDArray[np.int64]:
    if len(floors) == 1:
        return next(iter(floors.values()))
    present, numbers = np.unique(clock_partitions(arrivals, by_topic=by_topic), return_inverse=True)
    return np.array([floors.get(partition, NO_TIME) for partition in present.tolist()], np.int64)[numbers]
