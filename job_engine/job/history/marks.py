"""How far a history has read the sources of a job: written beside its states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from job_engine.job_file import JobFile
from job_engine.places.place import Place
from job_engine.sources.old_lists import old_done
from runtime.json_reader import shaped

MARK_VERSION = 2
"""Version 1 has files, topics and tables in keys of their own: `old_lists`."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the sources of a job have been read again.

    titles: of the queries
    events: the names of the event types that were known, in order
    by_source: as `SourceRunning.done` gives it
    """

    titles: tuple[str, ...]
    events: tuple[str, ...]
    by_source: Mapping[str, Any]


class _Common(TypedDict):
    """What marks of all versions have."""

    titles: tuple[str, ...]
    events: tuple[str, ...]


def write_mark(folder: Place, mark: Mark) -> None:
    """Write down how far it is; it survives a power cut."""
    plain = {"version": MARK_VERSION, "titles": mark.titles, "events": mark.events, "sources": mark.by_source}
    _mark_file(folder).write(plain)


def read_mark(folder: Place) -> Mark:
    """The inverse of `write_mark`; raises InputError."""
    file = _mark_file(folder)
    data = file.needed()
    with file.checking():
        common = shaped({key: data.pop(key) for key in _Common.__annotations__ if key in data}, _Common)
        done = shaped(data["sources"], dict[str, Any]) if "sources" in data else old_done(data)
        return Mark(common["titles"], common["events"], done)


def _mark_file(folder: Place) -> JobFile[dict[str, Any]]:
    missing = "what the history has left is missing"
    return JobFile(folder / "mark.json", dict[str, Any], "Deploy again", (1, MARK_VERSION), missing=missing)
