"""Commands as packed rows: their control events as records, and all of them as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from job_engine.sources.listing.command_folder import EVENT, Command
from job_engine.wire.packed_rows import COMMANDS, pack_arrivals, pack_commands
from job_engine.wire.program import Program
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals, RecordKind, arrivals_schema, place_of
from runtime.instants import EARLIEST


def packed_commands(commands: Sequence[Command], program: Program, rank: int) -> Iterator[pa.RecordBatch]:
    """The packed rows of commands, for every bucket.

    rank: number of all sources: commands come behind their records
    """
    yield pack_commands(program.buckets, [command.to_plain() for command in commands])
    events = [command for command in commands if command.kind == EVENT]
    if events:
        arrivals = control_records(events, program.plan(), rank)
        yield pack_arrivals(
            arrivals, program.groups(), program.buckets, source=COMMANDS, rank=rank, is_control=True, by_partition=False
        )


def control_records(commands: Sequence[Command], plan: Plan, rank: int = 0) -> Arrivals:
    """Control events as records.

    They arrive at `at`, or else at EARLIEST: the operator knows how far sources have been read.
    """
    schema = arrivals_schema(plan)
    count = len(commands)
    arrival = [EARLIEST if command.at is None else command.at for command in commands]
    own = {
        "_kind": pa.repeat(pa.scalar(int(RecordKind.CONTROL), pa.int16()), count),
        "_arrival": arrival,
        "_source": pa.array([COMMANDS] * count).dictionary_encode(),
        "_partition": [0] * count,
        "_offset": [command.number for command in commands],
        "_source_time": arrival,
        "_text": [command.text for command in commands],
        "_place": [place_of(rank)] * count,
    }
    columns = {field.name: own.get(field.name, pa.nulls(count, field.type)) for field in schema}
    return Arrivals(pa.table(columns, schema=schema))
