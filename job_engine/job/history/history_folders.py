"""The folders of a checkpoint that states of histories are in: `ensue/history/<number>`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from job_engine.clock import wall_ns
from job_engine.job.journal.journal import HistoryCommand
from job_engine.job.journal.written import history_of_text
from job_engine.places.local_path import LocalPath
from job_engine.places.place import Place, files_below, names_in
from runtime.json_reader import DamagedJson

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
    stay = {*used, *(command.folder for text in waiting if (command := _asked_history(text)) is not None)}
    for name in names_in(histories(checkpoint)):
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
