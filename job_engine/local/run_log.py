"""The log of a local job: which micro-batches were begun, and behind which states are saved.

It has the folders and the form of Spark's logs, so that everything beside a run reads one form. An
entry of `offsets` is there before anything of a micro-batch is read, one of `commits` once the
states behind it are on the disk. Several micro-batches may be begun and not committed: a run that
follows a crash repeats all of them, as of the moments that their entries have.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict, TypeVar

from job_engine.durable_files import make_kept_folder, write_durably
from job_engine.job.checkpoint.locks import is_read
from job_engine.local_path import LocalPath
from job_engine.place import Place, files_below, names_in
from job_engine.sources.listing.batch_log import OFFSET_KEY, driver_files
from querylang.dataclass import dataclass, field
from querylang.errors import InputError
from runtime.json_reader import DamagedJson, json_of_text, part_of
from runtime.json_shapes import Count

KEPT = 100
"""Number of committed micro-batches whose entries stay, as Spark keeps them."""

_VERSION = "v1"
_RESTORE = "Restore the whole checkpoint from a copy, or choose another one"

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Begun:
    """A micro-batch that is on record.

    number: as the log counts them, from 0
    timestamp: its moment, ms since 1970
    manifest: what is read up to its end
    """

    number: int
    timestamp: int
    manifest: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A micro-batch behind which states are saved.

    number: as in `Begun`
    buckets: those that have a state
    wakes: by bucket, when it wants a step though nothing is read for it, ms since 1970
    """

    number: int
    buckets: Sequence[int] = ()
    wakes: Mapping[int, int] = field(default_factory=dict)


class _Metadata(TypedDict):
    batchTimestampMs: Count


class _Offset(TypedDict):
    manifest: Count


class _Commit(TypedDict):
    buckets: list[Count]
    wakes: NotRequired[dict[str, Count]]


class RunLog:
    """The log of a checkpoint; nobody else writes it while it is used."""

    def __init__(self, checkpoint: Place) -> None:
        files = driver_files(checkpoint)
        self._offsets, self._commits, self._states = files.offsets, files.commits, files.folder / "state"
        self._manifest = files.manifest
        for folder in (self._offsets, self._commits, self._states):
            make_kept_folder(folder)
        self._begun = _numbers(self._offsets)
        self._committed = _numbers(self._commits)

    @property
    def last_committed(self) -> int:
        """The number of the last committed micro-batch; -1 = none."""
        return max(self._committed, default=-1)

    def committed(self) -> Committed | None:
        """The last micro-batch that is committed; None = none is. Raises InputError for damage."""
        if not self._committed:
            return None
        number = self.last_committed
        found = self._read(self._commits / str(number), 2, lambda lines: json_of_text(lines[1], _Commit))
        wakes = {int(bucket): wake for bucket, wake in found.get("wakes", {}).items()}
        return Committed(number, found["buckets"], wakes)

    def begun(self) -> list[Begun]:
        """The micro-batches that are to be repeated, in order. Raises InputError for damage."""
        first = self.last_committed + 1
        numbers = [number for number in sorted(self._begun) if number >= first]
        if numbers != list(range(first, first + len(numbers))):
            raise InputError(f"{self._offsets}: has no entry of micro-batch {first}. {_RESTORE}")
        return [self.entry(number) for number in numbers]

    @property
    def first_manifest(self) -> int:
        """What is read before the first micro-batch of the log."""
        return self._manifest

    def begin(self, entry: Begun) -> None:
        """Put a micro-batch on record; it survives a power cut."""
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": entry.timestamp, "conf": {}}
        lines = (_VERSION, json.dumps(metadata), json.dumps({OFFSET_KEY: entry.manifest}))
        write_durably(self._offsets / str(entry.number), "\n".join(lines))
        self._begun.add(entry.number)

    def states_of(self, number: int) -> Place:
        """The folder of the states behind a micro-batch."""
        return self._states / f"{number:010d}"

    def commit(self, entry: Committed) -> None:
        """The states behind a micro-batch are saved: nothing up to it is repeated from now on.

        What is then not needed any more is removed.
        """
        content = {
            "nextBatchWatermarkMs": 0,
            "buckets": list(entry.buckets),
            "wakes": {str(bucket): wake for bucket, wake in entry.wakes.items()},
        }
        write_durably(self._commits / str(entry.number), f"{_VERSION}\n{json.dumps(content)}")
        self._committed.add(entry.number)
        self.remove_old()

    def remove_old(self) -> None:
        """Remove states that no commit needs, and entries of long ago."""
        last = self.last_committed
        for name in names_in(self._states):
            if name.isdecimal() and int(name) != last:
                _remove(self._states / name)
        for folder, numbers in ((self._offsets, self._begun), (self._commits, self._committed)):
            for number in [number for number in numbers if number <= last - KEPT]:
                (folder / str(number)).unlink(missing_ok=True)
                numbers.discard(number)

    def entry(self, number: int) -> Begun:
        """The micro-batch of a number; raises InputError."""

        def of_lines(lines: list[str]) -> Begun:
            moment = json_of_text(lines[1], _Metadata)["batchTimestampMs"]
            return Begun(number, moment, json_of_text(lines[2], _Offset)["manifest"])

        return self._read(self._offsets / str(number), 3, of_lines)

    def _read(self, file: Place, count: int, parse: Callable[[list[str]], Found]) -> Found:
        try:
            with part_of(file, _RESTORE):
                lines = file.read_bytes().decode("utf-8").splitlines()
                if len(lines) < count:
                    raise DamagedJson(f"has {len(lines)} of {count} lines")
                return parse(lines)
        except FileNotFoundError as error:
            raise InputError(f"{file}: is missing. {_RESTORE}") from error


def _numbers(folder: Place) -> set[int]:
    return {int(name) for name in names_in(folder) if name.isdecimal()}


def _remove(folder: Any) -> None:
    if isinstance(folder, LocalPath):
        if not is_read(folder):
            folder.remove_tree()
        return
    for file in files_below(folder):
        file.unlink(missing_ok=True)
