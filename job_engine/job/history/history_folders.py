"""The folders of a checkpoint that states of histories are in, and how far those have read.

`ensue/history/<number>` has the states of buckets, and beside them a mark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from job_engine.clock import wall_ns
from job_engine.durable_files import JobFile
from job_engine.job.journal.journal import HistoryCommand
from job_engine.job.journal.written import history_of_text
from job_engine.places.local_path import LocalPath
from job_engine.places.place import Place, files_below, names_in
from job_engine.sources.old_lists import old_done
from runtime.json_reader import DamagedJson, shaped

DAY = 86_400_000_000
"""µs; so long a folder stays that nothing refers to: somebody may just be writing it."""


def histories(checkpoint: Place) -> Place:
    """Where all of them are."""
    return checkpoint / "ensue" / "history"


def new_folder(checkpoint: Place) -> Place:
    """One that is not there yet, by the time in µs."""
    return histories(checkpoint) / f"{wall_ns() // 1000:020d}"


def joined_folder(checkpoint: Place, command: int) -> Place:
    """The folder that buckets take over, of a command that was done."""
    return histories(checkpoint) / f"{command:020d}-joined"


def remove_unused(checkpoint: Place, used: Collection[str], waiting: Iterable[str]) -> None:
    """Remove what a deployment has left that was refused, killed or is long done.

    used: names of folders that stay
    waiting: texts of commands whose folders stay, too
    """
    names = names_in(histories(checkpoint))
    if not names:  # nearly always
        return
    stay = {*used, *(command.folder for text in waiting if (command := _asked_history(text)) is not None)}
    for name in names:
        number = name.partition("-")[0]
        is_new = number.isdecimal() and "-" not in name and int(number) > wall_ns() // 1000 - DAY
        if name not in stay and not is_new:
            _remove(histories(checkpoint) / name)


def remove_done(checkpoint: Place, text: str) -> None:
    """Remove what a command has left that was done or refused; `text`: of any command."""
    command = _asked_history(text)
    if command is not None:
        _remove(histories(checkpoint) / command.folder)


def _asked_history(text: str) -> HistoryCommand | None:
    """The command that a text is; None = another one, or a damaged one, which was answered."""
    try:
        return history_of_text(text)
    except DamagedJson:
        return None


def _remove(place: Place) -> None:
    if isinstance(place, Path):
        LocalPath.of(place).remove_tree()
        return
    for file in list(files_below(place)):
        file.unlink(missing_ok=True)


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
