"""The keys of a deployment file, and what may change on a checkpoint.

A setting is *fixed* if it decides which records are read, what they mean, or which bucket has them.
The record beside a checkpoint keeps fixed settings, and a run with other ones is refused by name.
*Applied* ones say which queries run: a run with other ones is refused without `--apply`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypedDict

from querylang.dataclass import dataclass

if TYPE_CHECKING:
    from job_engine.yaml_document import Node


class Engine(StrEnum):
    """Which driver runs a job."""

    SPARK = "spark"
    LOCAL = "local"


class Change(StrEnum):
    """Whether a setting may change between two runs on one checkpoint."""

    FIXED = "fixed"
    APPLIED = "applied"
    FREE = "free"


JOB_KEYS: Mapping[str, Change] = {
    "name": Change.FREE,
    "queries": Change.APPLIED,
    "sources": Change.FIXED,
    "control": Change.FIXED,
    "live": Change.FREE,
    "history": Change.FREE,
    "tables": Change.FREE,
    "sinks": Change.FREE,
    "channels": Change.FREE,
    "retry": Change.FREE,
    "mode": Change.FREE,
    "clock": Change.FIXED,
    "idle": Change.FREE,
    "buckets": Change.FIXED,
    "trigger": Change.FREE,
    "checkpoint": Change.FREE,
    "engine": Change.FIXED,
    "forget_keys": Change.FIXED,
    "parameters": Change.APPLIED,
    "hide": Change.FREE,
    "kernels": Change.FREE,
    "spark": Change.FREE,
    "metrics": Change.FREE,
    "log": Change.FREE,
}
"""The record keeps a fingerprint of queries and parameters, and the keys of each source.

`ensue rebucket` changes `buckets` on a checkpoint, and `ensue move` its `engine`.
"""

SOURCE_KEYS: Mapping[str, Change] = {
    "format": Change.FIXED,
    "event": Change.FIXED,
    "type": Change.FIXED,
    "type_field": Change.FIXED,
    "source_time": Change.FIXED,
    "arrival": Change.FIXED,
    "options": Change.FREE,
    "decode": Change.FIXED,
    "ordering": Change.FIXED,
    "idle": Change.FREE,
    "ahead": Change.FREE,
    "max_record": Change.FREE,
    "time_unit": Change.FIXED,
    "time_format": Change.FIXED,
}
"""Those of sources of every kind; each kind has more. Some options choose records and are fixed."""

CONTROL_KEYS = ("format", "options")
"""Those of them that the control stream may have; some kinds have more."""

HISTORY_KEYS: Mapping[str, Change] = dict.fromkeys(
    (
        *("format", "path", "options", "source"),
        *("event", "type_field", "source_time", "arrival", "time_unit", "time_format", "outside_files"),
    ),
    Change.FREE,
)
"""Those of `history`."""

TABLE_KEYS: Mapping[str, Change] = dict.fromkeys(("path", "format", "refresh", "options", "outside_files"), Change.FREE)
"""Those of a table beside the stream. The checkpoint keeps what it has held, so nothing of it is
fixed."""

SPARK_KEYS: Mapping[str, Change] = {
    "master": Change.FREE,
    "packages": Change.FREE,
    "jars": Change.FREE,
    "conf": Change.FREE,
    "executor_memory": Change.FREE,
    "driver_memory": Change.FREE,
}
"""Those of `spark`."""


# The fixed settings of a deployment, as the record beside a checkpoint keeps and compares them.
#
# A value from the environment may be secret: the record has a salted hash of it, and messages have
# the name of its variable.


class KeptHash(TypedDict):
    """In a record, in place of a value that may be secret."""

    hash: str


Kept = str | KeptHash
"""A value in the record: its text, or the hash of one."""


@dataclass(frozen=True, slots=True)
class FixedValue:
    """A setting's value.

    text: equal for equal values
    shown: what the user wrote; None = the text itself
    """

    text: str
    shown: str | None = None

    def __str__(self) -> str:
        return self.text if self.shown is None else self.shown

    def __repr__(self) -> str:
        return f"FixedValue({self})"

    def kept(self, salt: str) -> Kept:
        """The value for a record; a hash if it comes from the environment."""
        return self.text if self.shown is None else {"hash": _hashed(self.text, salt)}

    def is_same(self, kept: Kept, salt: str) -> bool:
        """Whether a record has this value."""
        return kept == self.text if isinstance(kept, str) else kept["hash"] == _hashed(self.text, salt)


FixedValues = Mapping[str, FixedValue]
"""By key."""


def fixed_value(node: Node, text: str | None = None) -> FixedValue:
    """The value at a node; `text`: one that is equal for equal values, None = as it is written."""
    written = plain_text(node) if text is None else text
    return FixedValue(written, _as_written(node) if node.is_from_environment() else None)


def fixed_values(found: Mapping[str, Node], keys: Mapping[str, Change]) -> dict[str, FixedValue]:
    """The values of the fixed keys among those that a file has."""
    return {key: fixed_value(node) for key, node in found.items() if keys[key] is Change.FIXED}


def differences(kept: Mapping[str, Kept], wanted: FixedValues, salt: str) -> Iterator[str]:
    """What has changed since a record was made, by key."""
    for key in sorted({*kept, *wanted}):
        if key not in wanted:
            yield f"'{key}' was {_shown(kept[key])} and is not set"
        elif key not in kept:
            yield f"'{key}' was not set and is {wanted[key]}"
        elif not wanted[key].is_same(kept[key], salt):
            yield f"'{key}' was {_shown(kept[key])} and is {wanted[key]}"


def plain_text(node: Node) -> str:
    """A value as text, variables replaced; mappings sorted by key."""
    return _text(node.plain())


def _as_written(node: Node) -> str:
    return _text(node.plain(is_written=True))


def _text(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {_text(inner)}" for key, inner in sorted(value.items())) + "}"
        case list():
            return "[" + ", ".join(map(_text, value)) + "]"
        case _:
            return str(value)


def _shown(kept: Kept) -> str:
    return kept if isinstance(kept, str) else "another value"


def _hashed(text: str, salt: str) -> str:
    import hashlib

    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=salt.encode(), digest_size=16).hexdigest()
