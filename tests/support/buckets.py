"""A program's buckets without Spark: packed micro-batches in, tagged rows out, sources read unevenly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from job_engine.local.frames import parcels_frame, parcels_of
from job_engine.operator.moved_buckets import moved_buckets
from job_engine.operator.step import (
    StepResult,
    close_bucket,
    measured,
    open_bucket,
    run_open_step,
    run_step,
)
from job_engine.wire.packed_rows import Signal, pack_arrivals
from job_engine.wire.partition_groups import Exchange, Given, next_round
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag, TaggedRow
from runtime.columns.arrivals import Arrivals
from tests.support.embedded import Summary, ledger_of


def rows_of(tagged: list[TaggedRow], tag: Tag) -> list[dict[str, object]]:
    return [row for item in tagged if item.tag is tag for row in item.table.to_pylist()]


class Stream:
    """A program's buckets over micro-batches; each is called anew from its state, as after a restart."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.states: dict[int, bytes] = {}
        self.tagged: list[TaggedRow] = []

    def take(self, parts: dict[str, Arrivals], timestamp: int, signal: Signal | None = None) -> list[StepResult]:
        """A micro-batch of these records by source; `control` is the control stream."""
        packed = [
            pack_arrivals(part, self.program.groups(), self.program.buckets, source=name, is_control=name == "control")
            for name, part in parts.items()
            if len(part)
        ]
        steps = []
        own = {bucket: [batch.column(1)[bucket].as_py() for batch in packed] for bucket in range(self.program.buckets)}
        if self.program.routing() is not None:
            return self._take_together(own, timestamp, signal)
        for bucket, rows in own.items():
            step = run_step(self.program, bucket, self.states.get(bucket), rows, timestamp, signal=signal)
            self.states[bucket] = step.state
            self.tagged.extend(step.rows)
            steps.append(step)
        return steps

    def _take_together(self, rows: dict[int, list[bytes]], timestamp: int, signal: Signal | None) -> list[StepResult]:
        """The same where queries cross."""
        opened = in_rounds({bucket: open_bucket(self.program, bucket, self.states.get(bucket)) for bucket in rows})
        done = in_rounds(
            {
                bucket: run_open_step(self.program, bucket, opened[bucket], own, timestamp, signal)
                for bucket, own in rows.items()
            }
        )
        steps = []
        for bucket, step in done.items():
            data = close_bucket(self.program, bucket, step.bucket)
            rows_of_step = (*step.rows, *measured(self.program, bucket, step.bucket, len(data))[1])
            steps.append(StepResult(data, rows_of_step, step.wake, step.is_one_of_all))
            self.states[bucket] = data
            self.tagged += rows_of_step
        return steps

    def move(self, buckets: int) -> None:
        """The stream continues with so many buckets."""
        self.states = dict(moved_buckets(self.program, self.states.items(), buckets))
        self.program = replace(self.program, buckets=buckets)

    def gather(self, program: Program, buckets: int) -> None:
        """The stream continues as this program, in which nothing crosses, with so many buckets."""
        self.states = dict(moved_buckets(self.program, self.states.items(), buckets, gathered=program))
        self.program = replace(program, buckets=buckets)

    def summary(self) -> Summary:
        """The results of all micro-batches so far."""
        matches = sorted(str(row["match_id"]) for row in rows_of(self.tagged, Tag.MATCH))
        outputs = sorted(str(row["text"]) for row in rows_of(self.tagged, Tag.OUTPUT))
        return matches, outputs, ledger_of(rows_of(self.tagged, Tag.LEDGER)), len(rows_of(self.tagged, Tag.DISCARDED))


def in_rounds(work: dict[int, Exchange[Given]]) -> dict[int, Given]:
    """What buckets give that have their steps together; what crosses goes through bytes."""
    leaving, done = next_round(work, None)
    while not done:
        leaving, done = next_round(work, parcels_of(parcels_frame(leaving)))
    return done


def unevenly(arrivals: Arrivals, seed: int) -> list[dict[str, Arrivals]]:
    """Micro-batches that take of each source partition as much as chance says, and a little of each in the first."""
    random, left = np.random.default_rng(seed), rows_by_place(arrivals)
    batches: list[dict[str, Arrivals]] = []
    while any(len(rows) for rows in left.values()):
        taken: dict[str, list[NDArray[np.int64]]] = {"a": [], "b": []}
        for place, rows in left.items():
            most = len(rows) if random.random() < 0.1 else int(random.integers(0, 200)) * int(random.integers(0, 2))
            count = max(most, 1 if not batches else 0)
            taken[place[0]].append(rows[:count])
            left[place] = rows[count:]
        batches.append({name: arrivals.take(random.permutation(np.concatenate(rows))) for name, rows in taken.items()})
    return batches


def rows_by_place(arrivals: Arrivals) -> dict[tuple[str, int], NDArray[np.int64]]:
    """The rows of each source partition, in order of arrival."""
    names = np.array(arrivals.table.column("_source").to_pylist())
    partition = arrivals.system("partition")
    return {
        (name, number): np.flatnonzero((names == name) & (partition == number))
        for name in ("a", "b")
        for number in np.unique(partition).tolist()
    }
