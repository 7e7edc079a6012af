"""The program of a job: the plans and settings that its buckets run, as JSON text.

A program normally has one plan. To check many small cases in one Spark job, it has a plan per
case: bucket numbers then count through all plans.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import lru_cache

from job_engine.wire.bucket_labels import bucket_labels, buckets_by_label
from job_engine.wire.clock import Clock
from job_engine.wire.clock_sources import ClockSource, IdleTimes
from job_engine.wire.epochs import Epoch, Notice, Stage, epoch_stages
from job_engine.wire.partition_groups import PartitionGroup, partition_groups
from job_engine.wire.plan_text import fingerprint, load_plan, plan_text
from querylang.plan.model import Plan
from runtime.json_reader import json_of_text


class NullRule(StrEnum):
    """Who says which rule for nulls the queries go by (`QueryPlan.nulls_fail`)."""

    PLAN = "plan"
    """The plan: a job keeps it in its checkpoint."""
    STATE = "state"
    """The state of each bucket. One that does not say so, has the rule of earlier versions."""
    APPLIED = "applied"
    """The plan, from now on, and the state keeps it."""


@dataclass(frozen=True, slots=True)
class Program:
    """What every bucket runs.

    plans: texts made by `plan_text`
    buckets: number of buckets per plan
    clock: what "now" is
    idle: µs of silence after which time advances without a source that is not among `sources`; None
        = never. Only with the clock `arrival`
    sources: what is known of them; none = each query waits for all that appear
    is_bounded: whether the input is complete, so that it is taken in order of arrival
    matcher: which matcher runs, as `Engine` takes it
    tasks: number of tasks of Spark that the buckets are divided among; None = not known, and Spark
        knows buckets by their own numbers
    epochs: the times between changes of the queries, oldest first; its only plan then has all
        queries of all of them. None of them = the queries never change
    notices: what became of changes, in order
    before: how many micro-batches the job had before the driver began to count them
    seeds: where the state of each bucket is that was not called yet; None = it has none
    live: whether the control stream may change the queries
    has_changes: whether control events that change queries are those of `epochs`, which then go
        up to their records
    nulls: who says the rule for nulls
    """

    plans: tuple[str, ...]
    buckets: int
    clock: Clock = Clock.ARRIVAL
    idle: int | None = None
    sources: tuple[ClockSource, ...] = ()
    is_bounded: bool = False
    matcher: str = "auto"
    tasks: int | None = None
    epochs: tuple[Epoch, ...] = ()
    notices: tuple[Notice, ...] = ()
    before: int = 0
    seeds: str | None = None
    live: bool = False
    has_changes: bool = False
    nulls: NullRule = NullRule.PLAN

    @staticmethod
    def of(
        *plans: Plan,
        buckets: int,
        clock: Clock = Clock.ARRIVAL,
        idle: int | None = None,
        sources: Sequence[ClockSource] = (),
        is_bounded: bool = False,
        nulls: NullRule = NullRule.PLAN,
    ) -> Program:
        """A program for these plans."""
        texts = tuple(plan_text(plan) for plan in plans)
        return Program(texts, buckets, clock, idle, tuple(sources), is_bounded, nulls=nulls)

    def fingerprint(self) -> str:
        """A hash of the plans, equal for equal plans."""
        return fingerprint("\n".join(self.plans))

    def plan_index(self, bucket: int) -> int:
        """The plan that a bucket belongs to."""
        return bucket // self.buckets

    @property
    def labels(self) -> tuple[int, ...]:
        """The numbers by which Spark knows the buckets."""
        return bucket_labels(self.buckets, self.tasks)

    def bucket(self, label: int) -> int:
        """The bucket that Spark knows by a number."""
        return label if self.tasks is None else buckets_by_label(self.buckets, self.tasks)[label]

    def plan(self, index: int = 0) -> Plan:
        """A plan as an object."""
        return load_plan(self.plans[index])

    def groups(self, index: int = 0) -> tuple[PartitionGroup, ...]:
        """The partition groups of a plan; those of the last epoch, if there are any."""
        return self.stages[-1].groups if self.epochs else _load_groups(self.plans[index], self.sources)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The groups of each epoch; the groups of a number have the same name in all of them."""
        return epoch_stages(self.plans[0], self.epochs, self.sources)

    def running(self) -> Plan:
        """The queries that run in the end."""
        return load_plan(self.epochs[-1].plan) if self.epochs else self.plan()

    @property
    def idle_times(self) -> IdleTimes:
        """When time advances without a silent source."""
        return IdleTimes({item.name: item.idle for item in self.sources}, self.idle)

    @property
    def policies_idle_times(self) -> IdleTimes:
        """The same as far as ordering policies say so, and not the user."""
        return IdleTimes({item.name: item.idle for item in self.sources if item.is_policy})

    def ahead_of(self, source: str) -> int | None:
        """How much later than the micro-batch its records may arrive, µs; None = no limit."""
        return next((item.ahead for item in self.sources if item.name == source), None)

    @property
    def topic_sources(self) -> frozenset[str]:
        """The names of the sources whose records are messages of topics."""
        return frozenset(item.name for item in self.sources if item.by_topic)

    @property
    def file_sources(self) -> frozenset[str]:
        """The names of the sources whose records are in files."""
        return frozenset(item.name for item in self.sources if item.in_files)

    def without_idle(self) -> Program:
        """The same for input that is there already: the wall clock says nothing about it."""
        return replace(self, idle=None, sources=tuple(replace(item, idle=None) for item in self.sources))

    @property
    def needs_timeouts(self) -> bool:
        """Whether time advances without records, so that buckets must be called for it."""
        return self.clock is Clock.PROCESSING or self.idle_times.has_any

    def to_text(self) -> str:
        """The program as JSON text."""
        return json.dumps(asdict(self))


@lru_cache(maxsize=64)
def _load_groups(plan: str, sources: tuple[ClockSource, ...]) -> tuple[PartitionGroup, ...]:
    """Computed once per process and plan."""
    return partition_groups(load_plan(plan), sources)


@lru_cache(maxsize=64)
def load_program(text: str) -> Program:
    """The inverse of `Program.to_text`; parsed once per process."""
    return json_of_text(text, Program)
