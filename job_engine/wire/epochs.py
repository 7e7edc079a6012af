"""The times between changes of a job's queries: which plan holds up to which arrival.

A record belongs to exactly one epoch, by its arrival. All buckets go from one epoch to the next
between the same two records, whatever the micro-batches are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.partition_groups import GroupName, PartitionGroup, group_name
from job_engine.wire.plan_text import load_plan
from querylang.plan.changes import Outcome
from querylang.plan.model import Plan, QueryPlan
from runtime.admission.selection import shared_selectors


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
    """

    number: int
    begins: int | None
    known: frozenset[str]
    heirs: Mapping[str, str]
    groups: tuple[PartitionGroup, ...] = field(default=())
    silent: frozenset[str] = frozenset()
    history: History | None = None
    behind: tuple[int, int, int] | None = None


@lru_cache(maxsize=16)
def epoch_stages(whole: str, epochs: tuple[Epoch, ...], sources: tuple[ClockSource, ...]) -> tuple[Stage, ...]:
    """The stages of a program; computed once per process.

    whole: the plan of all queries, as text
    """
    plan, until = load_plan(whole), epochs[-1].begins
    routers: dict[GroupName, QueryPlan] = {}
    for query in plan.queries:
        routers.setdefault(group_name(query, sources), query)
    stages = []
    for epoch in epochs:
        own = load_plan(epoch.plan)
        members: dict[GroupName, list[QueryPlan]] = {}
        for query in own.queries:
            members.setdefault(group_name(query, sources), []).append(query)
        groups = []
        for number, (name, router) in enumerate(routers.items()):
            queries = tuple(members.get(name, ()))
            part = Plan(plan.events, queries, () if number else own.stopped)
            selectors = shared_selectors(part)
            groups.append(PartitionGroup(number, part, selectors, *name, router=router, until=until))
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
    return tuple(stages)


def _silent(epochs: Sequence[Epoch], number: int) -> frozenset[str]:
    """The titles of queries that begin in a later epoch than this one."""
    later = (epoch.history for epoch in epochs if epoch.number > number and epoch.history is not None)
    return frozenset(title for history in later for title in history.titles)
