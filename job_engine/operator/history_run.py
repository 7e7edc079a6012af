"""Run queries over the history, without a driver: all buckets of a job, these queries alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from job_engine.operator.bucket_state import SavedBucket, read_seed, write_seeds
from job_engine.operator.clocks import JobClock
from job_engine.operator.epoch_records import QueriesAt
from job_engine.operator.joining import account_file, read_account
from job_engine.operator.releasing import held_ledger
from job_engine.operator.step import SeenStep, open_bucket, run_seen_step, run_step
from job_engine.places.place import Place, place_of
from job_engine.wire.packed_rows import HOME, Signal
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag
from runtime.results.ledger import Account


class HistoryRun:
    """The buckets of a program at work; what they give out is dropped, but counted.

    matches: how many were found
    """

    def __init__(self, program: Program, titles: Collection[str]) -> None:
        """`titles`: of the queries that are counted; the others feed them."""
        assert not program.epochs, "its queries do not change"
        self._program, self._titles = program, frozenset(titles)
        self._states: dict[int, bytes] = {}
        self._account: Account = Account()
        self.matches = 0

    @staticmethod
    def read(program: Program, titles: Collection[str], folder: str) -> HistoryRun:
        """A run that continues where `write` was called."""
        run = HistoryRun(program, titles)
        run._states = {bucket: read_seed(place_of(folder), bucket) for bucket in range(program.buckets)}
        run._account = _of_plain(read_account(folder))
        run._account.update(run._held())
        return run

    def step(self, packed: Iterable[pa.RecordBatch], timestamp: int, signal: Signal | None = None) -> None:
        """Process packed rows; `timestamp`: of the micro-batch, ms."""
        for bucket, own in enumerate(_by_bucket(packed, self._program.buckets)):
            step = run_step(self._program, bucket, self._states.get(bucket), own, timestamp, signal=signal)
            self._states[bucket] = step.state
            for row in step.rows:
                if row.tag is Tag.LEDGER:
                    self._account.update(self._counted(row.table))
                elif row.tag is Tag.MATCH and row.query in self._titles:
                    self.matches += row.table.num_rows

    def forget_sources(self) -> None:
        """Know nothing of how far sources have been read: all records until now came from a table.

        The engines stay where they are in time.
        """
        saved = {bucket: SavedBucket.from_bytes(state) for bucket, state in self._states.items()}
        assert not any(item.held for item in saved.values()), "a table has been read to its end"
        self._states = {bucket: replace(item, clock=JobClock()).to_bytes() for bucket, item in saved.items()}

    def write(self, folder: Place) -> None:
        """Write what buckets of a job take over; the files survive a power cut."""
        if not self._states:
            self.step((), 0)
        names = tuple((group.name, 0) for group in self._program.groups())
        saved = {bucket: SavedBucket.from_bytes(state) for bucket, state in self._states.items()}
        write_seeds(folder, ((bucket, replace(item, names=names).to_bytes()) for bucket, item in saved.items()))
        account = Account(self._account)
        account.subtract(self._held())
        plain = [[*key, count] for key, count in sorted(account.items()) if count]
        account_file(str(folder)).write(plain)

    def _held(self) -> Account:
        """What held records are counted as: engines do not know them yet."""
        found: Account = Account()
        queries = QueriesAt.of(self._program, self._program.groups())
        for bucket, state in self._states.items():
            held = SavedBucket.from_bytes(state).held
            found.update(self._counted(held_ledger(queries, (), held, is_home=bucket == HOME)))
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
        self._open = [open_bucket(program, bucket, None) for bucket in range(program.buckets)]

    def step(self, packed: Iterable[pa.RecordBatch], timestamp: int, signal: Signal | None = None) -> None:
        """As of `HistoryRun`."""
        for bucket, own in enumerate(_by_bucket(packed, self._program.buckets)):
            seen = run_seen_step(self._program, bucket, self._open[bucket], own, timestamp, signal)
            self._open[bucket] = seen.bucket
            self._see(bucket, seen)


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
