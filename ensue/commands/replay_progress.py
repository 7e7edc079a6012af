"""How far a replay is, on terminals: rows, rate and time left."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Self

from ensue.event_tables.standard_input import NAME
from ensue.event_tables.table_paths import table_paths

if TYPE_CHECKING:
    from runtime.progress_line import ProgressLine


class ReplayProgress:
    """A line for each part of the work, one after the other; none where nobody watches."""

    def __init__(self, events: Sequence[Path]) -> None:
        self._events = events
        self._what = ""
        self._reached = monotonic()
        self._line: ProgressLine | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def update(self, what: str, rows: int) -> None:
        """So many rows have been read or replayed; `what` says which."""
        from runtime.progress_line import ProgressLine

        if self._line is None or what != self._what:
            self._close()
            total = _about_rows(self._events)
            self._what, self._line = what, ProgressLine(sys.stderr, what, "rows", total, began=self._reached)
        self._line.update(rows)
        self._reached = monotonic()

    def _close(self) -> None:
        if self._line is not None:
            self._line.close()


def _about_rows(events: Sequence[Path]) -> int | None:
    """How many rows the files have together, about; None = unknown."""
    if not sys.stderr.isatty() or NAME in events:
        return None
    from runtime.reading.formats.parquet_files import about_rows

    counts = [about_rows(path) for given in events for path in table_paths(given)]
    return None if None in counts else sum(filter(None, counts))
