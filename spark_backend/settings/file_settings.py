"""The settings of a source of files: order, age, what happens after reading, unreadable files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runtime.policies.durations import parse_duration
from spark_backend.document.yaml_document import Node
from spark_backend.places.place import Place

KEYS = ("min_age", "order", "after", "unreadable")
"""The keys of a deployment file that are read here."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How the files of a source are read.

    order: what new files are sorted by: `time` of modification or `name`
    min_age: µs since the last modification before a file is read
    after: what happens to a file that was read: `keep`, `archive` or `delete`
    archive: the folder for `archive`; None = there is none
    stops: whether a file that is not a table stops the job
    """

    order: str = "time"
    min_age: int = 0
    after: str = "keep"
    archive: Place | None = None
    stops: bool = False


def read_file_settings(found: Mapping[str, Node], path_of: Callable[[str], Place]) -> FileSettings:
    """The settings among a source's entries; `path_of`: a path as the deployment file means it."""
    order = found["order"].one_of({word: word for word in ("time", "name")}) if "order" in found else None
    age = found["min_age"].parsed(parse_duration, "a length of time such as `5s`") if "min_age" in found else None
    after, archive = _after(found["after"], path_of) if "after" in found else ("keep", None)
    stops = found["unreadable"].one_of({"discard": False, "stop": True}) if "unreadable" in found else None
    return FileSettings(order or "time", age or 0, after, archive, stops or False)


def _after(node: Node, path_of: Callable[[str], Place]) -> tuple[str, Place | None]:
    word, _, folder = node.text().strip().partition(" ")
    folder = folder.strip()
    if word == "archive" and folder:
        return word, path_of(folder)
    if word in ("keep", "delete") and not folder:
        return word, None
    node.expected("`keep`, `delete` or `archive FOLDER`")
    return "keep", None
