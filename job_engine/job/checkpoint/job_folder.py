"""The folder `<checkpoint>/ensue`: ledger, progress, and the lock of a running job.

Ledger and progress are running totals, a file per micro-batch, so that repeats are safe.

Reading it needs no driver, so `ensue status` works whether a job runs or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from job_engine.durable_files import JobFile, numbers_in
from job_engine.job.checkpoint.checkpoint_record import LOCK
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.job.checkpoint.run_lock import RunLock
from job_engine.job.checkpoint.store_lock import StoreLock
from job_engine.places.place import Place
from job_engine.sources.listing.batch_log import Batches, batches_of
from job_engine.sources.listing.command_folder import CommandFolder
from querylang.errors import InputError

_WAY_OUT = "Restore it from a copy; without it, delete it, and its micro-batch is missing in counts and status"


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """Running totals, one JSON file per micro-batch.

    Each file is computed from the one before it, never from one of its own number. So a repeated
    micro-batch is counted once.

    folder: where the files are
    kept: number of latest files that are not removed
    shape: of the data
    check: raises DamagedJson for data that cannot be
    """

    folder: Place
    kept: int = 10
    shape: Any = object
    check: Callable[[Any], object] = id

    def latest(self, before: int | None = None) -> tuple[int, Any] | None:
        """The latest micro-batch and its data; None = there is none.

        before: only micro-batches of lower number; None = all

        Raises InputError for a damaged file.
        """
        numbers = [number for number in self.numbers() if before is None or number < before]
        return None if not numbers else (max(numbers), self._read(max(numbers)))

    def readable(self) -> tuple[tuple[int, Any] | None, list[str]]:
        """The latest micro-batch whose file can be read, and what is wrong with later ones."""
        mistakes: list[str] = []
        for number in reversed(self.numbers()):
            try:
                return (number, self._read(number)), mistakes
            except InputError as error:
                mistakes.append(str(error))
        return None, mistakes

    def numbers(self) -> list[int]:
        """The micro-batches that have a file, ascending."""
        return numbers_in(self.folder)

    def write(self, batch: int, data: Any) -> None:
        """Write a micro-batch's data, and remove files that are now too old."""
        self._file(batch).write(data)
        for number in self.numbers():
            if number <= batch - self.kept:
                self._file(number).remove()

    def _read(self, batch: int) -> Any:
        file = self._file(batch)
        data = file.needed()  # it may have been removed since it was listed
        with file.checking():
            self.check(data)
        return data

    def _file(self, batch: int) -> JobFile[Any]:
        return JobFile(self.folder / f"{batch:010d}.json", self.shape, _WAY_OUT)


Ledger = dict[tuple[str, str, str], int]
"""Counts by query, source and word."""


@dataclass(frozen=True, slots=True)
class LedgerFiles:
    """The ledger of a checkpoint since its beginning."""

    files: BatchFiles

    def total(self, before: int | None = None) -> Ledger:
        """The counts up to the latest micro-batch, or the latest one before `before`."""
        found = self.files.latest(before)
        return {} if found is None else _ledger_of(found[1])

    def readable(self) -> tuple[Ledger, list[str]]:
        """The counts of the latest file that can be read, and what is wrong with later ones."""
        found, mistakes = self.files.readable()
        return ({} if found is None else _ledger_of(found[1])), mistakes

    def add(self, batch: int, changes: Ledger) -> Ledger:
        """Add the changes of a micro-batch, and give the counts; repeated, it is counted once."""
        total = self.total(before=batch)
        for key, count in changes.items():
            total[key] = total.get(key, 0) + count
        self.write(batch, total)
        return total

    def write(self, batch: int, total: Ledger) -> None:
        """Write the counts behind a micro-batch."""
        self.files.write(batch, [[*key, count] for key, count in sorted(total.items()) if count])


def _ledger_of(data: Any) -> Ledger:
    return {(query, source, what): count for query, source, what, count in data}


def _check_progress(data: _ProgressFile) -> None:
    JobProgress.from_plain(data["progress"])


class _ProgressFile(TypedDict):
    progress: dict[str, Any]
    queries: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Reached:
    """Where a job is, between two micro-batches; `progress`: behind the last that has ended."""

    batches: Batches
    progress: JobProgress


@dataclass(frozen=True, slots=True)
class JobFolder:
    """What Ensue keeps inside a checkpoint."""

    checkpoint: Place

    @property
    def path(self) -> Place:
        """The folder itself."""
        return self.checkpoint / "ensue"

    @property
    def ledger(self) -> LedgerFiles:
        """The ledger."""
        return LedgerFiles(BatchFiles(self.path / "ledger", shape=list[tuple[str, str, str, int]]))

    @property
    def progress(self) -> BatchFiles:
        """Per micro-batch `progress` (`JobProgress`) and `queries` (`shared_order` by title)."""
        return BatchFiles(self.path / "progress", shape=_ProgressFile, check=_check_progress)

    def last_progress(self, before: int | None = None) -> JobProgress:
        """The progress after the last micro-batch.

        before: only micro-batches of lower number; None = all
        """
        found = self.progress.latest(before)
        return JobProgress.from_plain(None if found is None else found[1]["progress"])

    def reached(self) -> Reached:
        """Where the job is; raises InputError for a damaged file."""
        batches = batches_of(self.checkpoint)
        return Reached(batches, self.last_progress(before=batches.first_open))

    @property
    def commands(self) -> CommandFolder:
        """What users ask of the job."""
        return CommandFolder(self.checkpoint)

    def lock(self) -> RunLock | StoreLock:
        """The lock of a running job."""
        return self._lock(LOCK, "run")

    def compaction_lock(self) -> RunLock | StoreLock:
        """The lock of a compaction of its results, which a running job does not ask for."""
        return self._lock("compacting", "compaction")

    def _lock(self, name: str, work: str) -> RunLock | StoreLock:
        file = self.path / name
        return RunLock(file, work) if isinstance(file, Path) else StoreLock(file, work)
