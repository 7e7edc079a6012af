"""Run records in one of four ways: embedded, in workers, in batch and as a stream; compare them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ensue.answer import Replay
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, counted
from querylang.plan.model import Plan
from runtime.lookup_tables import with_places
from runtime.replay import FileRecords, Records, Script, replay_epochs, replay_records
from runtime.results.for_users import PlainMatches, plain_outputs, plain_value
from runtime.results.schemas import Results
from spark_backend.versions import refuse_missing_spark

if TYPE_CHECKING:
    from job_engine.operator.cases import Case


# Run records in one of four ways: embedded, in worker processes of a local job, in batch and as a
# stream on Spark.
#
# All must have the same results. Spark is imported on first use.


@dataclass(frozen=True, slots=True)
class Job:
    """Records for a plan.

    flush: advance time after the last record until no timer is left
    splits: rows before which a stream ends a micro-batch, stops and restarts
    script: the plans that hold one after the other; None = the queries do not change
    """

    plan: Plan
    records: Records | FileRecords
    flush: bool
    splits: tuple[int, ...] = ()
    script: Script | None = None


def embedded(job: Job) -> Results:
    """Run in this process."""
    if job.script is not None:
        assert isinstance(job.records, Records), "records of changing queries are in memory"
        return replay_epochs(job.script, job.records, flush=job.flush)[0]
    return replay_records(job.plan, job.records, flush=job.flush)


def local(jobs: Sequence[Job]) -> list[Results]:
    """Run the records as micro-batches in workers, which save and read their states in between."""
    from job_engine.local.buckets import run_local

    return run_local(_cases(jobs))


def batch(jobs: Sequence[Job]) -> list[Results]:
    """Run all records as bounded Spark DataFrames."""
    refuse_missing_spark()
    from spark_backend import case_runs

    return case_runs.run_bounded(_cases(jobs))


def stream(jobs: Sequence[Job]) -> list[Results]:
    """Run the records as micro-batches on Spark, in a new session after each."""
    refuse_missing_spark()
    from spark_backend import case_runs

    return case_runs.run_streams(_cases(jobs))


def spark_is_missing() -> str:
    """Why nothing can run on Spark; "" = PySpark is installed."""
    try:
        refuse_missing_spark()
    except InputError as error:
        return str(error).partition(";")[0]
    return ""


def _cases(jobs: Sequence[Job]) -> list[Case]:
    from job_engine.operator.cases import Case

    return [
        Case(with_places(job.plan), job.records.arrivals, job.splits, job.flush, _placed(job.script)) for job in jobs
    ]


def _placed(script: Script | None) -> Script | None:
    """The plans with tables that workers can read."""
    if script is None:
        return None
    epochs = tuple(replace(epoch, plan=with_places(epoch.plan)) for epoch in script.epochs)
    return replace(script, plan=with_places(script.plan), epochs=epochs)


def even_splits(count: int, batches: int) -> tuple[int, ...]:
    """Where to split `count` records into micro-batches of nearly the same size."""
    cuts = {count * number // batches for number in range(1, batches)}
    return tuple(sorted(cuts - {0, count}))


# Compare an embedded replay with the other ways to run queries, on a user's own data: worker
# processes of this machine, and Spark, in batch and as a stream.
#
# Everything is compared: matches with their times, outputs, discards, accounts.

SINGULAR = {"matches": "match", "outputs": "output", "discards": "discard"}
MOST_SHOWN = 3
"""Differences printed of each kind; all are counted."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How one executor differs from the embedded run in one kind of results.

    missing, added: results as JSON that only the embedded run, or only the other executor, has
    """

    executor: str
    what: str
    missing: Sequence[str]
    added: Sequence[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was compared, and every difference.

    counts: results of the embedded run by kind
    batches: micro-batches of the streams
    left_out: why Spark was not asked; "" = it was
    """

    counts: dict[str, int]
    batches: int
    differences: Sequence[Difference]
    left_out: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether all executors have the same results."""
        return not self.differences

    def to_plain(self) -> dict[str, Any]:
        """For machines."""
        differences = [
            {"executor": item.executor, "what": item.what, "missing": len(item.missing), "added": len(item.added)}
            for item in self.differences
        ]
        return {
            "equal": self.is_equal,
            "counts": self.counts,
            "batches": self.batches,
            "differences": differences,
            "left_out": self.left_out,
        }

    def text(self) -> str:
        """For people."""
        if self.is_equal:
            compared = ", ".join(counted(count, SINGULAR[what], what) for what, count in self.counts.items())
            ways = "embedded = local" if self.left_out else "embedded = local = batch = stream"
            lines = [f"{ways} ({counted(self.batches, 'micro-batch', 'micro-batches')}): {compared}"]
        else:
            lines = self._told()
        if self.left_out:
            lines.append(f"not compared with Spark: {self.left_out}")
        return "\n".join(lines)

    def _told(self) -> list[str]:
        lines = []
        for item in self.differences:
            lines.append(
                f"{item.what}: {item.executor} lacks {len(item.missing)} of the embedded run and has {len(item.added)} more"
            )
            lines += [f"  - {text}" for text in item.missing[:MOST_SHOWN]]
            lines += [f"  + {text}" for text in item.added[:MOST_SHOWN]]
        return lines


def compare(replay: Replay, batches: int) -> Verdict:
    """Run the replay's records in the other ways, and compare the results.

    batches: micro-batches of the streams
    """
    splits = even_splits(len(replay.records.rows), batches)
    job = Job(replay.plan, replay.records, replay.flush, splits, replay.script)
    left_out = spark_is_missing()
    others = {"local": local([job])[0]}
    if not left_out:
        others |= {"batch": batch([job])[0], "stream": stream([job])[0]}
    expected = contents(replay.results)
    differences = [
        Difference(executor, what, _sorted(counter - counted[what]), _sorted(counted[what] - counter))
        for executor, results in others.items()
        for counted in (contents(results),)
        for what, counter in expected.items()
        if counter != counted[what]
    ]
    counts = {what: counter.total() for what, counter in expected.items() if what != "accounts"}
    return Verdict(counts, len(splits) + 1, differences, left_out)


def contents(results: Results) -> dict[str, Counter[str]]:
    """All results by kind, as JSON text, with how often each is there."""
    matches = [match for found in PlainMatches(_offset).of(results).values() for match in found]
    discards = [] if results.discarded is None else _rows(results.discarded)
    accounts = [row for row in results.ledger.to_pylist() if row["count"]]
    kinds = {"matches": matches, "outputs": plain_outputs(results.outputs), "discards": discards, "accounts": accounts}
    return {
        what: Counter(json.dumps(item, sort_keys=True, default=str) for item in found) for what, found in kinds.items()
    }


def _offset(_source: str, _partition: int, offset: int) -> int:
    return offset


def _rows(table: pa.Table) -> list[Any]:
    public = table.select([name for name in table.column_names if not name.startswith("_")])
    return [plain_value(row) for row in public.to_pylist()]


def _sorted(counter: Counter[str]) -> list[str]:
    return sorted(counter.elements())
