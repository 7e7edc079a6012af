"""How often a micro-batch was tried in which a worker died, and what it read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from job_engine.durable_files import JobFile
from job_engine.errors import WorkerDied
from job_engine.places.place import Place
from job_engine.sources.crash_marks import CRASHES, CrashMarks, Deadly, marks_of, marks_of_run
from job_engine.sources.listing.batch_log import batches_of
from querylang.errors import InputError
from runtime.json_shapes import Count

MOST_TRIES = 4
"""So often a run tries a micro-batch: two deaths mark its ranges, and the next try divides them."""

_SHOWN = 3
_WORDS = ("first", "second", "third", "fourth", "fifth")

CONTINUES = "Run the job again: it continues where it stopped"


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


@contextmanager
def told_deaths(checkpoint: Place) -> Iterator[None]:
    """Say what a worker read that died, in which micro-batch, and how often that was tried."""
    try:
        yield
    except WorkerDied as error:
        raise WorkerDied(f"{error}{_where(checkpoint)}. {CONTINUES}") from error


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
