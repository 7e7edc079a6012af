"""The settings of a Delta source; what is wrong with them is reported, with its line."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.instants import parse_moment
from spark_backend.document.setting_values import is_true
from spark_backend.document.store_settings import refuse_unknown_settings
from spark_backend.document.yaml_document import Node
from spark_backend.places.place import Place, place_to_plain
from spark_backend.sources.delta.delta_source import DeltaSource

KEYS = ("schema_changes", "skip_changes", "outside_files")
"""The keys of a deployment file that only Delta sources have."""

_OF_FILES = ("order", "min_age", "after", "unreadable", "infer", "csv")

_LONGEST_VERSION = 18
"""Digits."""


def read_delta(
    name: str, node: Node, found: Mapping[str, Node], path: Place | None, options: Mapping[str, str]
) -> DeltaSource | None:
    """The settings among a source's entries; None = mistakes were reported.

    path: None = a catalog says where the table is
    """
    for key in _OF_FILES:
        if key in found:
            found[key].wrong(f"'{key}' is not a setting of Delta sources")
    if path is not None:
        refuse_unknown_settings(found, path)
    if "arrival" not in found:
        node.wrong(f"'{name}' has no 'arrival': the column that says when a record arrived")
        return None
    words = {"refuse": False, "add_columns": True}
    changes = found["schema_changes"].one_of(words) if "schema_changes" in found else None
    start = found["start"].parsed(_start, "`earliest`, `latest`, a version or a time") if "start" in found else None
    folder, store = ("", {}) if path is None else place_to_plain(path)
    return DeltaSource(
        name,
        folder,
        found["arrival"].text(),
        start=start or "earliest",
        adds_columns=changes or False,
        skips_changes=is_true(found, "skip_changes"),
        outside_files=is_true(found, "outside_files"),
        max_files=_count(options.get("maxFilesPerTrigger")),
        max_bytes=_count(options.get("maxBytesPerTrigger")),
        store=store,
    )


def _start(text: str) -> str | None:
    if text in ("earliest", "latest") or (text.isascii() and text.isdigit() and len(text) <= _LONGEST_VERSION):
        return text
    moment = parse_moment(text)
    return None if moment is None else f"@{moment}"


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
