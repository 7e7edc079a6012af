"""The folder `<checkpoint>/ensue`: ledger, progress, and the lock of a running job.

Ledger and progress are running totals, a file per micro-batch, so that repeats are safe.

Reading it needs no driver, so `ensue status` works whether a job runs or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

from job_engine.durable_files import JobFile, numbers_in
from job_engine.errors import WorkerDied, plain_error
from job_engine.job.checkpoint.checkpoint_record import COMPACTION_LOCK, LOCK
from job_engine.job.checkpoint.locks import RunLock, StoreLock
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.place import Place
from job_engine.sources.crash_marks import CRASHES, CrashMarks, Deadly, marks_of, marks_of_run
from job_engine.sources.listing.batch_log import Batches, batches_of
from job_engine.sources.listing.command_folder import CommandFolder
from querylang.dataclass import asdict, dataclass
from querylang.errors import InputError
from runtime.json_shapes import Count

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
        """Write a micro-batch's data, and remove files that are now too old.

        The local driver writes one at each commit, behind many micro-batches. The file before it
        stays, however old: after a crash before the commit it is counted on from there.
        """
        self._file(batch).write(data)
        for number in [number for number in self.numbers() if number <= batch][: -self.kept]:
            self._file(number).remove()

    def _read(self, batch: int) -> Any:
        file = self._file(batch)
        data = file.needed()  # it may have been removed since it was listed
        with file.checking():
            self.check(data)
        return data

    def _file(self, batch: int) -> JobFile[Any]:
        return JobFile(self.folder / f"{batch:010d}.json", self.shape, _WAY_OUT, packs=1)


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
        return self._lock(COMPACTION_LOCK, "compaction")

    def _lock(self, name: str, work: str) -> RunLock | StoreLock:
        file = self.path / name
        return RunLock(file, work) if isinstance(file, Path) else StoreLock(file, work)


# How often a micro-batch was tried in which a worker died, and what it read.

MOST_TRIES = 4
"""So often a run tries a micro-batch: two deaths mark its ranges, and the next try divides them."""

_SHOWN = 3
_WORDS = ("first", "second", "third", "fourth", "fifth")

CONTINUES = "Run the job again: it continues where it stopped"

_SMALLER = "with a smaller {}, what the micro-batch reads is planned anew, unless results of it are published"


@dataclass(frozen=True, slots=True)
class _Failed:
    """How many tries of a micro-batch have failed."""

    batch: Count
    tries: Count


def failed_tries(checkpoint: Place) -> int:
    """How many tries have failed of the micro-batch that is open; 0 = none, or none is open."""
    return _failed_tries(checkpoint, batches_of(checkpoint).open)


def _failed_tries(checkpoint: Place, batch: int | None) -> int:
    """The same; `batch`: the one that is open."""
    found = None if batch is None else _file(checkpoint).readable()
    return 0 if found is None or found.batch != batch else found.tries


def marks_of_next_run(checkpoint: Place, batch: int | None) -> CrashMarks:
    """The marks as workers of a run that begins now need them; `batch`: the one that is open."""
    return marks_of_run(checkpoint, had_deaths=_failed_tries(checkpoint, batch) > 0)


def _file(checkpoint: Place) -> JobFile[_Failed]:
    return JobFile(checkpoint / "ensue" / CRASHES / "tries.json", _Failed)


def remove_tries(checkpoint: Place) -> None:
    """Forget how many tries have failed: the micro-batch will read something else."""
    _file(checkpoint).remove()


@contextmanager
def told_deaths(checkpoint: Place, limits: str = "") -> Iterator[None]:
    """Say what a worker read that died, in which micro-batch, and how often that was tried.

    limits: of a micro-batch, as people know them; "" = no source has one
    """
    try:
        yield
    except WorkerDied as error:
        try:
            way_out = f"; {_SMALLER.format(limits)}" if limits and batches_of(checkpoint).open is not None else ""
            words = f"{_where(checkpoint)}. {CONTINUES}{way_out}"
        except (OSError, InputError) as problem:  # that the worker died is what has to be said
            words = f". What it read is not known ({plain_error(problem)}). {CONTINUES}"
        raise WorkerDied(f"{error}{words}") from error


def _where(checkpoint: Place) -> str:
    marks, batch = marks_of(checkpoint), batches_of(checkpoint).open
    ranges = [mark.range for mark in marks.marked()]
    more = f" and {len(ranges) - _SHOWN} more" if len(ranges) > _SHOWN else ""
    reading = f" while it read {'; '.join(ranges[:_SHOWN])}{more}" if ranges else ""
    if batch is None:
        return reading
    tries = _failed_tries(checkpoint, batch) + 1
    _file(checkpoint).write(asdict(_Failed(batch, tries)))
    word = _WORDS[tries - 1] if tries <= len(_WORDS) else f"{tries}th"
    return f"{reading} (micro-batch {batch}, {word} try)"


def skip_records(checkpoint: Place, places: list[str], *, has_log: bool) -> None:
    """Leave out messages from now on; raises InputError. A place is `SOURCE/PARTITION/OFFSET`."""
    marks = marks_of(checkpoint)
    for place in places:
        source, *numbers = place.rsplit("/", 2)
        if len(numbers) < 2 or not source or not all(number.isdecimal() for number in numbers):
            raise InputError(f"--skip {place}: must be SOURCE/PARTITION/OFFSET, such as `cards/0/1234`")
        if not has_log:
            raise InputError(
                f"--skip {place}: leaves out a message, and no source of the job is a topic."
                " What ends the process in a file is left out without it"
            )
        marks.skip(Deadly(source, int(numbers[0]), int(numbers[1]), "left out by --skip"))
