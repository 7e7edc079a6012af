"""Decide what the next micro-batch reads: new files in order, signals, and what is to be reported.

Spark asks for the end of the next micro-batch, given the end of the last one. Both are numbers of
manifests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from runtime.instants import NO_TIME
from runtime.json_reader import json_of_text
from runtime.natural_names import natural_key
from spark_backend.places.place import asked_again, place_of
from spark_backend.sources.delta.commit_planner import CommitPlanner
from spark_backend.sources.delta.table_units import TableReads
from spark_backend.sources.kafka.offset_planner import OffsetPlanner
from spark_backend.sources.kafka.offsets import Offsets
from spark_backend.sources.listing.after_reading import Settled, SettledFile, forget_settled, settle
from spark_backend.sources.listing.changed_files import WATCHED, ChangeWatch
from spark_backend.sources.listing.command_folder import Command
from spark_backend.sources.listing.command_watch import CommandWatch
from spark_backend.sources.listing.file_order import first_ones, in_order
from spark_backend.sources.listing.folder_listing import FileStamp
from spark_backend.sources.listing.job_notes import job_notes
from spark_backend.sources.listing.listed_source import ListedSource
from spark_backend.sources.listing.manifests import (
    DamagedManifest,
    Manifest,
    ManifestFolder,
    SourceCount,
    TakenFile,
    WaitingFile,
)
from spark_backend.sources.listing.read_files import ReadFiles, list_place, load_read_files
from spark_backend.sources.listing.source_watch import watch_of
from spark_backend.sources.listing.spark_log import committed_manifest
from spark_backend.sources.listing.unread import Unread

FirstArrivals = Callable[[ListedSource, Sequence[TakenFile]], Sequence[int | None]]
"""Gives the least arrival time, µs, of the records of each file; None = it can bring none."""

FLUSH = "flush"
"""The signal that asks for most; `spark_backend.wire.packed_rows.Signal` has them all."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What one run of a job asks of the lister.

    checkpoint: the folder of Spark's checkpoint, or its URI
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


class InputPlanner:
    """Plans the micro-batches of one run.

    now: the wall clock, ns since 1970; only `min_age` and how often folders are listed depend on it
    offsets: plans those of Kafka sources; None = there is no such source
    tables: plans those of Delta sources; None = there is no such source
    firsts: tells when the records of files arrive; None = their order says nothing
    """

    def __init__(
        self,
        sources: Sequence[ListedSource],
        run: RunSettings,
        now: Callable[[], int] = time.time_ns,
        offsets: OffsetPlanner | None = None,
        tables: CommitPlanner | None = None,
        firsts: FirstArrivals | None = None,
    ) -> None:
        self._sources = sources
        self._firsts = firsts
        self._offsets = offsets
        self._tables = tables
        self._run = run
        self._now = now
        self._checkpoint = asked_again(place_of(run.checkpoint), run.retry)
        self._manifests = ManifestFolder.of(self._checkpoint)
        self._list_file = list_place(self._checkpoint)
        self._settled_file = SettledFile.of(self._checkpoint)
        self._commands = CommandWatch(self._checkpoint, now)
        self._watches = {source.name: watch_of(source) for source in sources}
        self._pending: dict[str, dict[str, FileStamp]] = {source.name: {} for source in sources}
        self._skipped: set[tuple[str, str]] = set()
        self._reports: dict[tuple[str, str], tuple[int, str]] = {}
        self._changes = ChangeWatch()
        self._changed: list[TakenFile] = []
        self._read: ReadFiles | None = None
        self._devices: dict[str, int | None] = {}
        self._settled: dict[str, Settled] = {}
        self._settled_up_to = 0
        self._next: Manifest | None = None
        self._made: set[int] = set()
        self._has_fixed_end = False
        self._has_ended = False
        self._has_started = run.at_start is None

    def fix_end(self) -> None:
        """The run reads what is there now, and nothing that comes later."""
        if self._run.only_repeats:
            return
        self._find_new_files()
        if self._offsets is not None:
            self._offsets.fix_end()
        if self._tables is not None:
            self._tables.fix_end()
        self._has_fixed_end = True

    def is_repeated(self, number: int) -> bool:
        """Whether a manifest was made by an earlier run, which did not commit its micro-batch."""
        return number not in self._made

    def read(self, number: int) -> Manifest:
        """A manifest that was made; raises DamagedManifest."""
        return self._manifests.read(number)

    def latest(self, start: int) -> int:
        """The manifest that ends the next micro-batch; `start` itself = there is nothing to read.

        start: the last manifest of the micro-batch before
        Raises DamagedManifest, OSError for a folder without a list, BrokerError, LostOffsets,
        UnreadableTable.
        """
        if self._run.only_repeats:
            return start
        if self._next is not None and self._next.number == start + 1:
            return self._next.number
        read = self._read_up_to(start)
        self._settle(read)
        if not self._has_fixed_end:
            self._find_new_files()
        if not self._has_ended:
            self._changed += self._changes.found(self._watches, read, self._report)
        manifest = self._manifest(read)
        if manifest is None:
            return start
        self._manifests.write(manifest)
        self._made.add(manifest.number)
        self._next = manifest
        return manifest.number

    def finish(self) -> list[tuple[str, str, int, str]]:
        """Behind the run: archive or delete what its last micro-batch has read; gives reports."""
        if any(source.after != "keep" for source in self._sources):
            self._settle(self._loaded(committed_manifest(self._checkpoint)))
        return self._plain_reports()

    def _read_up_to(self, start: int) -> ReadFiles:
        """What was read up to a manifest, which Spark's offset log has."""
        read = self._read
        if read is None:
            read = self._loaded(start)
            # Spark does not know these: the run ended before it wrote them down
            self._manifests.remove(number for number in self._manifests.numbers() if number > start)
            self._changes.watch_all(read)
            self._commands.remove_answered(read.commands)
        elif self._next is not None and self._next.number == start:
            read.add(self._next)
            self._changes.watch(self._next.files)
        elif read.number != start:
            raise DamagedManifest(f"Spark asks for what follows manifest {start}, after manifest {read.number}")
        self._read, self._next = read, None
        if read.is_long():
            read.drop_gone({name: watch.names() for name, watch in self._watches.items() if self._is_mounted(name)})
            read.compact(self._list_file, self._manifests, self._commands.pending())
        return read

    def _is_mounted(self, source: str) -> bool:
        """Whether a source's folder is on the device that this run has read its files from.

        Otherwise files that are not there now may come back, and would be read again.
        """
        return any(item.name == source and _device(item) == self._devices.get(source) for item in self._sources)

    def _loaded(self, number: int) -> ReadFiles:
        """What was read up to a manifest, without what was archived or deleted."""
        read = load_read_files(self._list_file, self._manifests, number)
        self._settled = self._settled_file.read()
        forget_settled(read, self._settled, self._sources)
        for source in self._sources:
            if source.after != "keep" and source.name in self._settled:
                self._settled[source.name].left.clear()  # they are tried again
        return read

    def _settle(self, read: ReadFiles) -> None:
        """Archive or delete what is committed."""
        sources = [source for source in self._sources if source.after != "keep"]
        committed = min(committed_manifest(self._checkpoint), read.number) if sources else 0
        if committed <= self._settled_up_to:
            return
        for source in sources:
            self._leave_out_read(source.name, read)
            settled = self._settled.setdefault(source.name, Settled())
            for path, problem in settle(source, read, committed, settled).items():
                self._report("not_settled", source.name, f"{path}: {problem}")
        self._settled_file.write(self._settled)
        self._settled_up_to = committed

    def _leave_out_read(self, source: str, read: ReadFiles) -> None:
        """Take out files of an earlier run, found while the list was not loaded: they go now."""
        pending, known = self._pending[source], read.of(source)
        for path in [path for path, stamp in pending.items() if path in known and known[path].stamp == stamp]:
            del pending[path]

    def _find_new_files(self) -> None:
        now = self._now()
        for source in self._sources:
            pending = self._pending[source.name]
            read = self._read.of(source.name) if self._read is not None else {}
            found = self._watches[source.name].new_files(partial(_is_in, pending, read), now)
            pending.update(found.files)
            for path, problem in sorted(found.skipped.items()):
                if (source.name, path) not in self._skipped:
                    self._skipped.add((source.name, path))
                    self._report("not_a_file", source.name, f"{path}: {problem}")

    def _report(self, cause: str, source: str, example: str) -> None:
        count, _ = self._reports.get((cause, source), (0, ""))
        self._reports[cause, source] = (count + 1, example)

    def _plain_reports(self) -> list[tuple[str, str, int, str]]:
        return [(*name, *found) for name, found in sorted(self._reports.items())]

    def _manifest(self, read: ReadFiles) -> Manifest | None:
        """The manifest behind those that were read; None = there is nothing for it."""
        commands = () if self._has_ended else self._commands.new(read.commands)
        if commands:
            return self._manifest_of(commands, read)
        if self._commands.has_change:
            return None
        counts = dict(read.counts)
        taken = [self._take(source, read, counts) for source in self._sources]
        files = tuple(file for item in taken for file in item.files)
        offsets = Offsets() if self._offsets is None else self._offsets.next(read.positions, self._report)
        tables = self._table_reads(read, counts)
        has_records = bool(files or offsets.ranges or tables.units)
        signal = self._signal(read, has_records=has_records)
        has_moved = self._tables is not None and self._tables.is_worth_noting(read.tables, tables)
        if not has_records and not offsets.advances and signal is None and not self._reports and not has_moved:
            return None
        self._has_started = True
        manifest = Manifest(
            number=read.number + 1,
            files=files,
            counts=counts,
            signal=signal,
            last_signal=signal if has_records or signal else read.last_signal,
            reports=tuple(self._plain_reports()),
            changed=tuple(self._changed),
            offsets=offsets,
            tables=tables,
            waiting=tuple(item for own in taken for item in own.waiting),
            dropped=tuple(item for own in taken for item in own.dropped),
            unread={name: left for own in taken for name, left in own.unread.items()} | dict(tables.unread),
        )
        self._reports, self._changed = {}, []
        return manifest

    def _manifest_of(self, commands: tuple[Command, ...], read: ReadFiles) -> Manifest:
        """A manifest of commands alone: they take place behind all that was read before it."""
        signal = self._signal(read, has_records=True)
        self._has_started = True
        return Manifest(
            number=read.number + 1,
            counts=dict(read.counts),
            signal=signal,
            last_signal=signal,
            offsets=Offsets(positions=read.positions),
            tables=TableReads(positions=read.tables),
            commands=commands,
        )

    def _table_reads(self, read: ReadFiles, counts: dict[str, SourceCount]) -> TableReads:
        """What is read of tables; their data files are counted like others."""
        if self._tables is None:
            return TableReads()
        numbers = {source: count.files for source, count in counts.items()}
        found = self._tables.next(read.tables, numbers, self._report)
        for unit in found.units:
            counts[unit.source] = SourceCount(unit.first + len(unit.files) - 1)
        return found

    def _signal(self, read: ReadFiles, *, has_records: bool) -> str | None:
        if not self._has_started:
            return self._run.at_start
        if not self._has_fixed_end or has_records or self._has_ended:
            return None
        self._has_ended = True
        return self._run.at_end if self._needs_end(read) else None

    def _needs_end(self, read: ReadFiles) -> bool:
        """Whether the signal at the end changes anything."""
        if read.number == 0 or read.last_signal in (self._run.at_end, FLUSH):
            return False  # nothing was read, or nothing since a signal that asked for as much
        return self._run.at_end == FLUSH or job_notes(self._checkpoint).needs_catch_up

    def _take(self, source: ListedSource, read: ReadFiles, counts: dict[str, SourceCount]) -> _Taken:
        """The source's next files, with the stamps that they have now."""
        pending, known, waiting = self._pending[source.name], read.of(source.name), read.waiting_of(source.name)
        for path in [path for path in pending if path in known or path in waiting]:
            del pending[path]  # of an earlier run: the list was not loaded when it was found
        ordered = in_order(source, pending)
        if not waiting and len(first_ones(source, ordered, pending)) == len(ordered):
            return _Taken(self._numbered(source, ordered, counts))
        if not waiting and (self._firsts is None or not source.has_clock):
            return _Taken(self._numbered(source, first_ones(source, ordered, pending), counts))
        known_before = [item.item for item in waiting.values()]
        old, again = self._looked_up_again(source, sorted(known_before, key=lambda item: item.order))
        new = [*self._looked_up(source, self._numbered(source, ordered, counts), old), *again]
        listed = sorted((*old, *new), key=lambda item: item.order)
        files, dropped = self._first_of(source, listed)
        gone = {file.path for file in files}.union(dropped)
        return _Taken(
            files,
            [item for item in new if item.file.path not in gone],
            [(source.name, path) for path in dropped if path in waiting],
            {source.name: unread_of([item for item in listed if item.file.path not in gone])},
        )

    def _numbered(self, source: ListedSource, paths: Sequence[str], counts: dict[str, SourceCount]) -> list[TakenFile]:
        """These files in order, with their numbers, without those that were removed."""
        found: list[TakenFile] = []
        count = counts.get(source.name, SourceCount())
        for path in paths:
            del self._pending[source.name][path]
            stamp = self._stamp(source, path)
            if stamp is not None:
                self._devices[source.name] = _device(source)
                count = self._counted(source, count, path)
                found.append(TakenFile(source.name, count.files, path, stamp))
        counts[source.name] = count
        return found

    def _looked_up(
        self, source: ListedSource, files: Sequence[TakenFile], old: Sequence[WaitingFile]
    ) -> list[WaitingFile]:
        """New files with their first arrivals; one that can bring no records has that before it.

        old: those that wait
        """
        together = {file.path: file.stamp for file in (*(item.file for item in old), *files)}
        if self._firsts is None or len(first_ones(source, list(together), together)) == len(together):
            return [WaitingFile(file, NO_TIME) for file in files]  # all of them are read now
        found: list[WaitingFile] = []
        before = NO_TIME
        for file, first in zip(files, self._firsts(source, files), strict=True):
            before = before if first is None else first
            found.append(WaitingFile(file, before))
        return found

    def _looked_up_again(
        self, source: ListedSource, waiting: Sequence[WaitingFile]
    ) -> tuple[list[WaitingFile], list[WaitingFile]]:
        """Waiting files as they were, and those of the next ones that were written again since."""
        if self._firsts is None:
            return list(waiting), []
        changed: dict[str, TakenFile] = {}
        for item in waiting[:WATCHED]:
            with suppress(OSError):  # one that was removed is reported when it would be read
                stamp = self._watches[source.name].stamp(item.file.path)
                if stamp != item.file.stamp:
                    changed[item.file.path] = replace(item.file, stamp=stamp)
        firsts = self._firsts(source, list(changed.values())) if changed else ()
        again = zip(changed.values(), firsts, strict=True)
        return (
            [item for item in waiting if item.file.path not in changed],
            [WaitingFile(file, NO_TIME if first is None else first) for file, first in again],
        )

    def _first_of(self, source: ListedSource, listed: Sequence[WaitingFile]) -> tuple[list[TakenFile], list[str]]:
        """The listed files that a micro-batch reads, at least one, and the removed ones."""
        taken: list[TakenFile] = []
        dropped: list[str] = []
        size = 0
        for item in listed:
            if taken and len(taken) == source.max_files:
                break
            stamp = self._stamp(source, item.file.path)
            if stamp is None:
                dropped.append(item.file.path)
                continue
            size += stamp.size
            if taken and source.max_bytes is not None and size > source.max_bytes:
                break
            self._devices[source.name] = _device(source)
            taken.append(replace(item.file, stamp=stamp))
        return taken, dropped

    def _stamp(self, source: ListedSource, path: str) -> FileStamp | None:
        """The file's stamp now; None = it was removed before it was read."""
        try:
            return self._watches[source.name].stamp(path)
        except ConnectionError:
            raise  # a store that is away says nothing about the file
        except OSError as error:
            self._report("lost", source.name, f"{path}: was removed before it was read: {error.strerror}")
            return None

    def _counted(self, source: ListedSource, count: SourceCount, path: str) -> SourceCount:
        is_larger = not count.largest or natural_key(path) > natural_key(count.largest)
        if source.order == "name" and not is_larger:
            self._report("smaller_name", source.name, f"{path} after {count.largest}")
        return replace(count, files=count.files + 1, largest=path if is_larger else count.largest)


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a manifest has of one source of files; fields as in `Manifest`."""

    files: list[TakenFile]
    waiting: Sequence[WaitingFile] = ()
    dropped: Sequence[tuple[str, str]] = ()
    unread: Mapping[str, Unread | None] = field(default_factory=dict)


def unread_of(left: Sequence[WaitingFile]) -> Unread | None:
    """What is left, in order of arrival, as the clock has to know it."""
    if not left:
        return None
    return Unread(left[0].first, min(item.file.number for item in left), left[0].file.path)


def _device(source: ListedSource) -> int | None:
    """The number of the device that a source's folder is on; None = the folder is not there."""
    try:
        return source.place.stat().st_dev
    except OSError:
        return None


def _is_in(pending: Mapping[str, object], read: Mapping[str, object], path: str) -> bool:
    return path in pending or path in read
