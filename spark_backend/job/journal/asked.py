"""Changes of the queries, as commands ask for them: control events, and texts of our own."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Annotated, TypedDict

from querylang.changes.merging import FileChange
from querylang.plan.changes import Change
from runtime.json_reader import json_of_text
from runtime.reading.control_events import ControlError, parse_change
from spark_backend.job.journal.plain_queries import (
    PlainRunning,
    Resolve,
    no_variables,
    running_of_plain,
    running_to_plain,
)

HISTORY, INSTANCES, FILES = "DeployWithHistory", "CopyInstances", "ApplyFiles"
"""The names of texts that users cannot send: no control event has them."""

HistoryName = Annotated[str, re.compile(r"\d{20}(-joined)?")]
"""The name of a folder with what a history has left."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A command that asks for no change, and why."""

    reason: str


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
        return json.dumps({HISTORY: asdict(self)})


@dataclass(frozen=True, slots=True)
class InstancesCommand:
    """The names of a query and of its shadow, which was deployed before."""

    query: str
    shadow: str

    def to_text(self) -> str:
        """As the text of a command."""
        return json.dumps({INSTANCES: asdict(self)})


Asked = FileChange | InstancesCommand | HistoryCommand | Change | Mistake
"""What a command asks for."""


class _HistoryText(TypedDict):
    DeployWithHistory: HistoryCommand


class _InstancesText(TypedDict):
    CopyInstances: InstancesCommand


class _PlainChange(TypedDict):
    before: PlainRunning
    files: PlainRunning
    returns: bool


class _FilesText(TypedDict):
    ApplyFiles: _PlainChange


def asked_of_text(text: str, resolve: Resolve = no_variables) -> Asked:
    """What the text of a command asks for; `resolve`: gives values that the text does not have.

    Raises DamagedJson, and InputError if the variable of a value is not set.
    """
    history = history_of_text(text)
    if history is not None:
        return history
    if _is(text, INSTANCES):
        return json_of_text(text, _InstancesText)["CopyInstances"]
    if _is(text, FILES):
        data = json_of_text(text, _FilesText)["ApplyFiles"]
        before, files = running_of_plain(data["before"], resolve), running_of_plain(data["files"], resolve)
        return FileChange(before, files, data["returns"])
    try:
        change = parse_change(text)
    except ControlError as error:
        return Mistake(str(error))
    return Mistake(f"{text.split('(', maxsplit=1)[0]} does not change queries") if change is None else change


def history_of_text(text: str) -> HistoryCommand | None:
    """The inverse of `HistoryCommand.to_text`; None = another command. Raises DamagedJson."""
    return json_of_text(text, _HistoryText)["DeployWithHistory"] if _is(text, HISTORY) else None


def files_text(change: FileChange) -> str:
    """A change of the files, as the text of a command."""
    queries = {"before": running_to_plain(change.before), "files": running_to_plain(change.files)}
    return json.dumps({FILES: {**queries, "returns": change.returns}})


def _is(text: str, name: str) -> bool:
    return text.startswith(f'{{"{name}"')
