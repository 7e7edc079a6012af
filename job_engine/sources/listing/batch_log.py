"""Where the files of a checkpoint's driver are, and what its logs say of manifests: which ones are
planned and committed. Every driver writes them as Spark does.

They are in the checkpoint itself, until its state is moved to another number of buckets, or to the
other driver. Then a driver begins anew in a folder below, and counts its micro-batches from 0 on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, NotRequired, TypedDict

from job_engine.durable_files import JobFile, sync
from job_engine.place import Place, RemotePath, names_in
from job_engine.setting_keys import Engine
from querylang.dataclass import dataclass
from querylang.errors import InputError, is_passing
from runtime.json_reader import DamagedJson, json_of_text
from runtime.json_shapes import Count

OFFSET_KEY = "manifest"
"""The only key of an offset of ours; its value is the number of a manifest."""

RECORD = "ensue.json"
"""The file in a checkpoint that says what it was made for; its part `moved` concerns this file."""


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """The files of a checkpoint's driver: its logs, and the states of buckets.

    folder: where they are
    before: how many micro-batches the job had before the driver began to count there
    manifest: the last manifest of those
    """

    folder: Place
    before: int = 0
    manifest: int = 0

    @property
    def offsets(self) -> Place:
        """The log of what micro-batches read."""
        return self.folder / "offsets"

    @property
    def commits(self) -> Place:
        """The log of micro-batches that have ended."""
        return self.folder / "commits"


@dataclass(frozen=True, slots=True)
class Batches:
    """How far a job is, between two micro-batches.

    begun: the number of the last micro-batch that was begun; -1 = none
    ended: of the last one that is committed; -1 = none
    """

    begun: int
    ended: int

    @property
    def open(self) -> int | None:
        """The last micro-batch that was begun, if it is not committed; None = it is."""
        return self.begun if self.begun > self.ended else None

    @property
    def first_open(self) -> int | None:
        """The first one that a crash repeats, with all behind it; None = there is none."""
        return None if self.open is None else self.ended + 1


LATER = re.compile("(?:spark|local)-[0-9]+")
"""The name of a folder with the driver's files where a checkpoint was moved to."""


class _Moved(TypedDict):
    folder: Annotated[str, LATER]
    before: Count
    manifest: Count


class _Settings(TypedDict):
    buckets: NotRequired[str]


class _Record(TypedDict):
    engine: NotRequired[Engine]
    settings: NotRequired[_Settings]
    moved: NotRequired[_Moved | None]


class _Offset(TypedDict):
    manifest: Count


def driver_files(checkpoint: Place) -> DriverFiles:
    """Where they are; a record that cannot be read says nothing: the job refuses it."""
    record = JobFile(checkpoint / RECORD, _Record).readable()
    moved = None if record is None else record.get("moved")
    if moved is None:
        return DriverFiles(checkpoint)
    return DriverFiles(checkpoint / moved["folder"], moved["before"], moved["manifest"])


def engine_of(checkpoint: Place) -> Engine:
    """Whose files they are; Spark's where nothing says it."""
    record = JobFile(checkpoint / RECORD, _Record).readable()
    return Engine.SPARK if record is None else record.get("engine", Engine.SPARK)


def buckets_of(checkpoint: Place) -> int | None:
    """Into how many buckets a checkpoint divides keys; None = nothing says it."""
    record = JobFile(checkpoint / RECORD, _Record).readable()
    found = "" if record is None else record.get("settings", {}).get("buckets", "")
    return int(found) if found.isdecimal() else None


def planned_manifest(checkpoint: Place) -> int:
    """The number of the last manifest that the driver has on record; 0 = none."""
    files = driver_files(checkpoint)
    return _last_of(_batches(files.offsets), files)


def committed_manifest(checkpoint: Place) -> int:
    """The number of the last manifest whose micro-batch is committed; 0 = none."""
    files = driver_files(checkpoint)
    return _last_of(_batches(files.commits) & _batches(files.offsets), files)


def keep_committed(checkpoint: Place) -> None:
    """Let commits that are seen survive a power cut, before what they make needless may go.

    Spark does not wait for its log, and one who writes it otherwise may have failed in between.
    """
    commits = driver_files(checkpoint).commits
    if isinstance(commits, RemotePath):  # what is seen there survives
        return
    newest = max(_batches(commits), default=None)
    if newest is not None:
        for place in (commits / str(newest), commits):
            sync(place)


def batches_of(checkpoint: Place) -> Batches:
    """How far the job of a checkpoint is."""
    files = driver_files(checkpoint)
    begun, ended = (max(_batches(log), default=-1) for log in (files.offsets, files.commits))
    return Batches(files.before + begun, files.before + ended)


def last_batch(checkpoint: Place) -> int:
    """The number of the last micro-batch that is committed; -1 = none."""
    return batches_of(checkpoint).ended


def last_begun(checkpoint: Place) -> int:
    """The number of the last micro-batch that was begun; -1 = none."""
    return batches_of(checkpoint).begun


def manifest_of(checkpoint: Place, batch: int) -> int:
    """The last manifest of a micro-batch that is on record, or before the first one that is."""
    files = driver_files(checkpoint)
    return _last_of({number for number in _batches(files.offsets) if number <= batch - files.before}, files)


def remove_begun(checkpoint: Place, batches: Iterable[int]) -> None:
    """Take micro-batches that are begun, and not committed, from the record: the last ones.

    What they read is planned anew. A crash in between leaves the first ones of them.
    """
    files = driver_files(checkpoint)
    for number in sorted((batch - files.before for batch in batches), reverse=True):
        assert number not in _batches(files.commits), "nothing is left out of what is committed"
        (files.offsets / str(number)).unlink(missing_ok=True)
        (files.offsets / f".{number}.crc").unlink(missing_ok=True)  # of Spark
        sync(files.offsets)


def _last_of(batches: set[int], files: DriverFiles) -> int:
    """The manifest of the last of these micro-batches that has one."""
    for batch in sorted(batches, reverse=True):
        number = _manifest_of(files.offsets / str(batch))
        if number is not None:
            return number
    return files.manifest


def _batches(folder: Place) -> set[int]:
    return {int(name) for name in names_in(folder) if name.isdecimal()}


def _manifest_of(file: Place) -> int | None:
    """The manifest in one entry of the offset log, which has a line for each source."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        if is_passing(error):  # it says nothing about the entry
            raise
        return None
    for line in lines[2:]:
        try:
            return json_of_text(line, _Offset)["manifest"]
        except DamagedJson:
            continue  # of another source, or damaged, which the job itself reports
    return None


# What the lister has to know of the job's progress, from the job's own files.


@dataclass(frozen=True, slots=True)
class JobNotes:
    """Notes of the last micro-batch.

    brought: the sources that have brought a record since the checkpoint began. Only before that
        does a file that is not a table stop the job: then a setting is wrong, not the file
    needs_catch_up: whether a source partition is behind another, or records are held
    """

    brought: frozenset[str] = frozenset()
    needs_catch_up: bool = False


class _Progress(TypedDict):
    notes: JobNotes


class _Batch(TypedDict):
    progress: _Progress


def job_notes(checkpoint: Place) -> JobNotes:
    """The notes of the last micro-batch whose results were written.

    It may be one that is repeated. That changes nothing for `brought`: its first attempt has ended
    well, so it had a file that is a table before every one that is not.
    """
    folder = checkpoint / "ensue" / "progress"
    for name in sorted((name for name in names_in(folder) if name.endswith(".json")), reverse=True):
        found = JobFile(folder / name, _Batch).readable()
        if found is not None:  # what cannot be read the job itself reports
            return found["progress"]["notes"]
    return JobNotes()


# Where a checkpoint has the list of what was read, and what is raised if that is damaged.

RESTORE_ALL = "Restore the whole checkpoint from a copy"
"""What to do about a damaged file of the list."""


class DamagedManifest(InputError):
    """A file of the list of what was read is missing or damaged; the text says which."""


def inputs_folder(checkpoint: Place) -> Place:
    """Where the list of inputs is, inside a checkpoint."""
    return checkpoint / "ensue" / "inputs"
