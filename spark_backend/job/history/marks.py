"""How far a history has read the sources of a job: written beside its states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_backend.job_file import JobFile
from spark_backend.places.place import Place
from spark_backend.sources.delta.table_units import (
    TablePosition,
    table_positions_to_plain,
)
from spark_backend.sources.kafka.offsets import Positions, positions_to_plain

MARK_VERSION = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the sources of a job have been read again.

    titles: of the queries
    events: the names of the event types that were known, in order
    files: by source, the paths of its files
    positions: of Kafka sources
    tables: of Delta sources
    """

    titles: tuple[str, ...]
    events: tuple[str, ...]
    files: Mapping[str, frozenset[str]]
    positions: Positions
    tables: Mapping[str, TablePosition]


def write_mark(folder: Place, mark: Mark) -> None:
    """Write down how far it is; it survives a power cut."""
    plain: dict[str, Any] = {
        "version": MARK_VERSION,
        "titles": mark.titles,
        "events": mark.events,
        "files": {source: sorted(paths) for source, paths in mark.files.items()},
        "positions": positions_to_plain(mark.positions),
        "tables": table_positions_to_plain(mark.tables),
    }
    _mark_file(folder).write(plain)


def read_mark(folder: Place) -> Mark:
    """The inverse of `write_mark`; raises InputError."""
    return _mark_file(folder).needed()


def _mark_file(folder: Place) -> JobFile[Mark]:
    missing = "what the history has left is missing"
    return JobFile(folder / "mark.json", Mark, "Deploy again", (MARK_VERSION,), missing=missing)
