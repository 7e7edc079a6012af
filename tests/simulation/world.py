"""The lives of a job's process in a simulated world: its threads, clock, names, workers and disk."""

from __future__ import annotations

import functools
import gc
import itertools
import logging
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch
from uuid import UUID

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from job_engine import arrow_files, chance, clock, durable_files, threads
from job_engine.errors import WorkerDied
from job_engine.job.checkpoint import locks
from job_engine.job.stages import start
from job_engine.local import driver
from job_engine.local import run as local_run
from job_engine.local.frames import Frame, Word
from job_engine.local.pool import failure_of
from job_engine.local.worker import Answering
from job_engine.local_path import LocalPath
from tests.simulation.broker import Broker, simulated_broker
from tests.simulation.disk import Disk, simulated_files
from tests.simulation.faults import Fault, Faults, Met
from tests.simulation.scheduler import Clock, Ended, Scheduler, classes
from tests.simulation.stores import Store, simulated_store
from tests.simulation.tables import Tables, simulated_tables

LOOKS = ((0.02, 0.4), *((0.1, 2.0),) * 4, *((0.3, 3.0),) * 3)
"""Seconds between two looks for input, the shortest and the longest: each costs as much as a real one."""


class SerialPool:
    """Workers in this process, which answer one after the other; see `Workers`."""

    def __init__(self, world: World, count: int) -> None:
        self._world = world
        self._count = count
        self.folder = LocalPath(tempfile.mkdtemp(prefix="job-", dir=world.folder / "tmp"))
        self._workers: list[Answering] = []
        self._is_dead = False

    @property
    def count(self) -> int:
        """As `Workers.count`."""
        return self._count

    def begin(self, header: Mapping[str, object]) -> None:
        """As `Workers.begin`; new workers each time, as if the ones before had died."""
        self._workers, self._is_dead = [Answering() for _ in range(self._count)], False
        own = {"workers": self._count}
        self.ask({number: Frame(Word.BEGIN, {**header, **own, "worker": number}) for number in range(self._count)})

    def ask(self, frames: Mapping[int, Frame]) -> dict[int, Frame]:
        """As `Workers.ask`."""
        found: dict[int, Frame] = {}
        failures: list[Exception] = []
        order = sorted(frames)
        self._world.chooser.shuffle(order)
        for number in order:
            found[number] = self._answered(number, frames[number])
            if found[number].word is Word.FAILED:
                failures.append(failure_of(found[number]))
        if failures:
            raise failures[0]
        return {number: found[number] for number in frames}

    def _answered(self, number: int, frame: Frame) -> Frame:
        scheduler, disk = self._world.scheduler, self._world.disk
        scheduler.step()
        fault = self._world.faults.draw("ask")
        match fault:
            case Fault.KILL_BEFORE:
                disk.crash(fault)
            case Fault.LATE:
                scheduler.wait(lambda: self._is_dead, 30.0)
            case Fault.DEATH:
                if self._world.chooser.random() < 0.5:
                    self._workers[number].answer(_copied(frame))
                self._is_dead = True
        if self._is_dead:
            raise WorkerDied("a worker process ended with signal 9 (SIGKILL)")
        answer = _copied(self._workers[number].answer(_copied(frame)))
        if fault is Fault.KILL_AFTER:
            disk.crash(fault)
        return answer

    def abandon(self) -> None:
        """As `Workers.abandon`."""
        self._is_dead = True

    def close(self) -> None:
        """As `Workers.close`."""
        self.folder.remove_tree()


def _copied(frame: Frame) -> Frame:
    """What passes is bytes: neither side can change what the other has."""
    return Frame(frame.word, dict(frame.header), [bytes(part) for part in frame.parts])


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _computed(known: functools.cached_property[Any], instance: object | None, _: type | None = None) -> Any:
    """As `cached_property.__get__` from Python 3.12 on.

    Before, it holds a lock of all instances while it computes: a thread that the scheduler holds there stops the world.
    """
    if instance is None:
        return known
    name, values = known.attrname, instance.__dict__
    assert name is not None, "it is an attribute of a class"
    if name not in values:
        values[name] = known.func(instance)
    return values[name]


class World:
    """One machine and what happens to it; `folder`: its disk."""

    def __init__(self, seed: int, folder: Path, met: Met) -> None:
        self.chooser = random.Random(f"world {seed}")
        self.folder = folder
        self.faults = Faults(random.Random(f"faults {seed}"), met)
        self.scheduler = Scheduler(random.Random(f"threads {seed}"))
        self.disk = Disk(folder, self.scheduler, self.faults, random.Random(f"disk {seed}"))
        self.broker = Broker(self.disk, random.Random(f"broker {seed}"))
        self.store = Store(self.disk, random.Random(f"store {seed}"))
        self.tables = Tables(self.disk, random.Random(f"tables {seed}"))
        self.lives = self.steps = 0
        self.looks = self.chooser.choice(LOOKS)
        self.warned: list[str] = []
        self._names = random.Random(f"names {seed}")
        (folder / "tmp").mkdir()

    def live(self, do: Callable[[], object]) -> bool:
        """A life of the process: it ends when `do` returns, or raises, or with a crash; True = not with a crash.

        Raises what `do` raises.
        """
        self.lives += 1
        self._renew()
        has_returned = False
        try:
            with self._simulated():
                try:
                    do()
                    has_returned = True
                except Ended:
                    pass
                finally:
                    hang = self.scheduler.end
                    self.scheduler.finish()
                    if isinstance(hang, AssertionError):
                        raise hang
        finally:
            gc.collect(0)
            self.steps += self.scheduler.steps
            self.disk.after_crash()
            if not has_returned:
                self._clear()
        return has_returned

    def _renew(self) -> None:
        before = self.scheduler
        self.scheduler = Scheduler(random.Random(f"threads {self._names.random()}"))
        self.scheduler.now, self.scheduler.skew = before.now + 1, before.skew
        self.disk.scheduler = self.scheduler
        locks._HELD.clear()  # of a process that has ended
        driver._early.clear()  # likewise
        durable_files._ON_DISK.clear()  # likewise

    def _clear(self) -> None:
        """Folders for rows are held by a process, and go with it."""
        for path in (self.folder / "tmp").iterdir():
            LocalPath.of(path).remove_tree()

    @contextmanager
    def _simulated(self) -> Iterator[None]:
        kinds = classes(self.scheduler)
        counter = itertools.count()
        warnings = _Warnings()
        logger = logging.getLogger("ensue")
        with ExitStack() as stack:
            for module, name, value in (
                (clock, "time", Clock(self.scheduler)),
                *((threads, name, kinds[name]) for name in ("Thread", "Event", "Future")),
                (threads, "in_kept_thread", threads.in_background),  # each one is chosen as often as its weight says
                (start, "Lock", kinds["Lock"]),
                (chance, "uuid", SimpleNamespace(uuid4=lambda: UUID(int=self._names.getrandbits(128)))),
                (chance, "random", self._names),
                (driver, "Pool", lambda count, _: SerialPool(self, count)),
                (driver, "thread_count", lambda: 1 + self._names.randrange(3)),
                (tempfile, "_name_sequence", (f"n{self.lives}-{number}" for number in counter)),
                (local_run, "SHORTEST", self.looks[0]),
                (local_run, "LONGEST", self.looks[1]),
                (arrow_files, "parquet_writer", _parquet_writer),
                (arrow_files, "csv_writer", _csv_writer),
                (functools.cached_property, "__get__", _computed),
            ):
                stack.enter_context(patch.object(module, name, value))
            for module in _users_of_writers():
                for name, writer in (("parquet_writer", _parquet_writer), ("csv_writer", _csv_writer)):
                    if hasattr(module, name):
                        stack.enter_context(patch.object(module, name, writer))
            logger.addHandler(warnings)
            propagated, logger.propagate = logger.propagate, False
            try:
                with (
                    simulated_files(self.disk),
                    simulated_broker(self.broker),
                    simulated_tables(self.tables),
                    simulated_store(self.store),
                ):
                    yield
            finally:
                logger.removeHandler(warnings)
                logger.propagate = propagated
                self.warned += warnings.lines


def _users_of_writers() -> list[Any]:
    from job_engine.sinks.folder import compaction, writing

    return [writing, compaction]


class _Parquet(pa.parquet.ParquetWriter):  # type: ignore[misc] # it has no types
    """One that a killed process leaves as it is."""

    def __del__(self) -> None:
        pass


class _Writer:
    """Writes tables to an open file through a writer of Arrow."""

    def __init__(self, writer: Any, file: Any) -> None:
        self._writer, self._file = writer, file

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _parquet_writer(path: Path, schema: pa.Schema, **settings: Any) -> _Writer:
    file = open(path, "wb")  # noqa: SIM115 # it is closed with the writer
    return _Writer(_Parquet(file, schema, **settings), file)


def _csv_writer(path: Path, schema: pa.Schema) -> _Writer:
    file = open(path, "wb")  # noqa: SIM115 # it is closed with the writer
    return _Writer(pa.csv.CSVWriter(file, schema), file)
