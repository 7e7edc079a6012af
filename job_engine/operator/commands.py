"""Commands in a bucket: where control events take place, and what is answered.

All buckets have the same clock, so a command has the same place in all of them. Bucket HOME answers
for all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from job_engine.operator.job_clock import JobClock
from job_engine.wire.packed_rows import COMMANDS, BucketInput, GroupRecords
from job_engine.wire.partition_groups import PartitionGroup
from job_engine.wire.tagged_rows import Tag, TaggedRow
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.instants import EARLIEST, NO_TIME
from runtime.reading.control_events import ControlError, ControlEvents, parse_engine_control

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


def placed(inputs: Sequence[BucketInput], clock: JobClock) -> list[BucketInput]:
    """The same rows; control events of commands arrive where sources have been read to, or later.

    clock: after the micro-batch
    """
    least = furthest_read(clock)
    return [
        replace(row, records=tuple(_arriving(item, least) if item.source == COMMANDS else item for item in row.records))
        for row in inputs
    ]


def furthest_read(clock: JobClock) -> int:
    """The furthest arrival that was read; EARLIEST = none."""
    return max([EARLIEST, *(item.arrival for item in clock.sources if item.arrival != NO_TIME)])


def _arriving(records: GroupRecords, least: int) -> GroupRecords:
    table = records.arrivals.table
    position = table.schema.get_field_index("_arrival")
    places = pa.array(np.maximum(records.arrivals.system("arrival"), least))
    return replace(records, arrivals=Arrivals(table.set_column(position, table.schema.field(position), places)))


def taken(inputs: Sequence[BucketInput], clock: JobClock, plan: Plan, groups: int, buckets: int) -> list[TaggedRow]:
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


def processed(group: PartitionGroup, groups: int, controls: Arrivals, clock: int | None) -> list[TaggedRow]:
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
