"""Let queries that have run over the history continue in the buckets of a job.

What the history has left is a state of each bucket, for these queries alone, read up to where the
job was when they were deployed. The bucket takes it over before it processes anything else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from job_engine.durable_files import RESTORE, JobFile
from job_engine.operator.bucket_state import BucketState, SavedBucket, read_seed, refuse_impossible, unjoined
from job_engine.operator.epoch_records import QueriesAt
from job_engine.operator.processing import GroupRounds, in_rounds, with_routing
from job_engine.place import place_of
from job_engine.wire.gathering import GroupName
from job_engine.wire.packed_rows import COMMANDS, CONTROL, HOME, Coordinates, GroupRecords
from job_engine.wire.partition_groups import Exchange, PartitionGroup, Routing, count_uses
from job_engine.wire.program import History, Program, Stage
from job_engine.wire.reports import clock_partitions
from querylang.dataclass import dataclass, replace
from querylang.plan.routing import feeders
from runtime.columns.arrivals import Arrivals
from runtime.engine import Engine
from runtime.instants import NEVER, NO_TIME
from runtime.results.ledger import RECEIVED, Account, ledger_table

ACCOUNT = "account.json"
"""The file with the counts of the history, which bucket HOME reports."""


def with_histories(
    program: Program, bucket: int, state: BucketState, *, is_new: bool
) -> Exchange[tuple[BucketState, list[pa.Table]]]:
    """A bucket's state whose queries have their histories, and changes of the ledger.

    is_new: the bucket has never been called
    """
    if not program.epochs:
        return state, []
    changes: list[pa.Table] = []
    for stage in unjoined(program, state.joined):
        assert stage.history is not None, "it has one"
        joining = _Joining(program, bucket, stage, stage.history, is_new=is_new)
        state = yield from joining.joined(state)
        changes += joining.ledger()
    return state, changes


def read_account(folder: str) -> list[tuple[str, str, str, int]]:
    """The counts of a history, by query, source and word; raises InputError."""
    return account_file(folder).needed()


def account_file(folder: str) -> JobFile[list[tuple[str, str, str, int]]]:
    """The counts of a history, below its folder."""
    missing = "is missing: it has the counts of a history"
    return JobFile(place_of(folder) / ACCOUNT, list[tuple[str, str, str, int]], RESTORE, missing=missing)


@dataclass(frozen=True, slots=True)
class _Past:
    """What the history has left of a partition group.

    group: of the job
    engine: has the queries that have run over the history
    begins: whether the bucket has run no other queries of the group
    goal: an engine of the bucket whose clock is where those queries continue; None = they do where
        they are
    early: records that come before that clock
    left: records that are still to be processed
    """

    group: PartitionGroup
    engine: Engine
    begins: bool
    goal: Engine | None
    early: Sequence[GroupRecords]
    left: Sequence[GroupRecords]

    def caught_up(self, routing: Routing | None) -> GroupRounds[None]:
        """Let the engine advance to its goal; what it gives until there is not given out.

        routing: of the queries that have run over the history, if those of the group cross
        """
        self.engine.cross(None if routing is None else routing.crossing)
        arrivals = Arrivals.concat([Arrivals.empty(self.group.plan), *(item.arrivals for item in self.early)])
        yield from with_routing(self.engine.catch_up(self.goal or self.engine, arrivals), routing)


class _Joining:
    """Joins one history to one bucket."""

    def __init__(self, program: Program, bucket: int, stage: Stage, history: History, *, is_new: bool) -> None:
        self._program, self._stage, self._history, self._is_new = program, stage, history, is_new
        self._groups = program.stages[0].groups
        self._is_home = bucket % program.buckets == HOME
        self._saved = SavedBucket.from_bytes(read_seed(place_of(history.folder), bucket))
        self._ran = _that_ran(stage, history, [name for name, _ in self._saved.names])
        self._routing = Routing.of(self._ran) if program.crosses else None
        self._account: Account = Account()
        self._tables: list[pa.Table] = []

    def ledger(self) -> list[pa.Table]:
        """Changes of the ledger by all that was joined."""
        counts = read_account(self._history.folder) if self._is_home else ()
        for query, source, word, count in counts:
            self._account[query, source, word] += count
        return [*self._tables, ledger_table(self._account)]

    def joined(self, state: BucketState) -> Exchange[BucketState]:
        """The state with what the history has left."""
        pasts = self._pasts(state)
        crossing = () if self._routing is None else self._routing.groups
        work = [past.caught_up(self._routing if place in crossing else None) for place, past in enumerate(pasts)]
        yield from in_rounds(self._program.buckets, self._routing, work)
        held, engines = list(state.held), list(state.engines)
        for past in pasts:
            group, titles = past.group, self._titles_of(past.group)
            if not titles:  # its queries only feed others, and run in the job
                continue
            engines[group.number], counted = engines[group.number].joined_by(
                past.engine, self._titles, begins=past.begins
            )
            self._tables.append(counted)
            for item in past.early if not self._is_home else ():
                if item.is_copy:  # bucket HOME counts it
                    self._take_back(item, titles, group)
            there = [item for item in held if item.group == group.number]
            held = [item for item in held if item.group != group.number]
            if past.begins:  # nobody else runs here, and the history has processed what it does not hold
                known = _coordinates(past.left)
                there = [item.chosen(_are_in(item, known)) for item in there]
                there = [item for item in there if len(item.arrivals)]
            held += [_counted_too(item, titles) for item in there]
            held += self._held_too(there, _coordinates(there), past.left, group)
        return replace(state, engines=tuple(engines), held=tuple(held), joined=self._stage.number)

    def _pasts(self, state: BucketState) -> list[_Past]:
        """What the history has left, by the groups of the history."""
        groups = [next(group for group in self._groups if group.name == own.name) for own in self._ran]
        engines = [state.engines[group.number] for group in groups]
        begins = [self._is_new or {query.title for query in own.plan.queries} <= self._titles for own in engines]
        crossing = () if self._routing is None else self._routing.groups
        # groups that cross have one clock, or have passed it where timers were run to their end
        running = (engines[place] for place in crossing if not begins[place])
        first = min(running, key=_clock, default=None)
        goals = [
            engine if not begins[place] else first if place in crossing else None
            for place, engine in enumerate(engines)
        ]
        records = [[*self._records(place, group)] for place, group in enumerate(groups)]
        released = {
            place
            for group, engine, own in zip(groups, engines, records, strict=True)
            for place in self._released_at_the_clock(group, engine, own, state.held)
        }
        found = []
        for own, group, goal, is_new, held in zip(self._ran, groups, goals, begins, records, strict=True):
            engine = Engine.restore(own.plan, self._saved.snapshots[own.number], self._program.matcher)
            is_early = [self._are_early(item, _clock(goal), released) for item in held]
            early = [item.chosen(rows) for item, rows in zip(held, is_early, strict=True)]
            left = [item.chosen(~rows) for item, rows in zip(held, is_early, strict=True)]
            found.append(_Past(group, engine, is_new, goal, early, [item for item in left if len(item.arrivals)]))
        return found

    def _released_at_the_clock(
        self, group: PartitionGroup, engine: Engine, records: Sequence[GroupRecords], held: Sequence[GroupRecords]
    ) -> Iterator[tuple[str, int, int]]:
        """The source partitions of which the group has processed what arrived at its clock, and the
        clock. That is so where time does not wait for other sources, which are silent.

        records: that the history holds
        held: by the bucket
        """
        known = _coordinates([item for item in held if item.group == group.number])
        titles = {query.title for query in engine.plan.queries} - self._titles
        for item in records:
            uses = {title: use for title, use in group.uses(item.arrivals).items() if title in titles}
            if not uses:
                continue
            is_wanted = group.is_wanted(uses, refuses=False) & ~_are_in(item, known)
            is_released = is_wanted & (item.arrivals.system("arrival") == _clock(engine))
            yield from ((item.source, int(own), _clock(engine)) for own in self._partitions(item)[is_released])

    def _are_early(
        self, item: GroupRecords, clock: int, released: Collection[tuple[str, int, int]]
    ) -> NDArray[np.bool_]:
        """Which records come before a clock, or were processed at it, because time has not waited
        for silent sources."""
        arrival = item.arrivals.system("arrival")
        is_released = np.array([(item.source, own, clock) in released for own in self._partitions(item)], np.bool_)
        return (arrival < clock) | ((arrival == clock) & is_released)

    def _partitions(self, item: GroupRecords) -> NDArray[np.int64]:
        return clock_partitions(item.arrivals, by_topic=item.source in self._program.topic_sources)

    def _records(self, place: int, group: PartitionGroup) -> Iterator[GroupRecords]:
        """What the history holds of a group."""
        for item in self._saved.held:
            if item.group == place:
                refuse_impossible(item.arrivals, group.plan)
                # what no query can read the job itself reports
                yield replace(item, group=group.number, refuses=False)

    @property
    def _titles(self) -> set[str]:
        return set(self._history.titles)

    @property
    def _later(self) -> set[str]:
        """The titles of queries whose histories are joined behind this one, and counted then."""
        later = [own.history for own in self._program.stages if own.number > self._stage.number and own.history]
        return {title for history in later for title in history.titles}

    def _held_too(
        self,
        held: Sequence[GroupRecords],
        known: Collection[Coordinates],
        records: Sequence[GroupRecords],
        group: PartitionGroup,
    ) -> list[GroupRecords]:
        """The held records of the history that the bucket does not hold, because no query needed
        them; those that only one side holds were counted by the other."""
        own = _coordinates(records)
        self._count(records, [*self._titles_of(group)], group, is_counted=False)
        chosen = (item.chosen(~_are_in(item, known)) for item in records)
        queries = QueriesAt.of(self._program, self._groups, but=self._later)
        missing = queries.counted([item for item in chosen if len(item.arrivals)])
        for item in missing:
            for arrivals, titles in queries.of_counted(item):  # of queries that have ended before, none is counted
                others = [title for title in titles if title not in self._titles]
                self._count([replace(item, arrivals=arrivals)], others, group, is_counted=True)
        only_held = [item.chosen(~_are_in(item, own)) for item in held]
        self._count(only_held, self._titles_of(group), group, is_counted=True)
        return [*missing]

    def _titles_of(self, group: PartitionGroup) -> list[str]:
        return [query.title for query in group.plan.queries if query.title in self._titles]

    def _count(
        self, records: Sequence[GroupRecords], titles: Sequence[str], group: PartitionGroup, *, is_counted: bool
    ) -> None:
        """Count held records for queries as pending.

        is_counted: they were counted as not needed
        """
        for item in records:
            if (item.is_copy and not self._is_home) or not len(item.arrivals) or not titles:
                continue
            for source in item.arrivals.table.column("_source").value_counts().to_pylist():
                for title in titles:
                    self._account[title, source["values"], RECEIVED] += source["counts"]
                    self._account[title, source["values"], "pending"] += source["counts"]
            if is_counted and item.source not in (CONTROL, COMMANDS):
                self._take_back(item, titles, group)

    def _take_back(self, item: GroupRecords, titles: Collection[str], group: PartitionGroup) -> None:
        """Take back what records were counted as."""
        uses = {title: use for title, use in group.uses(item.arrivals).items() if title in titles}
        self._account.subtract(count_uses(item.arrivals, uses, np.ones(len(item.arrivals), np.bool_)))


def _that_ran(stage: Stage, history: History, names: Sequence[GroupName]) -> tuple[PartitionGroup, ...]:
    """The groups of a history, with the queries that have run over it: those that have it, and what
    feeds them; `names`: of its groups, in order."""
    queries = [query for group in stage.groups for query in group.plan.queries]
    own = {query.name for query in queries if query.title in history.titles}
    ran = {*history.titles, *(query.title for query in queries if query.name in feeders(queries, own))}
    by_name = {group.name: group for group in stage.groups}
    return tuple(
        replace(
            by_name[name],
            number=number,
            plan=replace(
                by_name[name].plan,
                queries=tuple(query for query in by_name[name].plan.queries if query.title in ran),
                stopped=(),
            ),
        )
        for number, name in enumerate(names)
    )


def _clock(engine: Engine | None) -> int:
    """Where an engine is in time, µs; NO_TIME = at no time yet."""
    return NO_TIME if engine is None or engine.clock is None else engine.clock


def _counted_too(item: GroupRecords, titles: Sequence[str]) -> GroupRecords:
    """Held records that more queries count."""
    if item.counted is None:
        return item
    counted = item.counted or ((NEVER, ()),)
    return replace(item, counted=tuple((end, (*before, *titles)) for end, before in counted))


def _coordinates(records: Sequence[GroupRecords]) -> set[Coordinates]:
    return {place for item in records for place in item.coordinates()}


def _are_in(records: GroupRecords, known: Collection[Coordinates]) -> NDArray[np.bool_]:
    return np.array([place in known for place in records.coordinates()], np.bool_)
