"""What files of queries and values said when they were last applied, and their changes as text.

It is kept as `<checkpoint>/ensue/files.json`, so that a later start can tell what has changed.
"""

from __future__ import annotations

import json
from typing import TypedDict

from querylang.changes.merging import FileChange
from querylang.changes.running import Running
from runtime.json_reader import json_of_text
from spark_backend.job.journal.hidden_values import Resolve
from spark_backend.job.journal.plain_running import PlainRunning, has_hidden, running_of_plain, running_to_plain
from spark_backend.job_file import RESTORE, JobFile, indented
from spark_backend.places.place import Place
from spark_backend.settings.deployment import Deployment

FILES_VERSION = 2
"""Written where values may be secret. Other files are of version 1, which older releases read,
too."""

_NAME = "ApplyFiles"
"""Not a control event: users cannot send it."""


def read_files(deployment: Deployment) -> Running | None:
    """What the files said; None = nobody has written it down. Raises InputError."""
    file = _file(deployment.checkpoint)
    found = file.read()
    if found is None:
        return None
    with file.checking():
        return running_of_plain(found["queries"], deployment.value_of)


class _FilesFile(TypedDict):
    queries: PlainRunning


class _PlainChange(TypedDict):
    before: PlainRunning
    files: PlainRunning
    returns: bool


class _ChangeText(TypedDict):
    ApplyFiles: _PlainChange


def write_files(checkpoint: Place, files: Running) -> None:
    """Write down what the files say; it survives a power cut."""
    plain = {"version": FILES_VERSION if has_hidden(files) else 1, "queries": running_to_plain(files)}
    _file(checkpoint).write(plain)


def files_text(change: FileChange) -> str:
    """A change of the files, as the text of a command."""
    queries = {"before": running_to_plain(change.before), "files": running_to_plain(change.files)}
    return json.dumps({_NAME: {**queries, "returns": change.returns}})


def files_of_text(text: str, resolve: Resolve) -> FileChange | None:
    """The inverse of `files_text`; None = it is another command.

    Raises DamagedJson, and InputError if the variable of a value is not set.
    """
    if not text.startswith(f'{{"{_NAME}"'):
        return None
    data = json_of_text(text, _ChangeText)["ApplyFiles"]
    before, files = running_of_plain(data["before"], resolve), running_of_plain(data["files"], resolve)
    return FileChange(before, files, data["returns"])


def _file(checkpoint: Place) -> JobFile[_FilesFile]:
    file, versions = checkpoint / "ensue" / "files.json", range(1, FILES_VERSION + 1)
    return JobFile(file, _FilesFile, RESTORE, versions, text=indented)
