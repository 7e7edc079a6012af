"""A JSON header and byte strings in one versioned binary value: packed rows and saved state.

Every use has its own word and version: a value of another use or release is refused by name
instead of being misread. The content is plain data, never pickled classes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypedDict

from runtime.json_reader import DamagedJson, json_of_text
from runtime.json_shapes import Count

_MAGIC = b"ENSUE\x02"
_PREFIX = struct.Struct("<6sII")


class ContainerError(ValueError):
    """The bytes are not a container, or one of another use or version, or they are damaged."""


def pack(
    use: str, version: int, header: Mapping[str, Any], parts: Sequence[bytes], *, is_stored: bool = False
) -> bytes:
    """One value; `header` is anything that JSON can hold, `parts` follow it in order.

    is_stored: the checksum covers the parts, too; without it, the header only
    """
    lengths = [len(part) for part in parts]
    outer = {"use": use, "version": version, "header": dict(header), "lengths": lengths}
    text = json.dumps(outer).encode()
    checksum = _checksum(text, parts if is_stored else ())
    return b"".join((_PREFIX.pack(_MAGIC, len(text), checksum), text, *parts))


class _Outer(TypedDict):
    use: str
    version: int
    header: dict[str, Any]
    lengths: list[Count]


def unpack(use: str, version: int, data: bytes) -> tuple[dict[str, Any], list[memoryview]]:
    """The inverse of `pack`, without copying the parts.

    Raises ContainerError for another use or version, and for damage.
    """
    view = memoryview(data)
    if len(view) < _PREFIX.size or bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise ContainerError(f"not a {use} value of this release of Ensue")
    _, length, checksum = _PREFIX.unpack_from(view)
    start = _PREFIX.size
    text, content = bytes(view[start : start + length]), view[start + length :]
    # of a stored value with parts, only the second one fits
    if len(text) < length or (checksum != _checksum(text, ()) and checksum != _checksum(text, (content,))):
        raise ContainerError(f"this {use} value is damaged: its checksum does not fit")
    try:
        outer = json_of_text(text, _Outer)
    except DamagedJson as error:
        raise ContainerError(f"this {use} value is damaged: {error}") from error
    if outer["use"] != use or outer["version"] != version:
        raise ContainerError(
            f"{outer['use']} value of version {outer['version']}; this release reads {use} of version {version}"
        )
    if sum(outer["lengths"]) != len(content):
        raise ContainerError(f"a {use} value is truncated: {len(content)} of {sum(outer['lengths'])} bytes")
    ends = [*accumulate(outer["lengths"])]
    return outer["header"], [content[end - size : end] for end, size in zip(ends, outer["lengths"], strict=True)]


def _checksum(text: bytes, parts: Sequence[bytes | memoryview]) -> int:
    checksum = zlib.crc32(text, len(text))
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum
