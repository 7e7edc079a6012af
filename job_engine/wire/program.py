"""The program of a job: the plans and settings that its buckets run, as JSON text.

A program normally has one plan. To check many small cases in one Spark job, it has a plan per
case: bucket numbers then count through all plans.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import count

import pyarrow as pa

from job_engine.wire.clock_sources import Clock, ClockSource, IdleTimes
from job_engine.wire.gathering import Gathered, GroupName, gathered_anew, group_names, router_of
from job_engine.wire.partition_groups import PartitionGroup, Routing, partition_groups
from job_engine.wire.plan_text import KeptTables, fingerprint, plan_text, plan_with_kept, without_looking
from querylang.dataclass import asdict, dataclass, field, replace
from querylang.plan.model import Plan, QueryPlan
from querylang.plan.routing import Outcome, has_chains
from runtime.admission import shared_selectors
from runtime.interpreter import event_numbers
from runtime.json_reader import json_of_text
from runtime.replay import Script

# The times between changes of a job's queries: which plan holds up to which arrival.
#
# A record belongs to exactly one epoch, by its arrival. All buckets go from one epoch to the next
# between the same two records, whatever the micro-batches are.


@dataclass(frozen=True, slots=True)
class History:
    """What queries have found in the records before they were deployed.

    folder: where the state of each bucket is; in a journal its name below the checkpoint
    titles: of the queries, which run in earlier epochs, too, but give nothing out there
    """

    folder: str
    titles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Epoch:
    """The time in which a plan holds.

    number: counts all changes of the checkpoint
    plan: as text
    begins: the place of the change, µs: records that arrived later belong to it; None = always
    heirs: as of `Engine.followed_by`
    history: of queries that begin here; None = they begin with empty windows
    behind: `_place`, `_partition` and `_offset` of the record that has asked for the change: those
        that arrived with it belong to it if they are behind; None = all of them are before
    """

    number: int
    plan: str
    begins: int | None = None
    heirs: tuple[tuple[str, str], ...] = ()
    history: History | None = None
    behind: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """What became of a change, to be reported among the outputs once.

    number: counts all notices of the checkpoint
    place: in the order of arrival, µs
    epoch: it is reported once all engines have got to the epoch of this number
    """

    number: int
    place: int
    outcomes: tuple[Outcome, ...]
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """An epoch with its partition groups.

    known: the names of the event types that are known in it
    silent: the titles of queries that give nothing out in it
    history: as of `Epoch`
    routing: where what queries route goes that cross; None = no queries of the program do
    """

    number: int
    begins: int | None
    known: frozenset[str]
    heirs: Mapping[str, str]
    groups: tuple[PartitionGroup, ...] = field(default=())
    silent: frozenset[str] = frozenset()
    history: History | None = None
    behind: tuple[int, int, int] | None = None
    routing: Routing | None = None


@lru_cache(maxsize=16)
def epoch_stages(
    whole: str,
    epochs: tuple[Epoch, ...],
    sources: tuple[ClockSource, ...],
    gathered: Gathered,
    tables: KeptTables,
    *,
    crosses: bool,
) -> tuple[Stage, ...]:
    """The stages of a program; computed once per process.

    whole: the plan of all queries, as text
    gathered, tables, crosses: as of `Program`
    """
    plan, until = plan_with_kept(whole, tables), epochs[-1].begins
    all_members: dict[GroupName, list[QueryPlan]] = {}
    names = group_names(plan.queries, sources, gathered)
    for query in plan.queries:
        all_members.setdefault(names[query.title], []).append(query)
    routers = {name: router_of(queries) for name, queries in all_members.items()}
    numbers = event_numbers(plan)
    heartbeats = {
        name: tuple(
            sorted({numbers[item.heartbeat.event] for query in queries for item in query.inputs if item.heartbeat})
        )
        for name, queries in all_members.items()
    }
    stages = []
    for epoch in epochs:
        own = plan_with_kept(epoch.plan, tables)
        members: dict[GroupName, list[QueryPlan]] = {}
        for query in own.queries:
            members.setdefault(names[query.title], []).append(query)
        groups = []
        for number, (name, router) in enumerate(routers.items()):
            queries = tuple(members.get(name, ()))
            part = Plan(plan.events, queries, () if number else own.stopped)
            selectors = shared_selectors(without_looking(part))
            groups.append(
                PartitionGroup(number, part, selectors, *name, router=router, until=until, alive=heartbeats[name])
            )
        stages.append(
            Stage(
                epoch.number,
                epoch.begins,
                frozenset(event.name for event in own.events),
                dict(epoch.heirs),
                tuple(groups),
                _silent(epochs, epoch.number),
                epoch.history,
                epoch.behind,
            )
        )
    if len(epochs) == 1:  # nothing of other queries can come any more
        only = stages[0]
        stages = [replace(only, groups=tuple(replace(group, until=None) for group in only.groups))]
    return _with_routings(stages) if crosses else tuple(stages)


def _with_routings(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages; groups whose queries cross in one of them take part in all."""
    found = [Routing.of(stage.groups) for stage in stages]
    taking_part = tuple(sorted({number for routing in found for number in routing.groups}))
    if not taking_part:
        return tuple(stages)
    return tuple(
        replace(stage, routing=replace(routing, groups=taking_part))
        for stage, routing in zip(stages, found, strict=True)
    )


def _silent(epochs: Sequence[Epoch], number: int) -> frozenset[str]:
    """The titles of queries that begin in a later epoch than this one."""
    later = (epoch.history for epoch in epochs if epoch.number > number and epoch.history is not None)
    return frozenset(title for history in later for title in history.titles)


# The numbers by which Spark knows buckets, so that each of its tasks has equally many of them.
#
# Spark divides rows among tasks by a hash of their bucket's number. Of the buckets 0 to 3, two
# tasks would have one and three. A label is a number whose hash leads to the wanted task. A
# checkpoint keeps its labels for good: state is found by them.

_BITS = 0xFFFFFFFF


@lru_cache(maxsize=64)
def bucket_labels(buckets: int, tasks: int | None) -> tuple[int, ...]:
    """The label of each bucket; tasks: as in `Program`."""
    if tasks is None:
        return tuple(range(buckets))
    labels: list[int] = []
    for label in count():
        if len(labels) == buckets:
            break
        if task_of(label, tasks) == len(labels) % tasks:
            labels.append(label)
    return tuple(labels)


@lru_cache(maxsize=64)
def buckets_by_label(buckets: int, tasks: int | None) -> Mapping[int, int]:
    """The inverse of `bucket_labels`."""
    return {label: bucket for bucket, label in enumerate(bucket_labels(buckets, tasks))}


def last_label(label: int, buckets: int, tasks: int) -> int:
    """The largest label of a label's task, which Spark calls last."""
    own = task_of(label, tasks)
    return max(other for other in bucket_labels(buckets, tasks) if task_of(other, tasks) == own)


def task_of(label: int, tasks: int) -> int:
    """The task that Spark gives rows with this integer to."""
    return _spark_hash(label) % tasks


def _spark_hash(number: int) -> int:
    """Spark's `hash` of one integer: Murmur3 with the seed 42."""
    mixed = _rotated(number * 0xCC9E2D51 & _BITS, 15) * 0x1B873593 & _BITS
    result = _rotated(42 ^ mixed, 13) * 5 + 0xE6546B64 & _BITS
    result ^= 4  # the integer's length in bytes
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        result = (result ^ result >> shift) * factor & _BITS
    result ^= result >> 16
    return result - (1 << 32) if result >> 31 else result


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _BITS


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
    feeds: whether what queries route reaches others; else it is an output only
    gathered: the groups of queries that feed each other; None = as of a new job
    crosses: whether what queries route may go from bucket to bucket within a micro-batch
    tables: what tables beside the stream hold
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
    feeds: bool = True
    gathered: Gathered | None = None
    crosses: bool = False
    tables: KeptTables = ()

    @staticmethod
    def of(
        *plans: Plan,
        buckets: int,
        clock: Clock = Clock.ARRIVAL,
        idle: int | None = None,
        sources: Sequence[ClockSource] = (),
        is_bounded: bool = False,
        nulls: NullRule = NullRule.PLAN,
        crosses: bool = False,
    ) -> Program:
        """A program for these plans."""
        texts = tuple(plan_text(plan) for plan in plans)
        gathered = gathered_anew(plans[0], sources, crosses=crosses) if len(plans) == 1 else None
        return Program(
            texts, buckets, clock, idle, tuple(sources), is_bounded, nulls=nulls, gathered=gathered, crosses=crosses
        )

    def fingerprint(self) -> str:
        """A hash of the plans, equal for equal plans."""
        return fingerprint(*self.plans)

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
        return plan_with_kept(self.plans[index], self.tables)

    def groups(self, index: int = 0) -> tuple[PartitionGroup, ...]:
        """The partition groups of a plan; those of the last epoch, if there are any."""
        if self.epochs:
            return self.stages[-1].groups
        return _load_groups(self.plans[index], self.sources, self.gathered, self.tables)

    def routing(self, index: int = 0) -> Routing | None:
        """That of a plan, as of `Stage`; of the last epoch, if there are any."""
        if self.epochs or not self.crosses:
            return self.stages[-1].routing if self.epochs else None
        return _load_routing(self.plans[index], self.sources, self.gathered, self.tables)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The groups of each epoch; the groups of a number have the same name in all of them."""
        return epoch_stages(
            self.plans[0], self.epochs, self.sources, self.gathered or (), self.tables, crosses=self.crosses
        )

    @property
    def names(self) -> Mapping[str, GroupName]:
        """The names of the groups of all queries, by title."""
        return _load_names(self.plans[0], self.sources, self.gathered or (), self.tables)

    def running(self) -> Plan:
        """The queries that run in the end."""
        return plan_with_kept(self.epochs[-1].plan, self.tables) if self.epochs else self.plan()

    def titles_since(self, epoch: int) -> frozenset[str]:
        """The public titles of queries that run in some epoch whose number is at least this one."""
        left = [own for own in self.epochs if own.number >= epoch]
        plans = [plan_with_kept(own.plan, self.tables) for own in left] or [self.plan()]
        return frozenset(query.public_title for plan in plans for query in plan.queries)

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

    @property
    def waits_for_all(self) -> bool:
        """Whether time waits for each partition, or follows from no record at all."""
        return self.clock is Clock.PROCESSING or not self.idle_times.has_any

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
def _load_groups(
    plan: str, sources: tuple[ClockSource, ...], gathered: Gathered | None, tables: KeptTables
) -> tuple[PartitionGroup, ...]:
    """Computed once per process and plan; gathered: as of `partition_groups`."""
    return partition_groups(plan_with_kept(plan, tables), sources, gathered)


@lru_cache(maxsize=64)
def _load_routing(
    plan: str, sources: tuple[ClockSource, ...], gathered: Gathered | None, tables: KeptTables
) -> Routing | None:
    if not has_chains(plan_with_kept(plan, tables).queries):
        return None
    found = Routing.of(_load_groups(plan, sources, gathered, tables))
    return found if found.groups else None


@lru_cache(maxsize=64)
def _load_names(
    plan: str, sources: tuple[ClockSource, ...], gathered: Gathered, tables: KeptTables
) -> Mapping[str, GroupName]:
    return group_names(plan_with_kept(plan, tables).queries, sources, gathered)


@lru_cache(maxsize=64)
def load_program(text: str) -> Program:
    """The inverse of `Program.to_text`; parsed once per process."""
    return json_of_text(text, Program)


# The program of bounded records whose control events change the queries: known before it runs.


def with_script(program: Program, script: Script, records: pa.Table) -> Program:
    """A program that goes from plan to plan where control events say so.

    program: for the plan of the script
    records: those that the numbers of the script count
    """
    epochs = tuple(_epochs(script, records))
    return replace(program, epochs=epochs, notices=tuple(_notices(script)), has_changes=True)


def _epochs(script: Script, records: pa.Table) -> Iterator[Epoch]:
    for number, item in enumerate(script.epochs):
        events = tuple(event for event in script.plan.events if event.name in item.known)
        plan = replace(item.plan, events=events, stopped=() if number else item.plan.stopped)
        epoch = Epoch(number, plan_text(plan), item.begins, tuple(sorted(item.heirs.items())))
        if number and item.begins is None:
            change = records.slice(item.first - 1, 1).to_pylist()[0]
            behind = change["_place"], change["_partition"], change["_offset"]
            epoch = replace(epoch, begins=change["_arrival"], behind=behind)
        yield epoch


def _notices(script: Script) -> Iterator[Notice]:
    """Those of control events are reported at once, those of time once it has come."""
    epoch = 0
    for number, notice in enumerate(script.notices, 1):
        epoch += not notice.is_refused
        yield Notice(number, notice.place, notice.outcomes, 0 if notice.record is not None else epoch)
