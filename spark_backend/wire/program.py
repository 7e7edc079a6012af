"""What the operator runs, as plain data: plans, number of buckets, clock; and how it travels to the workers.

A program normally holds one plan. Checks of many small cases put several plans in one: bucket numbers then count
through them (`plan_index`), so that one Spark job runs all cases at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

from querylang.plan.model import Plan
from spark_backend.job.settings import Clock
from spark_backend.wire.partition_groups import PartitionGroup
from spark_backend.wire.plan_text import fingerprint, load_groups, load_plan, plan_text


@dataclass(frozen=True, slots=True)
class Program:
    """`plans`: texts of `ship.plan_text`; `buckets`: a plan's buckets.

    `idle`, microseconds: with the clock `arrival`, a stream that was silent for longer lets time go on from there, this
    much behind the wall clock; None: only records move time. `matcher` and `sources` as `Engine` takes them.
    """

    plans: tuple[str, ...]
    buckets: int
    clock: Clock = Clock.ARRIVAL
    idle: int | None = None
    matcher: str = "auto"
    sources: tuple[str, ...] = ()

    @staticmethod
    def of(
        *plans: Plan,
        buckets: int,
        clock: Clock = Clock.ARRIVAL,
        idle: int | None = None,
        sources: Sequence[str] = (),
    ) -> Program:
        """A program for these plans."""
        texts = tuple(plan_text(plan) for plan in plans)
        return Program(texts, buckets, clock, idle, sources=tuple(sources))

    def fingerprint(self) -> str:
        """Names the plans; the same for equal plans."""
        return fingerprint("\n".join(self.plans))

    def plan_index(self, bucket: int) -> int:
        """Which plan a bucket belongs to."""
        return bucket // self.buckets

    def plan(self, index: int = 0) -> Plan:
        """A plan as an object."""
        return load_plan(self.plans[index])

    def groups(self, index: int = 0) -> tuple[PartitionGroup, ...]:
        """A plan's partition groups."""
        return load_groups(self.plans[index])

    @property
    def needs_timeouts(self) -> bool:
        """Whether time passes without records."""
        return self.clock is Clock.PROCESSING or self.idle is not None

    def to_text(self) -> str:
        """JSON text."""
        return json.dumps(asdict(self))


@lru_cache(maxsize=64)
def load_program(text: str) -> Program:
    """The inverse of `Program.to_text`; once a process."""
    data = json.loads(text)
    return Program(
        plans=tuple(data["plans"]),
        buckets=data["buckets"],
        clock=Clock(data["clock"]),
        idle=data["idle"],
        matcher=data["matcher"],
        sources=tuple(data["sources"]),
    )
