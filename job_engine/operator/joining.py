"""Let queries that have run over the history continue in the buckets of a job.

What the history has left is a state of each bucket, for these queries alone, read up to where the
job was when they were deployed. The bucket takes it over before it processes anything else.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from job_engine.durable_files import RESTORE, JobFile
from job_engine.operator.bucket_state import BucketState, SavedBucket, read_seed, refuse_impossible, unjoined
from job_engine.places.place import place_of
from job_engine.wire.packed_rows import COMMANDS, CONTROL, HOME, GroupRecords
from job_engine.wire.partition_groups import PartitionGroup, count_uses
from job_engine.wire.program import History, Program, Stage
from querylang.plan.model import Plan
from querylang.plan.routing import feeders
from runtime.columns.arrivals import Arrivals
from runtime.engine import Engine
from runtime.instants import NEVER
from runtime.results.ledger import RECEIVED, Account, ledger_table

ACCOUNT = "account.json"
"""The file with the counts of the history, which bucket HOME reports."""


def with_histories(
    program: Program, bucket: int, state: BucketState, *, is_new: bool
) -> tuple[BucketState, list[pa.Table]]:
    """A bucket's state whose queries have their histories, and changes of the ledger.

    is_new: the bucket has never been called
    """
    if not program.epochs:
        return state, []
    changes: list[pa.Table] = []
    for stage in unjoined(program, state.joined):
        assert stage.history is not None, "it has one"
        joining = _Joining(program, bucket, stage, stage.history, is_new=is_new)
        state = joining.joined(state)
        changes += joining.ledger()
    return state, changes


def read_account(folder: str) -> list[tuple[str, str, str, int]]:
    """The counts of a history, by query, source and word; raises InputError."""
    return account_file(folder).needed()


def account_file(folder: str) -> JobFile[list[tuple[str, str, str, int]]]:
    """The counts of a history, below its folder."""
    missing = "is missing: it has the counts of a history"
    return JobFile(place_of(folder) / ACCOUNT, list[tuple[str, str, str, int]], RESTORE, missing=missing)


class _Joining:
    """Joins one history to one bucket."""

    def __init__(self, program: Program, bucket: int, stage: Stage, history: History, *, is_new: bool) -> None:
        self._program, self._stage, self._history, self._is_new = program, stage, history, is_new
        self._groups = program.stages[0].groups
        self._is_home = bucket % program.buckets == HOME
        self._saved = SavedBucket.from_bytes(read_seed(place_of(history.folder), bucket))
        self._account: Account = Account()
        self._tables: list[pa.Table] = []

    def ledger(self) -> list[pa.Table]:
        """Changes of the ledger by all that was joined."""
        counts = read_account(self._history.folder) if self._is_home else ()
        for query, source, word, count in counts:
            self._account[query, source, word] += count
        return [*self._tables, ledger_table(self._account)]

    def joined(self, state: BucketState) -> BucketState:
        """The state with what the history has left."""
        held, engines = list(state.held), list(state.engines)
        numbers = {group.name: group.number for group in self._groups}
        for place, (name, _) in enumerate(self._saved.names):
            group = self._groups[numbers[name]]
            # what no query can read the job itself reports
            own = (item for item in self._saved.held if item.group == place)
            records = [replace(item, group=group.number, refuses=False) for item in own]
            for item in records:
                refuse_impossible(item.arrivals, group.plan)
            snapshot, before = self._saved.snapshots[place], engines[group.number]
            engines[group.number], left = self._engine_joined(group, before, snapshot, records)
            there = [item for item in held if item.group == group.number]
            held = [item for item in held if item.group != group.number]
            held += [_counted_too(item, self._titles_of(group)) for item in there]
            held += self._held_too(there, _coordinates(there), left, group)
        return replace(state, engines=tuple(engines), held=tuple(held), joined=self._stage.number)

    def _engine_joined(
        self, group: PartitionGroup, engine: Engine, snapshot: bytes, records: Sequence[GroupRecords]
    ) -> tuple[Engine, list[GroupRecords]]:
        """The engine with the queries of a group; the records that are still to be processed."""
        queries = group.plan.queries
        names = {query.name for query in queries if query.title in self._titles}
        feeding = feeders(queries, names)
        own = Plan(
            group.plan.events,
            tuple(query for query in queries if query.title in self._titles or query.name in feeding),
        )
        other = Engine.restore(own, snapshot, self._program.matcher)
        begins = self._is_new or {query.title for query in engine.plan.queries} <= self._titles
        clock = None if begins else engine.clock
        left = []
        for item in records:  # without this, time would have gone on without sources that are silent
            is_early = np.zeros(len(item.arrivals), np.bool_)
            if clock is not None:
                is_early = item.arrivals.system("arrival") < clock
            if is_early.any():
                other.process(_chosen(item, is_early).arrivals)
            left.append(_chosen(item, ~is_early))
        together, counted = engine.joined_by(other, self._titles, begins=begins)
        self._tables.append(counted)
        return together, [item for item in left if len(item.arrivals)]

    @property
    def _titles(self) -> set[str]:
        return set(self._history.titles)

    def _held_too(
        self,
        held: Sequence[GroupRecords],
        known: Collection[tuple[str, int, int]],
        records: Sequence[GroupRecords],
        group: PartitionGroup,
    ) -> list[GroupRecords]:
        """The held records of the history that the bucket does not hold, because no query needed
        them; those that only one side holds were counted by the other."""
        own = _coordinates(records)
        others = [query.title for query in group.plan.queries if query.title not in self._titles]
        self._count(records, [*self._titles_of(group)], group, is_counted=False)
        missing = [_chosen(item, ~_are_in(item, known)) for item in records]
        missing = [replace(item, counted=None) for item in missing if len(item.arrivals)]
        self._count(missing, others, group, is_counted=True)
        only_held = [_chosen(item, ~_are_in(item, own)) for item in held]
        self._count(only_held, self._titles_of(group), group, is_counted=True)
        return missing

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
                uses = {title: use for title, use in group.uses(item.arrivals).items() if title in titles}
                self._account.subtract(count_uses(item.arrivals, uses, np.ones(len(item.arrivals), np.bool_)))


def _counted_too(item: GroupRecords, titles: Sequence[str]) -> GroupRecords:
    """Held records that more queries count."""
    if item.counted is None:
        return item
    counted = item.counted or ((NEVER, ()),)
    return replace(item, counted=tuple((end, (*before, *titles)) for end, before in counted))


def _coordinates(records: Sequence[GroupRecords]) -> set[tuple[str, int, int]]:
    return {place for item in records for place in _places(item.arrivals)}


def _places(arrivals: Arrivals) -> list[tuple[str, int, int]]:
    table = arrivals.table.select(["_source", "_partition", "_offset"])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _are_in(records: GroupRecords, known: Collection[tuple[str, int, int]]) -> NDArray[np.bool_]:
    return np.array([place in known for place in _places(records.arrivals)], np.bool_)


def _chosen(records: GroupRecords, rows: NDArray[np.bool_]) -> GroupRecords:
    return replace(records, arrivals=records.arrivals.take(np.flatnonzero(rows)))
