"""What files of queries and values said when they were last applied, and their changes as text.

It is kept as `<checkpoint>/ensue/files.json`, so that a later start can tell what has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from querylang.changes.merging import FileChange
from querylang.changes.running import Running
from querylang.errors import InputError
from spark_backend.durable_files import make_folder, write_durably
from spark_backend.job.changes.hidden_values import Resolve
from spark_backend.job.changes.plain_running import has_hidden, running_of_plain, running_to_plain
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
    try:
        return _files_of_plain(json.loads(file.read_text("utf-8")), deployment.value_of)
    except FileNotFoundError:
        return None
    except ConnectionError:
        raise  # a store that is away says nothing about the file
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: is damaged: {error}. Restore it from a copy") from error


def _files_of_plain(data: Mapping[str, Any], resolve: Resolve) -> Running:
    if data["version"] not in (1, FILES_VERSION):
        raise ValueError(f"it has version {data['version']}; this release reads versions 1 to {FILES_VERSION}")
    return running_of_plain(data["queries"], resolve)


def write_files(checkpoint: Place, files: Running) -> None:
    """Write down what the files say; it survives a power cut."""
    plain = {"version": FILES_VERSION if has_hidden(files) else 1, "queries": running_to_plain(files)}
    make_folder(checkpoint / "ensue")
    write_durably(_file(checkpoint), json.dumps(plain, indent=1) + "\n")


def files_text(change: FileChange) -> str:
    """A change of the files, as the text of a command."""
    queries = {"before": running_to_plain(change.before), "files": running_to_plain(change.files)}
    return json.dumps({_NAME: {**queries, "returns": change.returns}})


def files_of_text(text: str, resolve: Resolve) -> FileChange | None:
    """The inverse of `files_text`; None = it is another command.

    Raises InputError if the variable of a value is not set.
    """
    if not text.startswith(f'{{"{_NAME}"'):
        return None
    data = json.loads(text)[_NAME]
    before, files = running_of_plain(data["before"], resolve), running_of_plain(data["files"], resolve)
    return FileChange(before, files, bool(data["returns"]))


def _file(checkpoint: Place) -> Place:
    return checkpoint / "ensue" / "files.json"
