"""The command that deploys queries with history, as text, and what is written beside its states."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypedDict

from runtime.json_reader import json_of_text
from spark_backend.job_file import JobFile
from spark_backend.places.place import Place
from spark_backend.sources.delta.table_units import (
    TablePosition,
    table_positions_to_plain,
)
from spark_backend.sources.kafka.offsets import Positions, positions_to_plain

_NAME = "DeployWithHistory"
"""Not a control event: users cannot send it."""

MARK_VERSION = 1


HistoryName = Annotated[str, re.compile(r"\d{20}(-joined)?")]
"""The name of a folder with what a history has left."""


@dataclass(frozen=True, slots=True)
class HistoryCommand:
    """Queries that have run over the history, and are to be deployed.

    text: of the queries
    folder: where the states are that they have, in the checkpoint
    since: records that arrived before, µs, are left out; None = none are
    accepts_gap: whether records may be missing
    """

    text: str
    folder: HistoryName
    since: int | None = None
    accepts_gap: bool = False

    def to_text(self) -> str:
        """As the text of a command."""
        return json.dumps({_NAME: asdict(self)})

    @staticmethod
    def of_text(text: str) -> HistoryCommand | None:
        """The inverse of `to_text`; None = it is another command. Raises DamagedJson."""
        return json_of_text(text, _Text)["DeployWithHistory"] if text.startswith(f'{{"{_NAME}"') else None


class _Text(TypedDict):
    DeployWithHistory: HistoryCommand


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
