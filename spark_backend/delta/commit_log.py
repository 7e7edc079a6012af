"""The log of a Delta table as files: what each commit did.

Needs only the standard library, because the process that lists inputs has to start fast.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from spark_backend.places.place import Place, names_in

LOG = "_delta_log"
"""The folder in a table that its log is in."""

Action = dict[str, Any]
"""One line of a commit: a dict with one key, such as `add`, `remove`, `metaData`, `txn`."""

READABLE = frozenset(
    {
        *("timestampNtz", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "columnMapping"),
        *("typeWidening", "typeWidening-preview"),
    }
)
"""Features that readers of data files can leave alone. Those with deletion vectors, and tables with
column mapping, are refused where they are met."""

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")


def is_table(path: Place) -> bool:
    """Whether a folder has a log."""
    return (path / LOG).is_dir()


def tables_below(path: Place) -> Iterator[Place]:
    """The tables in a folder, and in the folders below it; the folder itself may be one."""
    if is_table(path):
        yield path
    else:
        for name in sorted(names_in(path)):
            if (path / name).is_dir():
                yield from tables_below(path / name)


def commit_file(table: Place, version: int) -> Place:
    """The file of a commit."""
    return table / LOG / f"{version:020d}.json"


def read_commit(table: Place, version: int) -> list[Action] | None:
    """What a commit did; None = it does not exist, or not any more. Raises ValueError."""
    try:
        text = commit_file(table, version).read_text("utf-8")
    except FileNotFoundError:
        return None
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def commits(table: Place) -> list[int]:
    """The versions whose commits are files, ascending: old ones are removed now and then."""
    return sorted(int(found[1]) for name in names_in(table / LOG) if (found := _COMMIT.fullmatch(name)))


def last_checkpoint(table: Place) -> int | None:
    """The version that the newest checkpoint of the log has; None = there is none."""
    try:
        return int(json.loads((table / LOG / "_last_checkpoint").read_text("utf-8"))["version"])
    except ConnectionError:
        raise  # a store that is away says nothing about the file
    except (OSError, ValueError, KeyError, TypeError):
        return None


def checkpoint_files(table: Place) -> tuple[int, list[Place]]:
    """The newest checkpoint in Parquet, which may have several parts; -1 = there is none."""
    found = [(int(match[1]), name) for name in names_in(table / LOG) if (match := _CHECKPOINT.fullmatch(name))]
    newest = max((version for version, _ in found), default=-1)
    return newest, [table / LOG / name for version, name in sorted(found) if version == newest]
