"""Files in which something ends the process that reads them: without it, or refused as a whole."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from querylang.errors import InputError
from spark_backend.sources.crash_marks import WHOLE, CrashMarks, Deadly, death_of, living_parts

_LINES = (".json", ".jsonl", ".ndjson")
"""Whose lines are records."""


@contextmanager
def without_deadly_lines(
    path: str, name: str, marks: CrashMarks, read: Callable[[str], object], *, is_suspect: bool
) -> Iterator[str]:
    """A path of the same table, with a line that is malformed in place of one that ends a process.

    name: of the file in its records
    read: reads a table of this path
    is_suspect: whether readers have died on it

    Raises InputError for a file that ends the process, and no line of it alone.
    """
    skipped = marks.skipped(name)
    if WHOLE in skipped:
        raise InputError(f"{name}: {skipped[WHOLE]}")
    if not skipped and not (is_suspect and (death := death_of(lambda: read(path)))):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="ensue-") as folder:
        copy = Path(folder) / Path(path).name
        if not skipped:
            skipped = _deadly_lines(Path(path), copy, read)
            if skipped:
                copy.write_bytes(_with_words(Path(path), skipped))
            if not skipped or death_of(lambda: read(str(copy))):
                skipped = {WHOLE: f"reading it ends the process with {death}"}
            for offset, reason in skipped.items():
                marks.skip(Deadly(name, 0, offset, reason))
        if WHOLE in skipped:
            raise InputError(f"{name}: {skipped[WHOLE]}")
        copy.write_bytes(_with_words(Path(path), skipped))
        yield str(copy)


def _deadly_lines(path: Path, copy: Path, read: Callable[[str], object]) -> dict[int, str]:
    """By number of a line, from 0: why it cannot be read."""
    lines = path.read_bytes().split(b"\n") if path.suffix in _LINES else []

    def attempt(first: int, last: int) -> None:
        copy.write_bytes(b"\n".join(lines[first:last]))
        read(str(copy))

    parts = living_parts(len(lines), attempt) if lines else []
    return {part.first: part.problem for part in parts if part.problem is not None}


def _with_words(path: Path, skipped: dict[int, str]) -> bytes:
    """The content with a text, which is not a record, in place of lines: all keep their numbers."""
    lines = path.read_bytes().split(b"\n")
    for number, reason in skipped.items():
        lines[number] = json.dumps(reason).encode()
    return b"\n".join(lines)
