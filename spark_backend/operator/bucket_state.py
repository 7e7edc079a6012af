"""A bucket's state: open while engines run, saved as one binary value in Spark's state store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from querylang.errors import InputError
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.engine.snapshot import StateError
from spark_backend.operator.held_checks import refuse_impossible
from spark_backend.operator.job_clock import JobClock
from spark_backend.wire.container import ContainerError, pack, unpack
from spark_backend.wire.packed_rows import HOME, GroupRecords
from spark_backend.wire.partition_groups import PartitionGroup
from spark_backend.wire.program import Program

STATE_VERSION = 3

_USE = "state"


@dataclass(frozen=True, slots=True)
class BucketState:
    """The open state of a bucket.

    engines: one per partition group; they change in place while they process records
    clock: the job's clock
    held: records that were read and are not released yet
    """

    engines: tuple[Engine, ...]
    clock: JobClock = field(default_factory=JobClock)
    held: tuple[GroupRecords, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedBucket:
    """The state of a bucket as plain data.

    buckets: number of buckets that it was written for
    snapshots: of the engines, one per partition group
    """

    buckets: int
    clock: JobClock
    snapshots: tuple[bytes, ...]
    held: tuple[GroupRecords, ...]

    def to_bytes(self) -> bytes:
        """The value for Spark's state store."""
        header = {
            "buckets": self.buckets,
            "groups": len(self.snapshots),
            "clocks": self.clock.to_plain(),
            "held": [[item.group, item.is_copy, item.source, item.rank] for item in self.held],
        }
        parts = [*self.snapshots, *(item.arrivals.to_bytes() for item in self.held)]
        return pack(_USE, STATE_VERSION, header, parts, is_stored=True)

    @staticmethod
    def from_bytes(data: bytes) -> SavedBucket:
        """The inverse of `to_bytes`, of this version; raises ContainerError."""
        header, parts = unpack(_USE, STATE_VERSION, data)
        snapshots, held = parts[: header["groups"]], parts[header["groups"] :]
        return SavedBucket(
            header["buckets"],
            JobClock.from_plain(header["clocks"]),
            tuple(bytes(part) for part in snapshots),
            _held(header, held),
        )


def open_state(program: Program, bucket: int, data: bytes | None) -> BucketState:
    """A bucket's state with running engines; None = a bucket that has never been called.

    Raises InputError for a state of another version or number of buckets.
    """
    groups = program.groups(program.plan_index(bucket))
    # stopped queries are reported by one bucket only
    plans = [group.plan if bucket % program.buckets == HOME else replace(group.plan, stopped=()) for group in groups]
    if data is None:
        return BucketState(tuple(Engine(plan, program.matcher) for plan in plans))
    try:
        saved = SavedBucket.from_bytes(data)
        _refuse_other_shape(saved, program.buckets, groups)
        engines = tuple(
            Engine.restore(plan, snapshot, program.matcher)
            for plan, snapshot in zip(plans, saved.snapshots, strict=True)
        )
    except (ContainerError, StateError, *_IMPOSSIBLE) as error:
        raise InputError(
            f"the state of bucket {bucket} cannot be read: {error}. Restore the checkpoint from a copy,"
            " or choose a new one and new sinks"
        ) from error
    return BucketState(engines, saved.clock, saved.held)


_IMPOSSIBLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError, pa.ArrowException)
"""What reading a header or a table raises whose content cannot be."""


def _refuse_other_shape(saved: SavedBucket, buckets: int, groups: Sequence[PartitionGroup]) -> None:
    if saved.buckets != buckets or len(saved.snapshots) != len(groups):
        raise ContainerError(
            f"it was written for {saved.buckets} buckets and {len(saved.snapshots)} partition groups; this run has"
            f" {buckets} and {len(groups)}"
        )
    for item in saved.held:
        refuse_impossible(item.arrivals, groups[item.group].plan)


def close_state(program: Program, state: BucketState) -> SavedBucket:
    """The state to save."""
    snapshots = tuple(engine.snapshot() for engine in state.engines)
    return SavedBucket(program.buckets, state.clock, snapshots, state.held)


def _held(header: Mapping[str, Any], tables: Sequence[memoryview]) -> tuple[GroupRecords, ...]:
    return tuple(
        GroupRecords(group, is_copy, source, rank, Arrivals.from_bytes(bytes(table)))
        for (group, is_copy, source, rank), table in zip(header["held"], tables, strict=True)
    )
