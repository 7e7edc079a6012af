"""Run cases in worker processes of this machine, with restarts, to compare with embedded runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from job_engine.local.frames import Frame, Word
from job_engine.local.pool import Pool
from job_engine.operator.cases import DEFAULT_BUCKETS, Case, Cases
from job_engine.places.local_path import LocalPath
from job_engine.places.place import place_to_plain
from job_engine.sinks.bucket_results import BucketResults
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import read_table
from runtime.results.schemas import Results
from runtime.threads import thread_count


def run_local(cases: Sequence[Case], *, buckets: int = DEFAULT_BUCKETS, restart: bool = True) -> list[Results]:
    """Each case as a stream of micro-batches, which are its pieces.

    restart: whether workers save their states behind every micro-batch, and begin with them again
    """
    pool = Pool(min(buckets, thread_count()))
    try:
        return [_streamed(pool, case, buckets, restart=restart) for case in cases]
    finally:
        pool.close()


def _streamed(pool: Pool, case: Case, buckets: int, *, restart: bool) -> Results:
    job = Cases([case], buckets)
    run = _Run(pool, job.program)
    for step in range(len(case.splits) + 1):
        if step == 0 or restart:
            run.begin(step)
        for bucket, results in run.step(step, job.packed(step).to_pylist()).items():
            for row in results.tables:
                assert row.data is not None, "there is no sink for it"
                job.note(bucket, step, row.tag, row.query, read_table(row.data))
    return job.results()[0]


@dataclass(slots=True)
class _Run:
    """Workers with the buckets of a case; `saved`: those that have a state."""

    pool: Pool
    program: Program
    saved: Sequence[int] = field(default=())

    def begin(self, step: int) -> None:
        """Begin with the states behind the micro-batch before."""
        folder = self._states(step - 1)
        if step:
            save = Frame(Word.SAVE, {"folder": place_to_plain(folder)})
            answers = self.pool.ask(dict.fromkeys(range(self.pool.count), save))
            self.saved = sorted(bucket for answer in answers.values() for bucket in answer.header["saved"])
        self.pool.begin(
            {
                "program": self.program.to_text(),
                "options": {},
                "sinks": {},
                "identity": "",
                "rows": str(self.pool.folder),
                "states": place_to_plain(folder) if step else None,
                "saved": list(self.saved),
            }
        )

    def step(self, number: int, rows: Sequence[Mapping[str, int | bytes]]) -> dict[int, BucketResults]:
        """What the buckets give in a micro-batch."""
        count = self.pool.count
        asked = {}
        for worker in range(count):
            own = [(row["bucket"], row["data"]) for row in rows if int(row["bucket"]) % count == worker]
            header = {"batch": number, "timestamp": number, "buckets": [bucket for bucket, _ in own], "due": []}
            asked[worker] = Frame(Word.STEP, {**header, "is_measured": False}, [bytes(data) for _, data in own])
        found = {}
        for answer in self.pool.ask(asked).values():
            for bucket, part in zip(answer.header["buckets"], answer.parts, strict=True):
                found[bucket] = BucketResults.from_bytes(bytes(part))
        return found

    def _states(self, step: int) -> LocalPath:
        return self.pool.folder / f"states-{id(self.program)}-{step}"
