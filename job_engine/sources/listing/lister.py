"""What a driver asks of the lister of a run: how far the next micro-batch reads, and its tasks.

Imports little: Spark starts it in a process of its own, which has to be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypedDict

from job_engine.errors import SourceProblem
from job_engine.places.place import Place, place_of
from job_engine.sources.kinds import planning_of
from job_engine.sources.listing.batch_log import planned_manifest
from job_engine.sources.listing.input_planner import InputPlanner, RunSettings
from job_engine.sources.listing.job_notes import JobNotes, job_notes
from job_engine.sources.listing.places import DamagedManifest
from job_engine.sources.listing.tasks import SOURCES, Task, sources_of_text, tasks_of
from job_engine.wire.clock_sources import Clock
from runtime.json_reader import json_of_text


class Lister:
    """Plans the micro-batches of one run; raises InputError in words for users.

    options: `reading_options`, with `RunSettings` as `run`, and how many tasks there are as `tasks`
    notes: of the last micro-batch; None = as they are in the checkpoint
    """

    def __init__(self, options: Mapping[str, str], notes: Callable[[], JobNotes] | None = None) -> None:
        self._options = options
        self._run = RunSettings.of_text(options["run"])
        self._sources = sources_of_text(options[SOURCES])
        self._proven: frozenset[str] = frozenset()
        self._notes = notes or (lambda: job_notes(self._checkpoint))
        # whether arrival times matter, and not the wall clock alone
        has_clock = json_of_text(options["program"], _ProgramClock)["clock"] == Clock.ARRIVAL
        with plain_errors():
            self._planner = InputPlanner(
                self._sources,
                self._run,
                accepts_loss=options["accept_loss"] == "true",
                firsts=options if has_clock else None,
                notes=self._notes,
            )

    @property
    def has_end(self) -> bool:
        """Whether the run ends with what is there at its start."""
        return self._run.at_end is not None

    @property
    def _checkpoint(self) -> Place:
        return place_of(self._run.checkpoint)

    @property
    def has_unproven(self) -> bool:
        """Whether a source has to prove itself, and has not brought a record before."""
        return bool(self._unproven())

    def fix_end(self) -> None:
        """The run ends with what is there now."""
        with plain_errors():
            self._planner.fix_end()

    def planned(self) -> int:
        """The last manifest that is on record; 0 = none."""
        with plain_errors():
            return planned_manifest(self._checkpoint)

    def latest(self, start: int) -> int:
        """The manifest that ends the next micro-batch; `start` itself = there is nothing to read.

        start: the last manifest of the micro-batch before
        """
        with plain_errors():
            return self._planner.latest(start)

    def tasks(self, start: int, end: int) -> list[Task]:
        """The tasks that read the manifests behind `start` up to `end`."""
        with plain_errors():
            unproven, count = self._unproven(), int(self._options["tasks"])
            return [
                task
                for number in range(start + 1, end + 1)
                for task in tasks_of(
                    self._planner.read(number),
                    count,
                    self._sources,
                    unproven=unproven,
                    is_repeated=self._planner.is_repeated(number),
                )
            ]

    def _unproven(self) -> list[str]:
        """The sources that have not brought a record before, as far as it matters."""
        names = [name for name, source in self._sources.items() if planning_of(source.format).must_prove(source.own)]
        if not self._proven.issuperset(names):
            self._proven = self._notes().brought
        return [name for name in names if name not in self._proven]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors in words for users; `querylang` takes long to import, so only when there is one."""
    try:
        yield
    except (DamagedManifest, SourceProblem, OSError) as error:
        from querylang.errors import InputError

        if isinstance(error, OSError) and error.filename is not None:
            from job_engine.errors import failed

            raise failed(error, f"{error.filename}: {error.strerror}") from error
        if isinstance(error, SourceProblem) and error.is_passing:
            from job_engine.errors import Unreachable

            raise Unreachable(f"{error}. Run the job again: it continues where it stopped") from error
        raise InputError(str(error)) from error


class _ProgramClock(TypedDict):
    clock: str
