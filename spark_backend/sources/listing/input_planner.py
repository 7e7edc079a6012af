"""Decide what the next micro-batch reads: new files in order, signals, and what is to be reported.

Spark asks for the end of the next micro-batch, given the end of the last one. Both are numbers of
manifests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from runtime.natural_names import natural_key
from spark_backend.sources.listing.after_reading import Settled, SettledFile, forget_settled, settle
from spark_backend.sources.listing.changed_files import ChangeWatch
from spark_backend.sources.listing.file_order import first_ones, in_order
from spark_backend.sources.listing.folder_listing import FileStamp, FolderWatch
from spark_backend.sources.listing.job_notes import job_notes
from spark_backend.sources.listing.listed_source import ListedSource
from spark_backend.sources.listing.manifests import DamagedManifest, Manifest, ManifestFolder, SourceCount, TakenFile
from spark_backend.sources.listing.read_files import ReadFiles, load_read_files
from spark_backend.sources.listing.spark_log import committed_manifest

FLUSH = "flush"
"""The signal that asks for most; `spark_backend.wire.packed_rows.Signal` has them all."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What one run of a job asks of the lister.

    checkpoint: the folder of Spark's checkpoint
    at_start: signal with the run's first manifest; None = none
    at_end: signal behind all files of a run that ends; None = none
    """

    checkpoint: str
    at_start: str | None = None
    at_end: str | None = None

    def to_text(self) -> str:
        """The settings as JSON text."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_text(text: str) -> RunSettings:
        """The inverse of `to_text`."""
        return RunSettings(**json.loads(text))


def inputs_folder(checkpoint: Path) -> Path:
    """Where the list of inputs is, inside a checkpoint."""
    return checkpoint / "ensue" / "inputs"


class InputPlanner:
    """Plans the micro-batches of one run.

    now: the wall clock, ns since 1970; only `min_age` and how often folders are listed depend on it
    """

    def __init__(
        self, sources: Sequence[ListedSource], run: RunSettings, now: Callable[[], int] = time.time_ns
    ) -> None:
        self._sources = sources
        self._run = run
        self._now = now
        folder = inputs_folder(Path(run.checkpoint))
        self._manifests = ManifestFolder(folder / "manifests")
        self._list_file = folder / "read.json"
        self._settled_file = SettledFile(folder / "settled.json")
        self._watches = {source.name: FolderWatch(source) for source in sources}
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
        self._find_new_files()
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
        Raises DamagedManifest, and OSError for a folder that cannot be listed.
        """
        if self._next is not None and self._next.number == start + 1:
            return self._next.number
        read = self._read_up_to(start)
        self._settle(read)
        if not self._has_fixed_end:
            self._find_new_files()
        if not self._has_ended:
            self._changed += self._changes.found(self._sources, read, self._report)
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
            self._settle(self._loaded(committed_manifest(Path(self._run.checkpoint))))
        return self._plain_reports()

    def _read_up_to(self, start: int) -> ReadFiles:
        """What was read up to a manifest, which Spark's offset log has."""
        read = self._read
        if read is None:
            read = self._loaded(start)
            # Spark does not know these: the run ended before it wrote them down
            self._manifests.remove(number for number in self._manifests.numbers() if number > start)
            self._changes.watch_all(read)
        elif self._next is not None and self._next.number == start:
            read.add(self._next)
            self._changes.watch(self._next.files)
        elif read.number != start:
            raise DamagedManifest(f"Spark asks for what follows manifest {start}, after manifest {read.number}")
        self._read, self._next = read, None
        if read.is_long():
            read.drop_gone({name: watch.names() for name, watch in self._watches.items() if self._is_mounted(name)})
            read.compact(self._list_file, self._manifests)
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
        committed = min(committed_manifest(Path(self._run.checkpoint)), read.number) if sources else 0
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
        counts = dict(read.counts)
        files = tuple(file for source in self._sources for file in self._take(source, read, counts))
        signal = self._signal(read, has_files=bool(files))
        if not files and signal is None and not self._reports:
            return None
        self._has_started = True
        manifest = Manifest(
            number=read.number + 1,
            files=files,
            counts=counts,
            signal=signal,
            last_signal=signal if files or signal else read.last_signal,
            reports=tuple(self._plain_reports()),
            changed=tuple(self._changed),
        )
        self._reports, self._changed = {}, []
        return manifest

    def _signal(self, read: ReadFiles, *, has_files: bool) -> str | None:
        if not self._has_started:
            return self._run.at_start
        if not self._has_fixed_end or has_files or self._has_ended:
            return None
        self._has_ended = True
        return self._run.at_end if self._needs_end(read) else None

    def _needs_end(self, read: ReadFiles) -> bool:
        """Whether the signal at the end changes anything."""
        if read.number == 0 or read.last_signal in (self._run.at_end, FLUSH):
            return False  # nothing was read, or nothing since a signal that asked for as much
        return self._run.at_end == FLUSH or job_notes(Path(self._run.checkpoint)).needs_catch_up

    def _take(self, source: ListedSource, read: ReadFiles, counts: dict[str, SourceCount]) -> list[TakenFile]:
        """The source's next files, with the stamps that they have now."""
        pending, known = self._pending[source.name], read.of(source.name)
        for path in [path for path in pending if path in known]:
            del pending[path]  # read by an earlier run: the list was not loaded when it was found
        taken: list[TakenFile] = []
        count = counts.get(source.name, SourceCount())
        for path in first_ones(source, in_order(source, pending), pending):
            del pending[path]
            stamp = self._stamp(source, path)
            if stamp is not None:
                self._devices[source.name] = _device(source)
                count = self._counted(source, count, path)
                taken.append(TakenFile(source.name, count.files, path, stamp))
        counts[source.name] = count
        return taken

    def _stamp(self, source: ListedSource, path: str) -> FileStamp | None:
        """The file's stamp now; None = it was removed before it was read."""
        try:
            return FileStamp.of(source.file(path).stat())
        except OSError as error:
            self._report("lost", source.name, f"{path}: was removed before it was read: {error.strerror}")
            return None

    def _counted(self, source: ListedSource, count: SourceCount, path: str) -> SourceCount:
        is_larger = not count.largest or natural_key(path) > natural_key(count.largest)
        if source.order == "name" and not is_larger:
            self._report("smaller_name", source.name, f"{path} after {count.largest}")
        return replace(count, files=count.files + 1, largest=path if is_larger else count.largest)


def _device(source: ListedSource) -> int | None:
    """The number of the device that a source's folder is on; None = the folder is not there."""
    try:
        return Path(source.folder).stat().st_dev
    except OSError:
        return None


def _is_in(pending: Mapping[str, object], read: Mapping[str, object], path: str) -> bool:
    return path in pending or path in read
