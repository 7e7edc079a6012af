"""A bucket's value in Spark's state: engines, clocks of sources, records that wait for their turn; opened and closed.

Takes a program, the bucket's number and the value; gives `Saved`, and back. Each engine lays out its own snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from querylang.errors import InputError
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from spark_backend.operator.job_clock import EARLIER, Clocks
from spark_backend.wire.container import ContainerError, pack, unpack
from spark_backend.wire.packed_rows import CONTROL, HOME, Part
from spark_backend.wire.program import Program

STATE_VERSION = 2
"""1 had one clock for all sources, and control events alone that waited."""

_USE = "state"
_LAST = 1 << 30
"""The place of the control stream in state of version 1: behind all others."""


@dataclass(frozen=True, slots=True)
class Saved:
    """`engines` by group; `held`: what was read before its turn."""

    engines: tuple[Engine, ...]
    clocks: Clocks = field(default_factory=Clocks)
    held: tuple[Part, ...] = ()


def open_state(program: Program, bucket: int, state: bytes | None) -> Saved:
    """The engines of a bucket: new ones, or as they were left.

    Raises InputError for a state of another version or number of buckets.
    """
    groups = program.groups(program.plan_index(bucket))
    # what is told once, the first bucket tells
    plans = [group.plan if bucket % program.buckets == HOME else replace(group.plan, stopped=()) for group in groups]
    if state is None:
        return Saved(tuple(Engine(plan, program.matcher, program.sources) for plan in plans))
    try:
        header, parts = unpack(_USE, STATE_VERSION, state, older=(1,))
    except ContainerError as error:
        raise InputError(f"the state of bucket {bucket} cannot be read: {error}") from error
    if header["buckets"] != program.buckets or header["groups"] != len(groups):
        raise InputError(
            f"the state of bucket {bucket} was written for {header['buckets']} buckets and {header['groups']} partition"
            f" groups; this run has {program.buckets} and {len(groups)}"
        )
    snapshots, held = parts[: header["groups"]], parts[header["groups"] :]
    engines = tuple(
        Engine.restore(plan, bytes(part), program.matcher, program.sources)
        for plan, part in zip(plans, snapshots, strict=True)
    )
    return Saved(engines, _clocks(header), _held(header, held))


def close_state(program: Program, saved: Saved) -> bytes:
    """The value to keep."""
    header = {
        "buckets": program.buckets,
        "groups": len(saved.engines),
        "clocks": saved.clocks.to_plain(),
        "held": [[part.group, part.is_copy, part.source, part.place] for part in saved.held],
    }
    held = [part.arrivals.to_bytes() for part in saved.held]
    return pack(_USE, STATE_VERSION, header, [*(engine.snapshot() for engine in saved.engines), *held])


def _clocks(header: Mapping[str, Any]) -> Clocks:
    if "clocks" in header:
        return Clocks.from_plain(header["clocks"])
    heard = header["heard"]
    return Clocks() if heard is None else Clocks.from_plain([[EARLIER, None, heard, heard, header["seen"]]])


def _held(header: Mapping[str, Any], tables: Sequence[memoryview]) -> tuple[Part, ...]:
    held = []
    for row, table in zip(header["held"], tables, strict=True):
        group, is_copy, source, place = (*row, CONTROL, _LAST)[:4]
        held.append(Part(group, is_copy, source, place, Arrivals.from_bytes(bytes(table))))
    return tuple(held)
