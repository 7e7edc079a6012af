"""The journal of a checkpoint, and what its files said, as files that are replaced as a whole.

So a change is done or not. What the files of queries and values said when they were last applied is
kept beside the journal, so that a later start can tell what has changed.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, NotRequired, TypedDict

from querylang.changes.running import Running
from runtime.json_reader import DamagedJson
from runtime.json_shapes import Count
from spark_backend.job.journal.asked import HistoryName
from spark_backend.job.journal.journal import Journal, Taken
from spark_backend.job.journal.plain_queries import (
    PlainHidden,
    PlainRunning,
    Resolve,
    has_hidden,
    hidden_of_plain,
    hidden_to_plain,
    no_variables,
    plan_with,
    plan_without,
    running_of_plain,
    running_to_plain,
)
from spark_backend.job_file import RESTORE, JobFile, indented
from spark_backend.places.place import Place
from spark_backend.settings.deployment import Deployment
from spark_backend.wire.epochs import Epoch, History
from spark_backend.wire.plan_text import load_plan

JOURNAL_VERSION = 2
"""Written where values may be secret. Other journals are of version 1, which older releases read,
too."""

FILES_VERSION = 2
"""Written where values may be secret. Other files are of version 1, which older releases read,
too."""


def journal_file(checkpoint: Place) -> JobFile[PlainJournal]:
    """The journal, inside a checkpoint."""
    file, versions = checkpoint / "ensue" / "program.json", range(1, JOURNAL_VERSION + 1)
    return JobFile(file, PlainJournal, RESTORE, versions, text=indented)


def read_journal(deployment: Deployment) -> Journal | None:
    """The journal of a checkpoint; None = its queries have never changed. Raises InputError."""
    file = journal_file(deployment.checkpoint)
    found = file.read()
    if found is None:
        return None
    with file.checking():
        return journal_of_plain(found, deployment.value_of)


def write_journal(checkpoint: Place, journal: Journal) -> None:
    """Replace the journal; it survives a power cut."""
    journal_file(checkpoint).write(journal_to_plain(journal))


def read_files(deployment: Deployment) -> Running | None:
    """What the files said; None = nobody has written it down. Raises InputError."""
    file = _files_file(deployment.checkpoint)
    found = file.read()
    if found is None:
        return None
    with file.checking():
        return running_of_plain(found["queries"], deployment.value_of)


def write_files(checkpoint: Place, files: Running) -> None:
    """Write down what the files say; it survives a power cut."""
    plain = {"version": FILES_VERSION if has_hidden(files) else 1, "queries": running_to_plain(files)}
    _files_file(checkpoint).write(plain)


def _files_file(checkpoint: Place) -> JobFile[_FilesFile]:
    file, versions = checkpoint / "ensue" / "files.json", range(1, FILES_VERSION + 1)
    return JobFile(file, _FilesFile, RESTORE, versions, text=indented)


def journal_to_plain(journal: Journal) -> dict[str, Any]:
    """The journal as files may hold it: without values that may be secret."""
    is_hiding = has_hidden(journal.running) or any(journal.hidden.values())
    return {
        "version": JOURNAL_VERSION if is_hiding else 1,
        "running": running_to_plain(journal.running),
        "since": dict(journal.since),
        "epochs": [_epoch_to_plain(journal, epoch) for epoch in journal.epochs],
        "taken": [asdict(item) for item in journal.taken],
    }


def _epoch_to_plain(journal: Journal, epoch: Epoch) -> dict[str, Any]:
    hidden = journal.hidden.get(epoch.number, ())
    plain = asdict(replace(epoch, plan=plan_without(epoch.plan, hidden)))
    return plain | ({"hidden": [hidden_to_plain(item) for item in hidden]} if hidden else {})


def journal_of_plain(data: PlainJournal, resolve: Resolve = no_variables) -> Journal:
    """The inverse of `journal_to_plain`, without its version; raises DamagedJson.

    Raises InputError if the variable of a value is not set.
    """
    if not data["epochs"]:
        raise DamagedJson("'epochs': expected at least one")
    hidden = {
        item["number"]: tuple(hidden_of_plain(own, resolve) for own in item.get("hidden", ()))
        for item in data["epochs"]
    }
    epochs = (_epoch(item) for item in data["epochs"])
    return Journal(
        running_of_plain(data["running"], resolve),
        data["since"],
        tuple(replace(epoch, plan=plan_with(epoch.plan, hidden[epoch.number])) for epoch in epochs),
        data["taken"],
        hidden,
    )


def _epoch(data: _PlainEpoch) -> Epoch:
    load_plan(data["plan"])  # it may be damaged, which is said here
    history = data.get("history")
    known = None if history is None else History(history["folder"], history["titles"])
    return Epoch(data["number"], data["plan"], data["begins"], data["heirs"], known, data.get("behind"))


class _FilesFile(TypedDict):
    queries: PlainRunning


class _PlainHistory(TypedDict):
    folder: HistoryName
    titles: tuple[str, ...]


class _PlainEpoch(TypedDict):
    number: Count
    plan: str
    begins: int | None
    heirs: tuple[tuple[str, str], ...]
    history: NotRequired[_PlainHistory | None]
    behind: NotRequired[tuple[int, int, int] | None]
    hidden: NotRequired[list[PlainHidden]]


class PlainJournal(TypedDict):
    """A journal, as `journal_to_plain` gives it, without its version."""

    running: PlainRunning
    since: dict[str, int]
    epochs: list[_PlainEpoch]
    taken: tuple[Taken, ...]
