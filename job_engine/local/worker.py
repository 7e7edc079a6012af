"""A worker of a local job: reads tasks, and holds its buckets open from micro-batch to micro-batch.

Bucket b is of worker b modulo their number. A worker does one thing at a time, as it is asked to.
"""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from job_engine.errors import WorkerDied, kind_of, plain_error
from job_engine.local.frames import Ended, Frame, Word, parcels_frame, parcels_of, receive, send
from job_engine.local_path import LocalPath
from job_engine.operator.bucket_state import continued, first_state, read_seed, write_seeds
from job_engine.operator.step import OpenBucket, OpenStep, close_bucket, measured, open_bucket, run_open_step
from job_engine.place import place_of_plain
from job_engine.sinks.bucket_results import Attempt, write_results
from job_engine.sinks.kinds import MicroBatch, Sink
from job_engine.sources.task_reading import read_task
from job_engine.wire.packed_rows import ContainerError, fetched, put_aside
from job_engine.wire.partition_groups import Exchange, Parcel, next_round
from job_engine.wire.program import Program, load_program
from job_engine.wire.tagged_rows import TaggedRow
from querylang.dataclass import dataclass, field, replace
from querylang.errors import InputError
from runtime.engine import StateError
from runtime.json_reader import shaped
from runtime.json_shapes import Count
from runtime.threads import set_objects_aside


@dataclass(frozen=True, slots=True)
class RunOfWorker:
    """What a worker has to know of a run.

    program: as JSON text
    options: of the sources, as `reading_options` has them
    sinks: as `Sink.to_plain`, by their names
    identity: names the checkpoint
    rows: where packed rows are put that are too many for a frame
    worker, workers: its number, and how many there are
    states: the folder with the states of buckets, `place_to_plain`; None = they begin as seeds say
    saved: the buckets that have one
    continues: whether the run before was of the same job, which has had the checkpoint ever since
    """

    program: str
    options: dict[str, str]
    sinks: dict[str, dict[str, Any]]
    identity: str
    rows: str
    worker: Count
    workers: Count
    states: list[Any] | None = None
    saved: list[Count] = field(default_factory=list)
    continues: bool = False


@dataclass(slots=True)
class _Step:
    """Buckets in a micro-batch.

    attempt: to write their results
    work: by bucket, in order
    kept: what has been routed from bucket to bucket of this worker
    wakes: by bucket, as of `Stepped`; of those that have ended
    """

    timestamp: int
    attempt: Attempt
    is_measured: bool
    work: Mapping[int, Exchange[bytes]]
    kept: list[Parcel] = field(default_factory=list)
    wakes: dict[int, int] = field(default_factory=dict)


class Worker:
    """One run, as a worker sees it.

    Buckets stay open from run to run, if the next one begins with the states that they were saved
    as.
    """

    def __init__(self, run: RunOfWorker, before: Worker | None = None) -> None:
        """`before`: the run before of this process; None = there was none."""
        self._run = run
        self._before = before if before is not None and before.is_continued_by(run) else None
        self._states, self._saved = run.states, set(run.saved)
        self._program: Program = load_program(run.program)
        self._sinks = {name: Sink.from_plain(plain) for name, plain in run.sinks.items()}
        self._open: dict[int, OpenBucket] = {}
        self._sizes: dict[int, int] = {}
        self._is_saved = False
        self._step: _Step

    def is_continued_by(self, run: RunOfWorker) -> bool:
        """Whether another run begins with the states that open buckets have."""
        is_same = (run.worker, run.workers, run.identity) == (self._run.worker, self._run.workers, self._run.identity)
        return run.continues and is_same and self._is_saved and self._states == run.states

    def read(self, tasks: list[str], taken: Sequence[bytes]) -> Frame:
        """The packed rows of tasks, with the bucket of each; `taken`: as of `read_task`, of all."""
        buckets: list[int] = []
        rows: list[bytes] = []
        for task in tasks:
            for batch in put_aside(read_task(self._run.options, task, taken), LocalPath(self._run.rows)):
                buckets += batch.column(0).to_pylist()
                rows += batch.column(1).to_pylist()
        return Frame(Word.DONE, {"buckets": buckets}, rows)

    def step(self, batch: int, timestamp: int, rows: Mapping[int, list[bytes]], *, is_measured: bool) -> Frame:
        """The results of buckets, and when each wakes; `rows`: of those that have a step.

        Where queries cross, it is first what they have routed to buckets of other workers.
        """
        self._is_saved = False
        attempt = Attempt(MicroBatch(self._run.identity, self._program.before + batch), 0, os.getpid())
        work = {bucket: self._one(bucket, own, timestamp) for bucket, own in sorted(rows.items())}
        self._step = _Step(timestamp, attempt, is_measured, work)
        return self._next_round(None)

    def cross(self, parcels: Sequence[Parcel]) -> Frame:
        """As `step`, once what buckets of other workers have routed is there."""
        return self._next_round([*parcels, *self._step.kept])

    def _one(self, bucket: int, rows: list[bytes], timestamp: int) -> Exchange[bytes]:
        opened = self._open.pop(bucket, None) or (yield from self._opened(bucket))
        step = yield from run_open_step(self._program, bucket, opened, list(map(fetched, rows)), timestamp)
        self._open[bucket] = step.bucket
        return self._written(self._step, bucket, step)

    def _next_round(self, arrived: Sequence[Parcel] | None) -> Frame:
        """Let the buckets of a step work until they wait for others, or have ended."""
        step = self._step
        leaving, results = next_round(step.work, arrived)
        if results:
            wakes = {str(bucket): wake for bucket, wake in step.wakes.items()}
            return Frame(Word.DONE, {"buckets": list(results), "wakes": wakes}, list(results.values()))
        away = [parcel for parcel in leaving if parcel.bucket % self._run.workers != self._run.worker]
        step.kept = [parcel for parcel in leaving if parcel.bucket % self._run.workers == self._run.worker]
        return parcels_frame(away)

    def _written(self, at_work: _Step, bucket: int, step: OpenStep) -> bytes:
        if step.wake is not None:
            at_work.wakes[bucket] = at_work.timestamp + step.wake
        given = (*step.rows, *(self._measured(bucket) if at_work.is_measured else ()))
        attempt = replace(at_work.attempt, task=bucket)
        return write_results(self._program, bucket, given, self._sinks, attempt, is_alone=True).to_bytes()

    def save(self, folder: list[Any]) -> Frame:
        """Write the states of the buckets; gives their sizes and measures."""
        sizes: dict[int, int] = {}

        def states() -> Iterator[tuple[int, bytes]]:
            for bucket in range(self._run.worker, self._program.buckets, self._run.workers):
                state = self._state(bucket)
                if state is not None:
                    sizes[bucket] = len(state)
                    yield bucket, state

        write_seeds(place_of_plain(folder), states())
        self._sizes, self._states, self._saved, self._is_saved = sizes, folder, set(sizes), True
        rows = [row for bucket in sorted(self._open) for row in self._measured(bucket)]
        return Frame(
            Word.DONE, {"saved": sorted(sizes), "tags": [row.tag for row in rows]}, [row.data() for row in rows]
        )

    def _measured(self, bucket: int) -> list[TaggedRow]:
        self._open[bucket], rows = measured(self._program, bucket, self._open[bucket], self._sizes.get(bucket, 0))
        return rows

    def _state(self, bucket: int) -> bytes | None:
        opened = self._open.get(bucket)
        return self._first(bucket) if opened is None else close_bucket(self._program, bucket, opened)

    def _opened(self, bucket: int) -> Exchange[OpenBucket]:
        kept = self._kept_open(bucket)
        if kept is not None:
            return kept
        state = self._first(bucket)
        self._sizes[bucket] = 0 if state is None else len(state)
        return (yield from open_bucket(self._program, bucket, state))

    def _kept_open(self, bucket: int) -> OpenBucket | None:
        """A bucket that is open since the run before; None = it is not, or has to be read again."""
        found = None if self._before is None else self._before.left_open(bucket)
        if found is None:
            return None
        program, opened, self._sizes[bucket] = found
        state = continued(program, self._program, bucket, opened.state)
        return None if state is None else replace(opened, state=state)

    def left_open(self, bucket: int) -> tuple[Program, OpenBucket, int] | None:
        """An open bucket for the next run, with its program and its size; None = it is not open."""
        opened = self._open.pop(bucket, None)
        return None if opened is None else (self._program, opened, self._sizes.get(bucket, 0))

    def _first(self, bucket: int) -> bytes | None:
        """The state that a bucket has before its first step in this run."""
        if self._states is None:
            return first_state(self._program, bucket)
        return read_seed(place_of_plain(self._states), bucket) if bucket in self._saved else None


def serve(connection: socket.socket) -> None:
    """Answer what the driver asks, until it closes the connection."""
    set_objects_aside()
    answering = Answering()
    with suppress(Ended):
        while True:
            send(connection, answering.answer(receive(connection)))
    os._exit(0)  # whatever threads libraries have left


class Answering:
    """What a worker answers through all of its runs; it knows of no connection."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def answer(self, frame: Frame) -> Frame:
        """Do what a frame asks for; an error is an answer, too."""
        try:
            if frame.word is Word.BEGIN:
                self._worker = Worker(shaped(dict(frame.header), RunOfWorker), self._worker)
                return Frame(Word.DONE)
            assert self._worker is not None, "a run has begun"
            return _answer(self._worker, frame)
        except Exception as error:  # noqa: BLE001 # the driver raises it
            return _failed(error)


def _answer(worker: Worker, frame: Frame) -> Frame:
    header = frame.header
    match frame.word:
        case Word.READ:
            return worker.read(header["tasks"], list(map(bytes, frame.parts)))
        case Word.STEP:
            rows: dict[int, list[bytes]] = {bucket: [] for bucket in header["due"]}
            for bucket, part in zip(header["buckets"], frame.parts, strict=True):
                rows.setdefault(bucket, []).append(bytes(part))
            return worker.step(header["batch"], header["timestamp"], rows, is_measured=header["is_measured"])
        case Word.CROSS:
            return worker.cross(parcels_of(frame))
        case Word.SAVE:
            return worker.save(header["folder"])
        case _:
            raise AssertionError(f"nobody asks a worker for '{frame.word}'")


def _failed(error: Exception) -> Frame:
    """An error as text: the driver raises it again."""
    if isinstance(error, MemoryError):
        return Frame(Word.FAILED, {"kind": WorkerDied.__name__, "text": "a worker process had too little memory"})
    is_told = isinstance(error, ContainerError | StateError)
    plain = InputError(str(error)) if is_told else plain_error(error)
    kind = kind_of(plain)
    if kind is None:
        lines = traceback.format_exception(error)
        return Frame(Word.FAILED, {"kind": "", "text": f"{lines[-1].strip()}\n{''.join(lines)}"})
    return Frame(Word.FAILED, {"kind": kind.__name__, "text": str(plain)})
