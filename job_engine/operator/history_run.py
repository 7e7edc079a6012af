"""All buckets of a job without its driver: queries run over a history, states move to others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

import numpy as np
import pyarrow as pa

from job_engine.operator.bucket_state import (
    SavedBucket,
    close_state,
    open_state,
    read_seed,
    seeds_of,
    unjoined,
    write_seeds,
)
from job_engine.operator.clocks import JobClock, SourceWatermark
from job_engine.operator.epoch_records import QueriesAt
from job_engine.operator.joining import account_file, read_account
from job_engine.operator.releasing import held_ledger
from job_engine.operator.step import OpenBucket, SeenStep, open_bucket, run_open_step, run_seen_step
from job_engine.place import Place, place_of
from job_engine.wire.gathering import GroupName
from job_engine.wire.packed_rows import HOME, GroupRecords, Signal
from job_engine.wire.partition_groups import EVERY_BUCKET, Exchange, PartitionGroup, together
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag
from querylang.dataclass import replace
from querylang.errors import InputError
from runtime.columns.arrivals import Arrivals
from runtime.engine import NOWHERE, JoinRule, by_rules, divided_snapshot, equal_in_all, united_snapshot
from runtime.results.ledger import Account

OTHER_QUERIES = "other queries were deployed since the history was read; deploy again"
"""Why what a history has left cannot be used."""


class HistoryRun:
    """The buckets of a program at work; what they give out is dropped, but counted.

    matches: how many were found
    """

    def __init__(self, program: Program, titles: Collection[str]) -> None:
        """`titles`: of the queries that are counted; the others feed them."""
        assert not program.epochs, "its queries do not change"
        self._program, self._titles = program, frozenset(titles)
        self._open = _opened(program, dict.fromkeys(range(program.buckets)))
        self._account: Account = Account()
        self.matches = 0

    @staticmethod
    def read(program: Program, titles: Collection[str], folder: str) -> HistoryRun:
        """A run that continues where `write` was called, maybe for another number of buckets.

        Raises InputError if its queries were in other groups: a change has come between.
        """
        run, saved = HistoryRun(program, titles), SavedBucket.from_bytes(read_seed(place_of(folder), HOME))
        if saved.names != _names_of(program) or saved.chains != bool(program.gathered):
            raise InputError(OTHER_QUERIES)
        written = seeds_of(folder, range(saved.buckets))
        is_moved = saved.buckets != program.buckets
        before = replace(program, buckets=saved.buckets)
        states = moved_buckets(before, written, program.buckets) if is_moved else written
        run._open = _opened(program, dict(states))
        run._account = _of_plain(read_account(folder))
        run._account.update(run._held())
        return run

    def step(self, packed: Iterable[pa.RecordBatch], timestamp: int, signal: Signal | None = None) -> None:
        """Process packed rows; `timestamp`: of the micro-batch, ms."""
        rows = enumerate(_by_bucket(packed, self._program.buckets))
        together({bucket: self._step(bucket, own, timestamp, signal) for bucket, own in rows})

    def _step(self, bucket: int, rows: Sequence[bytes], timestamp: int, signal: Signal | None) -> Exchange[None]:
        step = yield from run_open_step(self._program, bucket, self._open[bucket], rows, timestamp, signal)
        self._open[bucket] = step.bucket
        for row in step.rows:
            if row.tag is Tag.LEDGER:
                self._account.update(self._counted(row.table))
            elif row.tag is Tag.MATCH and row.query in self._titles:
                self.matches += row.table.num_rows

    def forget_sources(self) -> None:
        """Know nothing of how far sources have been read: all records until now came from a table.

        The engines stay where they are in time.
        """
        for bucket, opened in self._open.items():
            assert not opened.state.held, "a table has been read to its end"
            self._open[bucket] = replace(opened, state=replace(opened.state, clock=JobClock()))

    def write(self, folder: Place) -> None:
        """Write what buckets of a job take over; the files survive a power cut."""
        names = _names_of(self._program)
        states = ((bucket, close_state(self._program, bucket, item.state)) for bucket, item in self._open.items())
        write_seeds(folder, ((bucket, replace(saved, names=names).to_bytes()) for bucket, saved in states))
        account = Account(self._account)
        account.subtract(self._held())
        plain = [[*key, count] for key, count in sorted(account.items()) if count]
        account_file(str(folder)).write(plain)

    def _held(self) -> Account:
        """What held records are counted as: engines do not know them yet."""
        found: Account = Account()
        queries = QueriesAt.of(self._program, self._program.groups())
        for bucket, opened in self._open.items():
            found.update(self._counted(held_ledger(queries, (), opened.state.held, is_home=bucket == HOME)))
        return found

    def _counted(self, ledger: pa.Table) -> Account:
        return _of_rows([row for row in ledger.to_pylist() if row["query"] in self._titles])


class SeenRun:
    """The buckets of a program at work, for who wants to see the records that engines get.

    see: is called with what each step of a bucket has got and given
    """

    def __init__(self, program: Program, see: Callable[[int, SeenStep], None]) -> None:
        assert not program.epochs, "its queries do not change"
        self._program, self._see = program, see
        self._open = _opened(program, dict.fromkeys(range(program.buckets)))

    def step(self, packed: Iterable[pa.RecordBatch], timestamp: int, signal: Signal | None = None) -> None:
        """As of `HistoryRun`."""
        for bucket, own in enumerate(_by_bucket(packed, self._program.buckets)):
            seen = run_seen_step(self._program, bucket, self._open[bucket], own, timestamp, signal)
            self._open[bucket] = seen.bucket
            self._see(bucket, seen)


def _opened(program: Program, states: Mapping[int, bytes | None]) -> dict[int, OpenBucket]:
    return together({bucket: open_bucket(program, bucket, state) for bucket, state in states.items()})


def _names_of(program: Program) -> tuple[tuple[GroupName, int], ...]:
    """The names of the groups of a program whose queries do not change."""
    return tuple((group.name, 0) for group in program.groups())


def _by_bucket(packed: Iterable[pa.RecordBatch], buckets: int) -> list[list[bytes]]:
    rows: list[list[bytes]] = [[] for _ in range(buckets)]
    for batch in packed:
        for bucket, data in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            rows[bucket].append(data)
    return rows


def _of_rows(rows: Sequence[Mapping[str, object]]) -> Account:
    account: Account = Account()
    for row in rows:
        account[str(row["query"]), str(row["source"]), str(row["what"])] += int(str(row["count"]))
    return account


def _of_plain(rows: Sequence[Sequence[object]]) -> Account:
    return Account({(str(query), str(source), str(word)): int(str(count)) for query, source, word, count in rows})


# States of buckets of a job that is moved: for other buckets divided by key, and joined.


def moved_buckets(
    program: Program, states: Iterable[tuple[int, bytes]], buckets: int, called: Collection[int] | None = None
) -> Iterator[tuple[int, bytes]]:
    """The states of all buckets of a job with `buckets`, from those that it has.

    With as many buckets as before, those that there are stay as they are.

    program: for which the states were saved
    states: of all buckets that were called, by number
    called: the buckets that are known to have been called; None = all were

    Raises InputError for a state that cannot be read, and if some are missing.
    """
    if buckets == program.buckets:
        yield from _kept(program, states, called)
        return
    parts: list[list[SavedBucket]] = [[] for _ in range(buckets)]
    found = []
    for bucket, data in states:
        found.append(bucket)
        for number, part in enumerate(_divided(program, bucket, data, buckets)):
            parts[number].append(part)
    for bucket in _missing(program, found, called):
        for number, part in enumerate(_divided(program, bucket, None, buckets)):
            parts[number].append(part)
    for number, some in enumerate(parts):
        yield number, _united(program, some, buckets).to_bytes()


def _kept(
    program: Program, states: Iterable[tuple[int, bytes]], called: Collection[int] | None
) -> Iterator[tuple[int, bytes]]:
    """The states as they are, one at a time, and those of the buckets that have none yet."""
    found = []
    for bucket, data in states:
        found.append(bucket)
        open_state(program, bucket, data)  # refuses what cannot be read
        yield bucket, data
    for bucket in _missing(program, found, called):
        yield bucket, close_state(program, bucket, open_state(program, bucket, None)).to_bytes()


def _missing(program: Program, found: Collection[int], called: Collection[int] | None) -> Sequence[int]:
    """The buckets that were never called; raises InputError if some of the missing ones were."""
    missing = sorted(set(range(program.buckets)) - set(found))
    # only HOME is called alone: any other bucket with a state was called with all of them
    has_begun = called is None or not set(found) <= {HOME} or not set(missing).isdisjoint(called)
    if missing and has_begun:
        raise InputError(f"the bucket {missing[0]} has no state; restore the checkpoint from a copy")
    return missing


def _divided(program: Program, bucket: int, data: bytes | None, buckets: int) -> Iterator[SavedBucket]:
    """The parts of a bucket's state, one for each new bucket; None = it was never called."""
    state = open_state(program, bucket, data)  # refuses what cannot be read
    if program.epochs and unjoined(program, state.joined):
        raise InputError("a query has not got its history yet: let the job run once")
    saved = close_state(program, bucket, state)
    groups = _groups(program, saved)
    snapshots = [
        divided_snapshot(group.plan, snapshot, buckets, _only(group, program.buckets, bucket, buckets))
        for group, snapshot in zip(groups, saved.snapshots, strict=True)
    ]
    held: list[list[GroupRecords]] = [[] for _ in range(buckets)]
    for item in saved.held:
        for number, part in _divided_records(_with_queries(program, groups, item.group), item, bucket, buckets):
            held[number].append(part)
    for number in range(buckets):
        own = tuple(part[number] for part in snapshots)
        yield replace(saved, buckets=buckets, snapshots=own, held=tuple(held[number]))


def _groups(program: Program, saved: SavedBucket) -> Sequence[PartitionGroup]:
    """The groups of a bucket, each as its engine has it: not all changes may be done."""
    if not saved.names:
        return program.groups()
    by_number = {stage.number: stage for stage in program.stages}
    return [by_number[epoch].groups[place] for place, (_, epoch) in enumerate(saved.names)]


def _with_queries(program: Program, groups: Sequence[PartitionGroup], place: int) -> PartitionGroup:
    """A group to ask about keys: its engine may wait for a change that brings its queries."""
    stages = [stage.groups[place] for stage in program.stages] if program.epochs else []
    return next(group for group in (groups[place], *stages) if group.plan.queries)


def _only(group: PartitionGroup, before: int, bucket: int, buckets: int) -> int | None:
    """Where all rows of a bucket go if the group's keys share timelines; None = by key.

    Other buckets than the one that has its records know the timelines only as they begin.
    """
    return NOWHERE if group.only_bucket(before) not in (None, bucket) else group.only_bucket(buckets)


def _divided_records(
    group: PartitionGroup, item: GroupRecords, bucket: int, buckets: int
) -> Iterator[tuple[int, GroupRecords]]:
    """Held records by new bucket; copies that every bucket has are those of bucket HOME."""
    if item.is_copy:
        if bucket == HOME:
            yield from ((number, item) for number in range(buckets))
        return
    bucket_of = group.route(item.arrivals, buckets).bucket
    assert not (bucket_of == EVERY_BUCKET).any(), "what goes to every bucket is held as copies"
    for number in np.unique(bucket_of).tolist():
        yield number, replace(item, arrivals=item.arrivals.take(np.flatnonzero(bucket_of == number)))


def _united(program: Program, parts: Sequence[SavedBucket], buckets: int) -> SavedBucket:
    names = _names([part.names for part in parts])
    groups = _groups(program, parts[0])
    rules: dict[str, JoinRule] = {
        "buckets": lambda _: buckets,
        "clock": _furthest,
        "snapshots": lambda own: tuple(
            united_snapshot(group.plan, some) for group, some in zip(groups, zip(*own, strict=True), strict=True)
        ),
        "held": _united_records,
        "names": lambda _: names,
        "reported": max,
        "joined": max,
        "sql_nulls": all,
        "chains": all,
    }
    return SavedBucket(**by_rules(rules, [_fields(part) for part in parts]))


def _names(parts: Sequence[tuple[tuple[GroupName, int], ...]]) -> tuple[tuple[GroupName, int], ...]:
    if any(names != parts[0] for names in parts):
        raise InputError("its buckets are not at the same change of the queries: let the job run until all are")
    return parts[0]


def _furthest(clocks: Sequence[JobClock]) -> JobClock:
    """Where the clocks of buckets differ, the furthest one."""
    own = by_rules(
        {"sources": _furthest_sources, "unread": lambda own: max(own, key=len)}, [_fields(clock) for clock in clocks]
    )
    return JobClock(**own).advanced((), 0)


def _furthest_sources(parts: Sequence[Sequence[SourceWatermark]]) -> tuple[SourceWatermark, ...]:
    found: dict[tuple[str, int | None], list[SourceWatermark]] = defaultdict(list)
    for item in (item for part in parts for item in part):
        found[item.source, item.partition].append(item)
    return tuple(SourceWatermark(**by_rules(_OF_SOURCE, [_fields(item) for item in some])) for some in found.values())


_OF_SOURCE: Mapping[str, JoinRule] = {
    "source": equal_in_all,
    "partition": equal_in_all,
    "arrival": max,
    "updated": max,
    "reached": lambda own: max((item for item in own if item is not None), default=None),
}


def _united_records(parts: Sequence[Sequence[GroupRecords]]) -> tuple[GroupRecords, ...]:
    """Held records that differ in nothing but their rows are one table."""
    found: dict[tuple[object, ...], list[GroupRecords]] = defaultdict(list)
    for item in (item for part in parts for item in part):
        found[tuple(value for name, value in _fields(item).items() if name != "arrivals")].append(item)
    return tuple(
        replace(some[0], arrivals=Arrivals.concat([item.arrivals for item in some])) for some in found.values()
    )


def _fields(item: SavedBucket | JobClock | SourceWatermark | GroupRecords) -> dict[str, object]:
    return {field.name: getattr(item, field.name) for field in fields(item)}
