"""Whether Spark's own logs in a checkpoint can be read.

Spark reports a damaged one without its name, or as a mistake in JSON.
"""

from __future__ import annotations

import json
from pathlib import Path

from querylang.errors import InputError

_LATEST = 2
"""Spark reads so many of the newest entries of a log when a job starts."""


def refuse_damaged_logs(checkpoint: Path) -> None:
    """Raise InputError for a file of Spark's logs that a restart reads and that is damaged."""
    _refuse_damaged(checkpoint / "metadata", 0, "restore the whole checkpoint from a copy, or choose another one")
    for file in _newest(checkpoint / "offsets"):
        _refuse_damaged(file, 1, "restore the whole checkpoint from a copy, or choose another one")
    for file in _newest(checkpoint / "commits"):
        _refuse_damaged(file, 1, "delete it, and its micro-batch is repeated")


def _newest(log: Path) -> list[Path]:
    entries = [path for path in log.iterdir() if path.name.isdecimal()] if log.is_dir() else []
    return sorted(entries, key=lambda path: int(path.name))[-_LATEST:]


def _refuse_damaged(file: Path, first: int, way_out: str) -> None:
    """The lines of an entry from `first` on are JSON, or `-` for a source without an offset."""
    try:
        _parse(file.read_text("utf-8").splitlines()[first:])
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: is damaged: {error}. To continue, {way_out}") from error


def _parse(lines: list[str]) -> None:
    if not lines:
        raise ValueError("it ends too early")
    for line in lines:
        if line != "-":
            json.loads(line)
