"""From names of queries, instances and channels to those of sinks, folders and files."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from querylang.plan.model import QueryPlan

if TYPE_CHECKING:
    import pyarrow as pa


# Names of queries, instances and channels as names of folders, safe on every file system.
#
# A folder's name is its name, in which each byte that is not safe is `%` and two hexadecimal
# digits:
#
# - letters, digits, `_`, `-` and `.` are safe; `%` is not, so that two names never give one - a `.`
# or `_` at the beginning is not safe: Spark, pandas and Hadoop skip such folders - a `.` at the end
# is not safe, nor the first letter of `CON`, `NUL` and others: Windows has them
#
# A longer name than `LONGEST` is cut, and ends in `%` and a hash of the whole name.

LONGEST = 120
"""Bytes. File systems allow 255; encrypting ones fewer."""

_HASH = 12
"""Bytes of the hash of a long name; written as twice as many digits."""

_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
)


def folder_name(name: str) -> str:
    """A folder for a name; different names have different folders."""
    text = "".join(char if _is_safe(char) else _escaped(char) for char in name)
    if text[:1] in (".", "_") or text.partition(".")[0].casefold() in _DEVICES:
        text = _escaped(text[0]) + text[1:]
    if text.endswith("."):
        text = text[:-1] + _escaped(".")
    if not text:
        text = "%"
    return text if len(text.encode()) <= LONGEST else _shortened(text)


def match_folder(query: QueryPlan) -> str:
    """The folder of a query's matches in their sink; with one query, too."""
    return "/".join(folder_name(name) for name in (query.name, query.instance) if name)


def same_on_disk(folder: str) -> str:
    """Equal for folders that some file systems take for one: upper and lower case, accents."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", folder).casefold())


def in_one_folder(names: Iterable[str]) -> Iterator[list[str]]:
    """Groups of different names whose folders some file systems take for one."""
    groups: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        groups.setdefault(same_on_disk(folder_name(name)), []).append(name)
    for _, group in sorted(groups.items()):
        if len(group) > 1:
            yield group


def _is_safe(char: str) -> bool:
    return char in "_-." or (char.isalnum() and unicodedata.is_normalized("NFKC", char))


def _escaped(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def _shortened(text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=_HASH).hexdigest()
    begin = text.encode()[: LONGEST - len(digest) - 1].decode("utf-8", "ignore").rstrip("%")
    return f"{begin}%{digest}"


# Channels: what a query sends to a name goes to the sink of that name, and the rest to `output`.
#
# Imports only the standard library at first, so that `ensue check` needs no Arrow.

_BEGIN = "channel."

KINDS = ("send", "emit")
"""The kinds of outputs that are events with a channel."""


def channel_sink(channel: str) -> str:
    """The name of a channel's sink among all sinks of a job."""
    return _BEGIN + channel


def channels(sinks: Collection[str]) -> list[str]:
    """The channels that have a sink of their own."""
    return [name.removeprefix(_BEGIN) for name in sinks if name.startswith(_BEGIN)]


def by_channel(outputs: pa.Table, sinks: Collection[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of outputs by the names of their sinks; no table is empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    own = channels(sinks)
    if not own:
        yield "output", outputs
        return
    is_event = pc.is_in(outputs.column("kind"), pa.array(KINDS))
    has_sink = pc.is_in(outputs.column("channel"), pa.array(own, pa.string()))
    left = outputs.filter(pc.invert(pc.and_(is_event, has_sink)))
    if len(left):
        yield "output", left
    for channel in own:
        sent = outputs.filter(pc.and_(is_event, pc.fill_null(pc.equal(outputs.column("channel"), channel), False)))
        if len(sent):
            yield channel_sink(channel), sent


# The names of files of results: which checkpoint, micro-batch and task wrote them.

RESULT_FILE = re.compile(
    r"(?P<identity>[0-9a-f]{12})-(?P<batch>[0-9]{8,18})-(?P<number>[0-9]{5,18})(?P<suffix>[.](?:parquet|json|csv))"
)
"""The name of the `MicroBatch`, the number of the task, the suffix."""

FIRST_COMPACTED = 200_000
"""Numbers from here on belong to no task: compaction wrote these files."""

COMPACTING = "compact-"
"""How names of what a compaction needs meanwhile begin, behind a `.`, before the checkpoint's."""
