"""Run cases in worker processes of this machine, with restarts, to compare with embedded runs."""

from __future__ import annotations

from collections.abc import Sequence

from job_engine.local.buckets import Buckets
from job_engine.local.pool import Pool
from job_engine.local_path import own_folder
from job_engine.operator.cases import DEFAULT_BUCKETS, Case, Cases
from job_engine.sinks.bucket_results import BucketResults
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
