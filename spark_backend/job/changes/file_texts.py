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
from spark_backend.job.changes.plain_running import running_of_plain, running_to_plain
from spark_backend.places.place import Place

FILES_VERSION = 1

_NAME = "ApplyFiles"
"""Not a control event: users cannot send it."""


def read_files(checkpoint: Place) -> Running | None:
    """What the files said; None = nobody has written it down. Raises InputError."""
    file = _file(checkpoint)
    try:
        return _files_of_plain(json.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: is damaged: {error}. Restore it from a copy") from error


def _files_of_plain(data: Mapping[str, Any]) -> Running:
    if data["version"] != FILES_VERSION:
        raise ValueError(f"it has version {data['version']}; this release reads version {FILES_VERSION}")
    return running_of_plain(data["queries"])


def write_files(checkpoint: Place, files: Running) -> None:
    """Write down what the files say; it survives a power cut."""
    plain = {"version": FILES_VERSION, "queries": running_to_plain(files)}
    make_folder(checkpoint / "ensue")
    write_durably(_file(checkpoint), json.dumps(plain, indent=1) + "\n")


def is_same(one: Running, other: Running) -> bool:
    """Whether files say the same."""
    return running_to_plain(one) == running_to_plain(other)


def files_text(change: FileChange) -> str:
    """A change of the files, as the text of a command."""
    queries = {"before": running_to_plain(change.before), "files": running_to_plain(change.files)}
    return json.dumps({_NAME: {**queries, "returns": change.returns}})


def files_of_text(text: str) -> FileChange | None:
    """The inverse of `files_text`; None = it is another command."""
    if not text.startswith(f'{{"{_NAME}"'):
        return None
    data = json.loads(text)[_NAME]
    return FileChange(running_of_plain(data["before"]), running_of_plain(data["files"]), bool(data["returns"]))


def _file(checkpoint: Place) -> Place:
    return checkpoint / "ensue" / "files.json"
