"""What the name of a file says: its format and its compression. Needs no Arrow."""

from __future__ import annotations

from pathlib import PurePath

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""By ending of a file's name: Arrow's name of the compression."""


def kind_of(path: PurePath) -> tuple[str, str]:
    """The endings of a file's name in lower case, of its format and its compression, if any."""
    suffix = path.suffix.lower()
    return (PurePath(path.stem).suffix.lower(), suffix) if suffix in COMPRESSIONS else (suffix, "")
