"""The buckets of a local job as its driver sees them: it asks the workers that hold them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from job_engine.local.frames import Frame, Word, sorted_out
from job_engine.local.pool import Pool
from job_engine.local_path import LocalPath, own_folder
from job_engine.place import Place, place_to_plain
from job_engine.sinks.bucket_results import BucketResults
from job_engine.sinks.kinds import Sink
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag, read_table
from querylang.dataclass import dataclass
from runtime.threads import thread_count

if TYPE_CHECKING:
    from job_engine.operator.cases import Case
    from runtime.results.schemas import Results


@dataclass(frozen=True, slots=True)
class Stepped:
    """What buckets gave in a micro-batch.

    results: `BucketResults` by bucket, of those that had a step
    wakes: by bucket, when it wants a step though nothing is read for it, ms since 1970
    """

    results: Mapping[int, bytes]
    wakes: dict[int, int]


@dataclass(frozen=True, slots=True)
class Saved:
    """States that are on the disk.

    buckets: those that have one
    measures: tables for the driver, of the buckets that are open
    """

    buckets: Sequence[int]
    measures: Sequence[tuple[Tag, pa.Table]]


class Workers(Protocol):
    """What a run asks of workers, wherever they are; `Pool` has processes."""

    @property
    def count(self) -> int:
        """The number of workers."""

    @property
    def folder(self) -> LocalPath:
        """Where they put rows and drafts for each other and for the driver."""

    def begin(self, header: Mapping[str, object]) -> None:
        """Let all workers begin a run."""

    def ask(self, frames: Mapping[int, Frame]) -> dict[int, Frame]:
        """What workers answer, by their numbers; raises what a worker has raised."""

    def abandon(self) -> None:
        """End what workers do, from another thread."""

    def close(self) -> None:
        """End all workers, and remove what they have left."""


class Buckets:
    """All buckets of one run; what is raised: as of `Workers.ask`."""

    def __init__(self, pool: Workers, program: Program) -> None:
        self._pool = pool
        self._program = program
        self._crosses = program.routing() is not None

    def begin(
        self,
        rows: Path,
        states: Place | None,
        saved: Collection[int],
        *,
        options: Mapping[str, str] | None = None,
        sinks: Mapping[str, Sink] | None = None,
        identity: str = "",
        continues: bool = False,
    ) -> None:
        """Let workers begin with the states in a folder; parameters as in `RunOfWorker`."""
        self._pool.begin(
            {
                "program": self._program.to_text(),
                "options": dict(options or {}),
                "sinks": {name: sink.to_plain() for name, sink in (sinks or {}).items()},
                "identity": identity,
                "rows": str(rows),
                "states": None if states is None else place_to_plain(states),
                "saved": list(saved),
                "continues": continues,
            }
        )

    def read(self, tasks: Sequence[tuple[str, Sequence[bytes]]]) -> dict[int, list[bytes]]:
        """The packed rows of tasks, by bucket; all workers read.

        tasks: as text, with what is taken already of what they read
        """
        count = self._pool.count
        shares = {worker: tasks[worker::count] for worker in range(count)}
        asked = {
            worker: Frame(Word.READ, {"tasks": [text for text, _ in share]}, [part for _, own in share for part in own])
            for worker, share in shares.items()
            if share
        }
        rows: dict[int, list[bytes]] = {}
        for answer in self._pool.ask(asked).values():
            for bucket, part in zip(answer.header["buckets"], answer.parts, strict=True):
                rows.setdefault(bucket, []).append(bytes(part))
        return rows

    def step(
        self,
        batch: int,
        timestamp: int,
        rows: Mapping[int, Sequence[bytes]],
        due: Iterable[int] = (),
        *,
        is_measured: bool = False,
    ) -> Stepped:
        """Let buckets have a step.

        batch, timestamp: number and moment of the micro-batch
        rows: packed, of the buckets that have some
        due: buckets that have a step because time is up
        is_measured: whether the results have measures, too

        Where queries cross, all buckets have a step together, in rounds: in each of them workers
        answer what is routed to buckets of others, which is handed on.
        """
        asked, due = {}, set(due)
        if self._crosses and (rows or due):
            due = set(range(self._program.buckets))
        for worker in range(self._pool.count):
            own, waking = self._of_worker(worker, rows), self._of_worker(worker, due)
            if own or waking:
                header = {
                    "batch": batch,
                    "timestamp": timestamp,
                    "buckets": [bucket for bucket in own for _ in rows[bucket]],
                    "due": waking,
                    "is_measured": is_measured,
                }
                asked[worker] = Frame(Word.STEP, header, [row for bucket in own for row in rows[bucket]])
        results: dict[int, bytes] = {}
        wakes: dict[int, int] = {}
        answers = self._pool.ask(asked)
        while any(answer.word is Word.CROSS for answer in answers.values()):
            crossed = sorted_out(answers.values(), self._pool.count)
            answers = self._pool.ask({worker: crossed[worker] for worker in asked})
        for answer in answers.values():
            results |= dict(zip(answer.header["buckets"], map(bytes, answer.parts), strict=True))
            wakes |= {int(bucket): wake for bucket, wake in answer.header["wakes"].items()}
        return Stepped(dict(sorted(results.items())), wakes)

    def save(self, folder: Place) -> Saved:
        """Write the states of all buckets to a folder."""
        asked = Frame(Word.SAVE, {"folder": place_to_plain(folder)})
        answers = self._pool.ask(dict.fromkeys(range(self._pool.count), asked)).values()
        tables = [
            (Tag(tag), read_table(bytes(part)))
            for answer in answers
            for tag, part in zip(answer.header["tags"], answer.parts, strict=True)
        ]
        return Saved(sorted(bucket for answer in answers for bucket in answer.header["saved"]), tables)

    def _of_worker(self, worker: int, buckets: Iterable[int]) -> list[int]:
        return [bucket for bucket in sorted(buckets) if bucket % self._pool.count == worker]


# Cases in workers, with restarts, to compare with embedded runs.


def run_local(cases: Sequence[Case], *, buckets: int = 2, restart: bool = True) -> list[Results]:
    """Each case as a stream of micro-batches, which are its pieces.

    restart: whether workers save their states behind every micro-batch, and begin with them again
    """
    pool = Pool(min(buckets, thread_count()))
    try:
        return [_streamed(pool, case, buckets, restart=restart) for case in cases]
    finally:
        pool.close()


def _streamed(pool: Pool, case: Case, buckets: int, *, restart: bool) -> Results:
    from job_engine.operator.cases import Cases  # no job needs it

    job = Cases([case], buckets)
    workers = Buckets(pool, job.program)
    workers.begin(pool.folder, None, ())
    for step in range(len(case.splits) + 1):
        rows: dict[int, list[bytes]] = {}
        for row in job.packed(step).to_pylist():
            rows.setdefault(row["bucket"], []).append(row["data"])
        for bucket, results in workers.step(step, step, rows).results.items():
            for table in BucketResults.from_bytes(results).tables:
                assert table.data is not None, "there is no sink for it"
                job.note(bucket, step, table.tag, table.query, read_table(table.data))
        if restart:
            states = own_folder(pool.folder)
            workers.begin(pool.folder, states, workers.save(states).buckets)
    return job.results()[0]
