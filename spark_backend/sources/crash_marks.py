"""Which ranges readers died on, and the records that end a process, beside the checkpoint.

Arrow and fastavro are libraries in C: what they cannot read may end the process. A reader leaves a
mark while it reads a range, which is a file or messages of a partition. A mark that is there when
the range is read again says that a reader died. After two deaths the range is read in child
processes first, and halved, until what ends them is alone. That is written down before it is used,
so that a repeated micro-batch leaves out the same.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from runtime.json_reader import DamagedJson
from runtime.json_shapes import Count
from spark_backend.durable_files import make_kept_folder
from spark_backend.job_file import JobFile

DEATHS = 2
"""After so many deaths a range is divided."""

CRASHES = "crashes"
"""The option with the folder of the marks; "" = nothing is marked."""

WHOLE = -1
"""In place of an offset: all of a file."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A range that is being read, or that a reader died on.

    range: for people
    deaths: how many readers have died on it before
    """

    range: str
    deaths: Count


@dataclass(frozen=True, slots=True)
class Deadly:
    """A record that is not read.

    source: its name, as the records of a topic or a file have it
    offset: of a message; of a line in a file, from 0; WHOLE
    reason: why it is malformed
    """

    source: str
    partition: Count
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Part:
    """Rows from `first` up to `last`; `problem`: why they cannot be read, None = they can."""

    first: int
    last: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class CrashMarks:
    """The marks of a job; `folder`: where they are, None = nothing is marked."""

    folder: Path | None = None

    @contextmanager
    def reading(self, range_: str) -> Iterator[bool]:
        """Mark a range while it is read; gives whether readers died on it too often."""
        if self.folder is None:
            yield False
            return
        make_kept_folder(self.folder)
        file = self.folder / f"reading-{_digest(range_)}.json"
        try:
            before = JobFile(file, Mark).read()
            deaths = 0 if before is None else before.deaths + 1
        except DamagedJson:
            deaths = 1  # it died while it wrote this
        file.write_text(json.dumps(asdict(Mark(range_, deaths))), "utf-8")
        try:
            yield deaths >= DEATHS
        finally:
            file.unlink(missing_ok=True)

    def marked(self) -> list[Mark]:
        """The ranges that readers died on."""
        found = (JobFile(file, Mark).readable() for file in self._files("reading"))
        return [mark for mark in found if mark is not None]

    def skip(self, record: Deadly) -> None:
        """Leave out a record from now on; it is on disk before this returns."""
        assert self.folder is not None, "only marked ranges are divided"
        name = _digest(json.dumps([record.source, record.partition, record.offset]))
        JobFile(self.folder / f"skip-{name}.json", Deadly).write(asdict(record))

    def skipped(self, source: str, partition: int = 0) -> dict[int, str]:
        """By offset: why a record of a partition is left out."""
        found = (JobFile(file, Deadly).readable() for file in self._files("skip"))
        return {
            item.offset: item.reason
            for item in found
            if item is not None and (item.source, item.partition) == (source, partition)
        }

    def _files(self, kind: str) -> list[Path]:
        if self.folder is None or not self.folder.is_dir():
            return []
        return sorted(self.folder.glob(f"{kind}-*.json"))


NO_MARKS = CrashMarks()


def crashes_folder(checkpoint: str) -> str:
    """The folder of a checkpoint's marks; "" = there is none, in a store."""
    return "" if "://" in checkpoint else str(Path(checkpoint) / "ensue" / CRASHES)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def death_of(attempt: Callable[[], object]) -> str | None:
    """What ends a process that does this, such as `signal 11 (segmentation fault)`; None = nothing.

    Errors are not deaths: whoever reads the same here meets them, too.
    """
    child = os.fork()
    if child == 0:
        faulthandler.disable()  # the death is expected, and the parent's log is not this process's
        try:
            attempt()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return signal_text(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else None


def signal_text(number: int) -> str:
    """`signal 11 (Segmentation fault)`."""
    return f"signal {number} ({signal.strsignal(number)})"


def living_parts(count: int, attempt: Callable[[int, int], object]) -> list[Part]:
    """The parts of `count` rows that can be read here, and the rows that end a process.

    attempt: reads the rows from a first up to a last one
    """
    parts: list[Part] = []
    waiting = [(0, count)]
    while waiting:
        first, last = waiting.pop()
        death = death_of(lambda first=first, last=last: attempt(first, last))  # type: ignore[misc]
        if death is None:
            parts.append(Part(first, last))
        elif last - first == 1:
            parts.append(Part(first, last, f"reading it ends the process with {death}"))
        else:
            middle = (first + last) // 2
            waiting += [(middle, last), (first, middle)]
    return parts


def without_skipped(parts: Sequence[Part], problems: dict[int, str]) -> list[Part]:
    """The parts with rows of their own for those that have a problem."""
    found: list[Part] = []
    for part in parts:
        at = part.first
        for row in sorted(row for row in problems if part.problem is None and part.first <= row < part.last):
            found += [Part(at, row)] if at < row else []
            found.append(Part(row, row + 1, problems[row]))
            at = row + 1
        found += [Part(at, part.last, part.problem)] if at < part.last else []
    return found
