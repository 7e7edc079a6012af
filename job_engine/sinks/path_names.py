"""Names of queries, instances and channels as names of folders, safe on every file system.

A folder's name is its name, in which each byte that is not safe is `%` and two hexadecimal digits:

- letters, digits, `_`, `-` and `.` are safe; `%` is not, so that two names never give one
- a `.` or `_` at the beginning is not safe: Spark, pandas and Hadoop skip such folders
- a `.` at the end is not safe, nor the first letter of `CON`, `NUL` and others: Windows has them

A longer name than `LONGEST` is cut, and ends in `%` and a hash of the whole name.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator

from querylang.plan.model import QueryPlan

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
