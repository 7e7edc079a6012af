"""A JSON header and byte strings in one versioned binary value: packed rows and saved state.

Every use has its own word and version: a value of another use or release is refused by name
instead of being misread. The content is plain data, never pickled classes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

_MAGIC = b"ENSUE\x01"
_LENGTH = struct.Struct("<I")


class ContainerError(ValueError):
    """The bytes are not a container, or one of another use or version."""


def pack(use: str, version: int, header: Mapping[str, Any], parts: Sequence[bytes]) -> bytes:
    """One value; `header` is anything that JSON can hold, `parts` follow it in order."""
    lengths = [len(part) for part in parts]
    text = json.dumps({"use": use, "version": version, "header": dict(header), "lengths": lengths}).encode()
    return b"".join((_MAGIC, _LENGTH.pack(len(text)), text, *parts))


def unpack(use: str, version: int, data: bytes, older: Sequence[int] = ()) -> tuple[dict[str, Any], list[memoryview]]:
    """The inverse of `pack`, without copying the parts; `older`: other versions that are accepted.

    Raises ContainerError for another use or version.
    """
    view = memoryview(data)
    start = len(_MAGIC) + _LENGTH.size
    if bytes(view[: len(_MAGIC)]) != _MAGIC or len(view) < start:
        raise ContainerError(f"not a {use} value of Ensue")
    (length,) = _LENGTH.unpack(view[len(_MAGIC) : start])
    outer = json.loads(bytes(view[start : start + length]))
    if outer["use"] != use or outer["version"] not in (version, *older):
        raise ContainerError(
            f"{outer['use']} value of version {outer['version']}; this release reads {use} of version {version}"
        )
    parts, at = [], start + length
    for size in outer["lengths"]:
        parts.append(view[at : at + size])
        at += size
    if at != len(view):
        raise ContainerError(f"a {use} value is truncated: {len(view)} of {at} bytes")
    return outer["header"], parts
