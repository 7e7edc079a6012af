"""Values that many settings have: paths, lengths of time, sizes, words for yes and no."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from job_engine.document.folder_overlaps import Folder, FolderKind
from job_engine.document.yaml_document import Node
from job_engine.places.local_path import LocalPath
from job_engine.places.place import SHOWN, Place, UnknownScheme, place_of
from job_engine.places.remote_path import StoreOptions
from job_engine.wire.clock_sources import Idle
from querylang.errors import InputError
from querylang.paths import can_be
from runtime.policies.settings_text import parse_duration, parse_size

UNSUPPORTED = ("rate", "orc", "avro", "text", "console", "memory", "noop", "iceberg")
"""Formats of Spark that are refused by name."""


class Folders:
    """The folders that a deployment file names; relative ones are below `base`."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.named: list[Folder] = []

    def path(self, node: Node) -> Path:
        """The local path that a setting says."""
        found = self.place(node)
        if isinstance(found, Path):
            return found
        node.wrong(f"'{node.name}' must be a local or mounted folder, not '{node.written()}'")
        return LocalPath()

    def place(self, node: Node, options: StoreOptions | None = None) -> Place:
        """The place that a setting says; `options`: how its store is reached."""
        text = node.text()
        if not can_be(text):
            node.wrong(f"'{node.name}' cannot be a path: a name in it is too long, or has a NUL")
            return LocalPath()
        try:
            return place_of(text, self.base, options)
        except UnknownScheme:
            node.wrong(f"'{node.name}' must be a local or mounted folder, or {SHOWN}; not '{node.written()}'")
            return LocalPath()

    def add(self, kind: FolderKind, name: str, path: Place, node: Node, *, is_recursive: bool = False) -> None:
        """Remember a folder: none may lie in another one."""
        self.named.append(Folder(kind, name, path, node.line, is_recursive))


def duration(found: Mapping[str, Node], key: str, default: int | None) -> int | None:
    """A length of time, µs."""
    if key not in found:
        return default
    return found[key].parsed(parse_duration, "a length of time such as `1 second` or `500ms`")


def seconds(found: Mapping[str, Node], key: str) -> float | None:
    """A length of time in seconds; None = it is not there."""
    length = duration(found, key, None)
    return None if length is None else length / 1_000_000


def size(found: Mapping[str, Node], key: str) -> int | None:
    """A number of bytes."""
    return found[key].parsed(parse_size, "a size from `1 kB` to `1 GB`, such as `16 MB`") if key in found else None


def is_true(found: Mapping[str, Node], key: str) -> bool:
    """Whether a setting is there and says `true`."""
    return key in found and found[key].one_of({"true": True, "false": False}) is True


def idle(found: Mapping[str, Node]) -> Idle | None:
    """What `idle` says; None = it is not there."""
    if "idle" not in found:
        return None
    return Idle(None if found["idle"].written() == "none" else duration(found, "idle", 0))


def value_of(node: Node, reader: Callable[[str], str]) -> str | None:
    """A value that a reader takes; what it raises is a mistake in this line."""
    try:
        return reader(node.text())
    except InputError as error:
        node.wrong(str(error))
        return None


_PART = r"(?:\w+|`(?:[^`]|``)+`)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*")


def read_table_name(found: Mapping[str, Node]) -> str:
    """The name that `table` says, "" = there is none; mistakes are reported."""
    if "table" not in found:
        return ""
    if "path" in found:
        found["table"].wrong("'table' and 'path' both say where the table is; expected one of them")
    expected = "the name of a table, such as `lake.cards`, with backquotes around parts with other signs"
    return found["table"].parsed(lambda text: text if _NAME.fullmatch(text) else None, expected) or ""
