"""What sources in folders have in common: a path, the store that it is in, and limits."""

from __future__ import annotations

from collections.abc import Collection

from job_engine.local_path import LocalPath
from job_engine.place import Place, RemotePath
from job_engine.setting_values import FolderKind, option_names, store_options
from job_engine.sources.kinds import SourceEntry
from job_engine.yaml_document import Node
from querylang.errors import near_file
from querylang.system_limits import exists, is_folder

LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger")
"""Options: most of a micro-batch."""


def read_place(
    entry: SourceEntry, options: Collection[str], *, is_recursive: bool = False, may_be_missing: bool = False
) -> Place | None:
    """The folder that a source is in; None = mistakes were reported, or there is no path.

    options: the names that are not of its store
    is_recursive: whether folders below are read, too
    may_be_missing: whether the job makes a local folder that does not exist
    """
    if "path" not in entry.found:
        return None
    node = entry.found["path"]
    place = entry.folders.place(node, store_options(entry.found, tuple(options)))
    if not entry.is_control:
        _refuse_no_folder(entry.name, place, node, may_be_missing=may_be_missing)
    kind = FolderKind.CONTROL if entry.is_control else FolderKind.SOURCE
    entry.folders.add(kind, entry.name, place, node, is_recursive=is_recursive)
    return place


def read_options(entry: SourceEntry, options: Collection[str]) -> dict[str, str]:
    """Those of `options` that are not of the store; mistakes are reported."""
    if "options" not in entry.found:
        return {}
    found = entry.found["options"].mapping((*options, *option_names(entry.found)))
    for key in LIMITS:
        if key in found:
            found[key].number(least=1, most=2**62)
    return {key: option.text() for key, option in found.items() if key in options}


def limit(options: dict[str, str], key: str) -> int | None:
    """One of LIMITS; None = there is none."""
    text = options.get(key)
    return int(text) if text is not None and text.lstrip("+").isdigit() else None


def refuse_other_decoding(entry: SourceEntry) -> None:
    """Report a `decode` of something else than columns."""
    if "decode" in entry.found:
        entry.found["decode"].one_of({"columns": "columns"}, unsupported=("json", "avro"))


def refuse_no_path(entry: SourceEntry) -> None:
    """Report that there is no path."""
    if "path" not in entry.found and "table" not in entry.found:
        entry.node.wrong(f"'{entry.name}' has no 'path'")


def _refuse_no_folder(name: str, path: Place, node: Node, *, may_be_missing: bool) -> None:
    """Report a local path that is not a folder; a store is asked when the job starts."""
    if isinstance(path, RemotePath) or is_folder(path) or path == LocalPath():
        return
    if exists(path):
        node.wrong(f"'{name}' must be a folder of files; '{node.written()}' is a file")
    elif not may_be_missing:
        node.wrong(f"no such folder: '{node.written()}'{near_file(path)}")
