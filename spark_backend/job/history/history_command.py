"""The command that deploys queries with history, as text, and what is written beside its states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from querylang.errors import InputError
from spark_backend.durable_files import write_durably
from spark_backend.places.place import Place
from spark_backend.sources.delta.table_units import (
    TablePosition,
    table_positions_of_plain,
    table_positions_to_plain,
)
from spark_backend.sources.kafka.offsets import Positions, positions_of_plain, positions_to_plain

_NAME = "DeployWithHistory"
"""Not a control event: users cannot send it."""

MARK_VERSION = 1


@dataclass(frozen=True, slots=True)
class HistoryCommand:
    """Queries that have run over the history, and are to be deployed.

    text: of the queries
    folder: where the states are that they have, in the checkpoint
    since: records that arrived before, µs, are left out; None = none are
    accepts_gap: whether records may be missing
    """

    text: str
    folder: str
    since: int | None = None
    accepts_gap: bool = False

    def to_text(self) -> str:
        """As the text of a command."""
        return json.dumps({_NAME: asdict(self)})

    @staticmethod
    def of_text(text: str) -> HistoryCommand | None:
        """The inverse of `to_text`; None = it is another command."""
        return HistoryCommand(**json.loads(text)[_NAME]) if text.startswith(f'{{"{_NAME}"') else None


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
    write_durably(folder / "mark.json", json.dumps(plain))


def read_mark(folder: Place) -> Mark:
    """The inverse of `write_mark`; raises InputError."""
    file = folder / "mark.json"
    try:
        return _mark_of_plain(json.loads(file.read_text("utf-8")))
    except ConnectionError:
        raise  # a store that is away says nothing about the file
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: what the history has left cannot be read: {error}; deploy again") from error


def _mark_of_plain(plain: Mapping[str, Any]) -> Mark:
    if plain["version"] != MARK_VERSION:
        raise ValueError(f"it has version {plain['version']}; this release reads version {MARK_VERSION}")
    return Mark(
        tuple(plain["titles"]),
        tuple(plain["events"]),
        {source: frozenset(paths) for source, paths in plain["files"].items()},
        positions_of_plain(plain["positions"]),
        table_positions_of_plain(plain["tables"]),
    )
