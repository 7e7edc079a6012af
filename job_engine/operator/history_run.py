"""All buckets of a job without its driver: queries run over a history."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from job_engine.operator.bucket_state import (
    SavedBucket,
    close_state,
    read_seed,
    seeds_of,
    write_seeds,
)
from job_engine.operator.clocks import JobClock
from job_engine.operator.epoch_records import QueriesAt
from job_engine.operator.joining import account_file, read_account
from job_engine.operator.moved_buckets import moved_buckets
from job_engine.operator.releasing import held_ledger
from job_engine.operator.step import OpenBucket, SeenStep, open_bucket, run_open_step, run_seen_step
from job_engine.place import Place, place_of
from job_engine.wire.gathering import GroupName
from job_engine.wire.packed_rows import HOME, Signal
from job_engine.wire.partition_groups import Exchange, together
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag
from querylang.dataclass import replace
from querylang.errors import InputError
from querylang.plan.model import public_title
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
        self._counted_names = frozenset(map(public_title, titles))
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
        return _of_rows([row for row in ledger.to_pylist() if row["query"] in self._counted_names])


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
