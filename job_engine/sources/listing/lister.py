"""What a driver asks of the lister of a run: how far the next micro-batch reads, and its tasks.

Imports little: Spark starts it in a process of its own, which has to be fast.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict

from job_engine.clock import wall_ns
from job_engine.errors import SourceProblem
from job_engine.place import Place, asked_again, place_of
from job_engine.sources.kinds import KindPlanner, Part, Planned, PlannedRun, planning_of
from job_engine.sources.listing import batch_log
from job_engine.sources.listing.command_folder import Command, CommandWatch
from job_engine.sources.listing.manifests import (
    SOURCES,
    Manifest,
    ManifestFolder,
    ReadList,
    Task,
    ToldSource,
    by_kind,
    list_place,
    load_list,
    sources_of_text,
    tasks_of,
)
from job_engine.wire.clock_sources import Clock
from querylang.dataclass import asdict, dataclass
from querylang.system_errors import reason_of
from runtime.json_reader import json_of_text

# Decide what the next micro-batch reads, which signals go with it, and what is to be reported.
#
# Asked is the end of the next micro-batch, given the end of the last one. Both are numbers of
# manifests.

FLUSH = "flush"
"""The signal that asks for most; `job_engine.wire.packed_rows.Signal` has them all."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What one run of a job asks of the lister.

    checkpoint: the folder of the checkpoint, or its URI
    at_start: signal with the run's first manifest; None = none
    at_end: signal behind all files of a run that ends; None = none
    retry: seconds that the checkpoint's store is asked again; None = as its client does
    only_repeats: whether it ends behind a micro-batch that was interrupted, and plans nothing
    """

    checkpoint: str
    at_start: str | None = None
    at_end: str | None = None
    retry: float | None = None
    only_repeats: bool = False

    def to_text(self) -> str:
        """The settings as JSON text."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_text(text: str) -> RunSettings:
        """The inverse of `to_text`."""
        return json_of_text(text, RunSettings)


@dataclass(frozen=True, slots=True)
class _Kind:
    """The sources of one kind: their formats by name, and who plans them."""

    formats: Mapping[str, str]
    planner: KindPlanner


class InputPlanner:
    """Plans the micro-batches of one run.

    now: the wall clock, ns since 1970; only how often and when something is looked at depends on it
    accepts_loss, firsts: as in `PlannedRun`
    notes: of the last micro-batch; None = as they are in the checkpoint
    records: whether `latest` puts a manifest on record; else `record` has to
    most_followed: as in `PlannedRun`, of all sources
    """

    def __init__(
        self,
        sources: Mapping[str, ToldSource],
        run: RunSettings,
        now: Callable[[], int] = wall_ns,
        *,
        accepts_loss: bool = False,
        firsts: Mapping[str, str] | None = None,
        notes: Callable[[], batch_log.JobNotes] | None = None,
        records: bool = True,
        most_followed: int | None = 0,
    ) -> None:
        self._run = run
        self._records = records
        self._checkpoint = asked_again(place_of(run.checkpoint), run.retry)
        self._notes = notes or (lambda: batch_log.job_notes(self._checkpoint))
        self._manifests = ManifestFolder.of(self._checkpoint)
        self._list_file = list_place(self._checkpoint)
        self._commands = CommandWatch(self._checkpoint, now)
        most = most_followed if most_followed is None or len(sources) <= most_followed else 0
        planned = PlannedRun(self._checkpoint, now, accepts_loss, firsts, most)
        self._kinds = [
            _Kind(
                {name: sources[name].format for name in names},
                planning_of(format_).planner([sources[name].own for name in names], planned),
            )
            for format_, names in by_kind(sources).items()
        ]
        self._reports: dict[tuple[str, str], tuple[int, str]] = {}
        self._read: ReadList | None = None
        self._next: Manifest | None = None
        self._unrecorded: Manifest | None = None
        self._made: set[int] = set()
        self._settled = 0
        self._has_fixed_end = False
        self._has_ended = False
        self._has_started = run.at_start is None

    def fix_end(self) -> None:
        """The run reads what is there now, and nothing that comes later."""
        if self._run.only_repeats:
            return
        for kind in self._kinds:
            kind.planner.fix_end()
        self._has_fixed_end = True

    def is_repeated(self, number: int) -> bool:
        """Whether a manifest was made by an earlier run, which did not commit its micro-batch."""
        return number not in self._made

    def read(self, number: int) -> Manifest:
        """A manifest that was made; raises DamagedManifest."""
        if self._next is not None and self._next.number == number:
            return self._next
        return self._manifests.read(number)

    def latest(self, start: int) -> int:
        """The manifest that ends the next micro-batch; `start` itself = there is nothing to read.

        start: the last manifest of the micro-batch before
        Raises DamagedManifest, OSError for a folder without a list, and what planners of kinds do.
        """
        if self._run.only_repeats:
            return start
        if self._next is not None and self._next.number == start + 1:
            return self._next.number
        read = self._read_up_to(start)
        self._settle(read)
        manifest = self._manifest(read)
        if manifest is None:
            return start
        self._made.add(manifest.number)
        self._next = self._unrecorded = manifest
        if self._records:
            self.record()
        return manifest.number

    def record(self) -> None:
        """Put on record what `latest` has planned; afterwards it survives a power cut."""
        if self._unrecorded is not None:
            self._manifests.write(self._unrecorded)
            self._unrecorded = None

    def taken(self, work: Mapping[str, Any]) -> list[bytes]:
        """What this process has taken already of the work of a task."""
        return [
            part
            for kind in self._kinds
            for name in kind.formats
            if name in work
            for part in kind.planner.taken(work[name])
        ]

    @property
    def asks_nobody(self) -> bool:
        """As of `Lister`."""
        return all(kind.planner.asks_nobody for kind in self._kinds)

    def close(self) -> None:
        """The run has ended."""
        for kind in self._kinds:
            kind.planner.close()

    def finish(self) -> list[tuple[str, str, int, str]]:
        """Behind the run: archive or delete what its last micro-batch has read; gives reports."""
        if any(kind.planner.settles for kind in self._kinds):
            self._settle(self._loaded(batch_log.committed_manifest(self._checkpoint)))
        return self._plain_reports()

    def _read_up_to(self, start: int) -> ReadList:
        """What was read up to a manifest, which the driver's offset log has."""
        read = self._read
        if read is None:
            read = self._loaded(start)
            # the driver does not know these: the run ended before it wrote them down
            self._manifests.remove(number for number in self._manifests.numbers() if number > start)
            for kind in self._kinds:
                kind.planner.begin(read.memories(kind.formats))
            self._commands.remove_answered(read.commands)
        elif self._next is not None and self._next.number == start:
            read.add(self._next)
            for kind in self._kinds:
                kind.planner.advance({name: self._next.by_source[name].piece for name in kind.formats})
        elif read.number != start:
            raise batch_log.DamagedManifest(
                f"the driver asks for what follows manifest {start}, after manifest {read.number}"
            )
        self._read, self._next = read, None
        if read.is_long():
            for kind in self._kinds:
                kind.planner.drop_gone(read.memories(kind.formats))
            read.compact(self._list_file, self._manifests, self._commands.pending())
        return read

    def _loaded(self, number: int) -> ReadList:
        """What was read up to a manifest, without what is not there any more."""
        read = load_list(self._list_file, self._manifests, number)
        for kind in self._kinds:
            kind.planner.load(read.memories(kind.formats))
        return read

    def _settle(self, read: ReadList) -> None:
        """Let happen what happens to what was read, once that is committed."""
        if not any(kind.planner.settles for kind in self._kinds):
            return
        committed = min(batch_log.committed_manifest(self._checkpoint), read.number)
        if committed > self._settled:
            batch_log.keep_committed(self._checkpoint)
            self._settled = committed
        for kind in self._kinds:
            if kind.planner.settles:
                kind.planner.settle(read.memories(kind.formats), committed, self._report)

    def _report(self, cause: str, source: str, example: str) -> None:
        count, _ = self._reports.get((cause, source), (0, ""))
        self._reports[cause, source] = (count + 1, example)

    def _plain_reports(self) -> list[tuple[str, str, int, str]]:
        return [(*name, *found) for name, found in sorted(self._reports.items())]

    def _manifest(self, read: ReadList) -> Manifest | None:
        """The manifest behind those that were read; None = there is nothing for it."""
        # a run that ends takes what its last records ask for before it signals the end
        commands = () if self._has_ended else self._commands.new(read.commands, at_once=self._has_fixed_end)
        if commands:
            return self._manifest_of(commands, read)
        if self._commands.has_change:
            return None
        planned = [self._planned(kind, read) for kind in self._kinds]
        has_records = any(own.has_records for own in planned)
        signal = self._signal(read, has_records=has_records)
        if not has_records and signal is None and not self._reports and not any(own.is_due for own in planned):
            return None
        self._has_started = True
        manifest = Manifest(
            number=read.number + 1,
            by_source=self._parts({name: piece for own in planned for name, piece in own.pieces.items()}),
            signal=signal,
            last_signal=signal if has_records or signal else read.last_signal,
            reports=tuple(self._plain_reports()),
            unread={name: left for own in planned for name, left in own.unread.items()},
        )
        self._reports = {}
        return manifest

    def _planned(self, kind: _Kind, read: ReadList) -> Planned:
        return kind.planner.next(read.memories(kind.formats), self._report, has_ended=self._has_ended)

    def _manifest_of(self, commands: tuple[Command, ...], read: ReadList) -> Manifest:
        """A manifest of commands alone: they take place behind all that was read before it."""
        signal = self._signal(read, has_records=True)
        self._has_started = True
        still = {name: memory.still() for kind in self._kinds for name, memory in read.memories(kind.formats).items()}
        return Manifest(read.number + 1, self._parts(still), signal, signal, commands=commands)

    def _parts(self, pieces: Mapping[str, Any]) -> dict[str, Part]:
        formats = {name: format_ for kind in self._kinds for name, format_ in kind.formats.items()}
        return {name: Part(formats[name], piece) for name, piece in sorted(pieces.items())}

    def _signal(self, read: ReadList, *, has_records: bool) -> str | None:
        if not self._has_started:
            return self._run.at_start
        if not self._has_fixed_end or has_records or self._has_ended:
            return None
        self._has_ended = True
        return self._run.at_end if self._needs_end(read) else None

    def _needs_end(self, read: ReadList) -> bool:
        """Whether the signal at the end changes anything."""
        if read.number == 0 or read.last_signal in (self._run.at_end, FLUSH):
            return False  # nothing was read, or nothing since a signal that asked for as much
        return self._run.at_end == FLUSH or self._notes().needs_catch_up


class Lister:
    """Plans the micro-batches of one run; raises InputError in words for users.

    options: `reading_options`, with `RunSettings` as `run`, and how many tasks there are as `tasks`
    notes: of the last micro-batch; None = as they are in the checkpoint
    records: whether `latest` puts a manifest on record; else `record` has to, before anybody sees
        results of its micro-batch
    most_followed: as in `PlannedRun`, of all sources; tasks need what is `taken` then, and there is
        an end, `close`
    """

    def __init__(
        self,
        options: Mapping[str, str],
        notes: Callable[[], batch_log.JobNotes] | None = None,
        *,
        records: bool = True,
        most_followed: int | None = 0,
    ) -> None:
        self._options = options
        self._run = RunSettings.of_text(options["run"])
        self._sources = sources_of_text(options[SOURCES])
        self._proven: frozenset[str] = frozenset()
        self._notes = notes or (lambda: batch_log.job_notes(self._checkpoint))
        # whether arrival times matter, and not the wall clock alone
        has_clock = json_of_text(options["program"], _ProgramClock)["clock"] == Clock.ARRIVAL
        with plain_errors():
            self._planner = InputPlanner(
                self._sources,
                self._run,
                accepts_loss=options["accept_loss"] == "true",
                firsts=options if has_clock else None,
                notes=self._notes,
                records=records,
                most_followed=most_followed,
            )

    @property
    def has_end(self) -> bool:
        """Whether the run ends with what is there at its start."""
        return self._run.at_end is not None

    @property
    def _checkpoint(self) -> Place:
        return place_of(self._run.checkpoint)

    @property
    def asks_nobody(self) -> bool:
        """Whether `latest` finds what comes without asking anybody, most of the time."""
        return self._planner.asks_nobody

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
            return batch_log.planned_manifest(self._checkpoint)

    def latest(self, start: int) -> int:
        """The manifest that ends the next micro-batch; `start` itself = there is nothing to read.

        start: the last manifest of the micro-batch before
        """
        with plain_errors():
            return self._planner.latest(start)

    def record(self) -> None:
        """Put on record what `latest` has planned; another thread may do it."""
        with plain_errors():
            self._planner.record()

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

    def taken(self, task: Task) -> list[bytes]:
        """What this process has taken already of what a task reads, for who reads it."""
        return self._planner.taken(task.work)

    def close(self) -> None:
        """The run has ended."""
        self._planner.close()

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
    except (batch_log.DamagedManifest, SourceProblem, OSError) as error:
        from querylang.errors import InputError

        if isinstance(error, OSError) and error.filename is not None:
            from job_engine.errors import failed

            raise failed(error, f"{error.filename}: {reason_of(error)}") from error
        if isinstance(error, SourceProblem) and error.is_passing:
            from job_engine.errors import Unreachable

            raise Unreachable(f"{error}. Run the job again: it continues where it stopped") from error
        raise InputError(str(error)) from error


class _ProgramClock(TypedDict):
    clock: str
