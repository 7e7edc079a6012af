"""Which ranges readers died on, and the records that end a process, beside the checkpoint.

Arrow and fastavro are libraries in C: what they cannot read may end the process. A reader leaves a
mark while it reads a range, which is a file or messages of a partition. A mark that is there when
the range is read again says that a reader died. After two deaths the range is read in child
processes first, and halved, until what ends them is alone. That is written down before it is used,
so that a repeated micro-batch leaves out the same.

A mark in a store costs two requests per range. So there nothing is marked until a worker has died,
which the driver knows, and workers get what is left out when a run begins.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from job_engine.durable_files import JobFile, make_kept_folder, named
from job_engine.place import Place, names_in, place_of_plain
from querylang.dataclass import asdict, dataclass
from runtime.json_reader import DamagedJson, json_of_text
from runtime.json_shapes import Count

DEATHS = 2
"""After so many deaths a range is divided."""

CRASHES = "crashes"
"""The option with the marks, and the name of their folder."""

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
class LivingPart:
    """Rows from `first` up to `last`; `problem`: why they cannot be read, None = they can."""

    first: int
    last: int
    problem: str | None = None


class _Plain(TypedDict):
    folder: str | None
    known: tuple[Deadly, ...]
    enough: Count


@dataclass(frozen=True, slots=True)
class CrashMarks:
    """The marks of a job.

    folder: where they are; None = nothing is marked
    known: records that are left out, whatever the folder has
    enough: deaths on a range after which it is divided
    """

    folder: Place | None = None
    known: tuple[Deadly, ...] = ()
    enough: int = DEATHS

    def to_text(self) -> str:
        """The marks as JSON text, for workers."""
        folder = None if self.folder is None else str(self.folder)
        return json.dumps({"folder": folder, "known": list(map(asdict, self.known)), "enough": self.enough})

    @staticmethod
    def of_text(text: str) -> CrashMarks:
        """The inverse of `to_text`."""
        plain = json_of_text(text, _Plain)
        folder = None if plain["folder"] is None else place_of_plain((plain["folder"], {}))
        return CrashMarks(folder, plain["known"], plain["enough"])

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
        with named(file):
            file.write_text(json.dumps(asdict(Mark(range_, deaths))))
        try:
            yield deaths >= self.enough
        finally:
            file.unlink(missing_ok=True)

    def marked(self) -> list[Mark]:
        """The ranges that readers died on."""
        found = (JobFile(file, Mark).readable() for file in self._files("reading"))
        return [mark for mark in found if mark is not None]

    def forget_readers(self) -> None:
        """Remove the marks of readers that were killed: nobody will read the same again."""
        for file in self._files("reading"):
            file.unlink(missing_ok=True)

    def skip(self, record: Deadly) -> None:
        """Leave out a record from now on; it is on disk before this returns."""
        assert self.folder is not None, "only marked ranges are divided"
        name = _digest(json.dumps([record.source, record.partition, record.offset]))
        JobFile(self.folder / f"skip-{name}.json", Deadly).write(asdict(record))

    def skipped(self, source: str, partition: int = 0) -> dict[int, str]:
        """By offset: why a record of a partition is left out."""
        return {
            item.offset: item.reason
            for item in (*self.known, *self.all_skipped())
            if (item.source, item.partition) == (source, partition)
        }

    def all_skipped(self) -> list[Deadly]:
        """All records that are left out, as the folder has them."""
        found = (JobFile(file, Deadly).readable() for file in self._files("skip"))
        return [item for item in found if item is not None]

    def _files(self, kind: str) -> list[Place]:
        if self.folder is None:
            return []
        names = [name for name in names_in(self.folder) if name.startswith(f"{kind}-") and name.endswith(".json")]
        return [self.folder / name for name in sorted(names)]


NO_MARKS = CrashMarks()


def marks_of(checkpoint: Place) -> CrashMarks:
    """The marks of a job, as its driver reads and writes them."""
    return CrashMarks(checkpoint.resolve() / "ensue" / CRASHES)


def marks_of_run(checkpoint: Place, *, had_deaths: bool = False) -> CrashMarks:
    """The marks of a job, as the workers of a run need them.

    had_deaths: whether a worker has died in the micro-batch that is open
    """
    marks = marks_of(checkpoint)
    if isinstance(marks.folder, Path):
        return marks
    known = tuple(marks.all_skipped())
    return CrashMarks(marks.folder, known, DEATHS - 1) if had_deaths else CrashMarks(None, known)


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


def living_parts(count: int, attempt: Callable[[int, int], object]) -> list[LivingPart]:
    """The parts of `count` rows that can be read here, and the rows that end a process.

    attempt: reads the rows from a first up to a last one
    """
    parts: list[LivingPart] = []
    waiting = [(0, count)]
    while waiting:
        first, last = waiting.pop()
        death = death_of(lambda first=first, last=last: attempt(first, last))  # type: ignore[misc]
        if death is None:
            parts.append(LivingPart(first, last))
        elif last - first == 1:
            parts.append(LivingPart(first, last, f"reading it ends the process with {death}"))
        else:
            middle = (first + last) // 2
            waiting += [(middle, last), (first, middle)]
    return parts


def without_skipped(parts: Sequence[LivingPart], problems: dict[int, str]) -> list[LivingPart]:
    """The parts with rows of their own for those that have a problem."""
    found: list[LivingPart] = []
    for part in parts:
        at = part.first
        for row in sorted(row for row in problems if part.problem is None and part.first <= row < part.last):
            found += [LivingPart(at, row)] if at < row else []
            found.append(LivingPart(row, row + 1, problems[row]))
            at = row + 1
        found += [LivingPart(at, part.last, part.problem)] if at < part.last else []
    return found
