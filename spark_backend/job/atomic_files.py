"""Files beside a checkpoint: written whole or not at all; one a micro-batch, so that a repeated one is counted once.

Takes and gives plain data that JSON can hold; and says whether a job is at work. Needs the standard library only: what
reads these files needs no Spark.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any


def write_atomically(path: Path, text: str) -> None:
    """The file is there with all of its text, or as it was before."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """Running totals, a file a micro-batch: each is made from the one before it, never from one of its own number."""

    folder: Path
    kept: int = 10

    def latest(self, before: int | None = None) -> tuple[int, Any] | None:
        """The last micro-batch (before one) and what it left; None where there is none."""
        numbers = [int(path.stem) for path in self.folder.glob("*.json") if before is None or int(path.stem) < before]
        if not numbers:
            return None
        return max(numbers), json.loads(self._path(max(numbers)).read_text("utf-8"))

    def write(self, batch: int, data: Any) -> None:
        """What a micro-batch leaves; files of long ago are removed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path(batch), json.dumps(data))
        self._path(batch - self.kept).unlink(missing_ok=True)

    def _path(self, batch: int) -> Path:
        return self.folder / f"{batch:010d}.json"


Ledger = dict[tuple[str, str, str], int]
"""Counts by query, source and word."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """The totals of the ledger, beside a checkpoint."""

    files: BatchFiles

    def total(self, before: int | None = None) -> Ledger:
        """Of all micro-batches (before one)."""
        found = self.files.latest(before)
        return {} if found is None else {(query, source, what): count for query, source, what, count in found[1]}

    def add(self, batch: int, changes: Ledger) -> None:
        """The changes of one micro-batch."""
        total = self.total(before=batch)
        for key, count in changes.items():
            total[key] = total.get(key, 0) + count
        self.files.write(batch, [[*key, count] for key, count in sorted(total.items()) if count])


class AtWork:
    """A file that is locked while a job is at work; the system unlocks it when the process dies, however it does."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "at-work"
        self._file: IO[str] | None = None

    def begin(self) -> None:
        """From now on; where another job is at work already, that one is shown."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("w", encoding="utf-8")
        _lock(self._file)

    def end(self) -> None:
        """No longer."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def is_held(self) -> bool:
        """Whether some job is at work."""
        if not self._path.exists():
            return False
        with self._path.open(encoding="utf-8") as file:
            return not _lock(file)


def _lock(file: IO[str]) -> bool:
    """Whether nobody else had the lock: it is ours then, until the file is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
