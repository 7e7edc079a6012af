"""The program of a job: the plans and settings that its buckets run, as JSON text.

A program normally has one plan. To check many small cases in one Spark job, it has a plan per
case: bucket numbers then count through all plans.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache

from querylang.plan.model import Plan
from spark_backend.wire.clock import Clock
from spark_backend.wire.partition_groups import PartitionGroup, partition_groups
from spark_backend.wire.plan_text import fingerprint, load_plan, plan_text


@dataclass(frozen=True, slots=True)
class Program:
    """What every bucket runs.

    plans: texts made by `plan_text`
    buckets: number of buckets per plan
    clock: what "now" is
    idle: µs without records after which a source partition no longer holds the clock back and
        advances at the pace of the wall clock; None = it always does. Only with the clock `arrival`
    matcher: which matcher runs, as `Engine` takes it
    """

    plans: tuple[str, ...]
    buckets: int
    clock: Clock = Clock.ARRIVAL
    idle: int | None = None
    matcher: str = "auto"

    @staticmethod
    def of(
        *plans: Plan,
        buckets: int,
        clock: Clock = Clock.ARRIVAL,
        idle: int | None = None,
    ) -> Program:
        """A program for these plans."""
        texts = tuple(plan_text(plan) for plan in plans)
        return Program(texts, buckets, clock, idle)

    def fingerprint(self) -> str:
        """A hash of the plans, equal for equal plans."""
        return fingerprint("\n".join(self.plans))

    def plan_index(self, bucket: int) -> int:
        """The plan that a bucket belongs to."""
        return bucket // self.buckets

    def plan(self, index: int = 0) -> Plan:
        """A plan as an object."""
        return load_plan(self.plans[index])

    def groups(self, index: int = 0) -> tuple[PartitionGroup, ...]:
        """The partition groups of a plan."""
        return _load_groups(self.plans[index])

    @property
    def needs_timeouts(self) -> bool:
        """Whether time advances without records, so that Spark must call buckets on its own."""
        return self.clock is Clock.PROCESSING or self.idle is not None

    def to_text(self) -> str:
        """The program as JSON text."""
        return json.dumps(asdict(self))


@lru_cache(maxsize=64)
def _load_groups(plan: str) -> tuple[PartitionGroup, ...]:
    """Computed once per process and plan."""
    return partition_groups(load_plan(plan))


@lru_cache(maxsize=64)
def load_program(text: str) -> Program:
    """The inverse of `Program.to_text`; parsed once per process."""
    data = json.loads(text)
    return Program(
        plans=tuple(data["plans"]),
        buckets=data["buckets"],
        clock=Clock(data["clock"]),
        idle=data["idle"],
        matcher=data["matcher"],
    )
