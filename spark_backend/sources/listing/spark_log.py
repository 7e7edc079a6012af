"""What Spark's own logs in a checkpoint say: the manifests that are planned and committed."""

from __future__ import annotations

import json
from pathlib import Path

OFFSET_KEY = "manifest"
"""The only key of an offset of ours; its value is the number of a manifest."""


def committed_manifest(checkpoint: Path) -> int:
    """The number of the last manifest whose micro-batch is committed; 0 = none."""
    batches = _batches(checkpoint / "commits")
    for batch in sorted(batches & _batches(checkpoint / "offsets"), reverse=True):
        number = _manifest_of(checkpoint / "offsets" / str(batch))
        if number is not None:
            return number
    return 0


def _batches(folder: Path) -> set[int]:
    if not folder.is_dir():
        return set()
    return {int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()}


def _manifest_of(file: Path) -> int | None:
    """The manifest in one entry of the offset log, which has a line for each source."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError:
        return None
    for line in lines[2:]:
        try:
            offset = json.loads(line)
        except ValueError:
            continue
        if isinstance(offset, dict) and offset.keys() == {OFFSET_KEY}:
            return int(offset[OFFSET_KEY])
    return None
