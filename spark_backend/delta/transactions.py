"""Which micro-batches of which checkpoints a Delta table has: transaction ids in its log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from runtime.reading.formats.parquet_files import open_parquet
from spark_backend.delta.commit_log import Action, checkpoint_files, commits, read_commit
from spark_backend.places.place import Place, local_copy

_APPLICATION = re.compile(r"ensue-([0-9a-f]{12})")


def application(identity: str) -> str:
    """The application of a checkpoint, as transactions name it."""
    return f"ensue-{identity}"


def identity_of(name: str) -> str | None:
    """The inverse of `application`; None = the application is somebody else's."""
    found = _APPLICATION.fullmatch(name)
    return None if found is None else found[1]


def transactions(table: Place) -> dict[str, int]:
    """The last version of each application."""
    version, files = checkpoint_files(table)
    found = {name: number for file in files for name, number in _in_checkpoint(file)}
    for commit in commits(table):
        if commit > version:
            found |= dict(_in_commit(read_commit(table, commit) or []))
    return found


def _in_checkpoint(file: Place) -> Iterator[tuple[str, int]]:
    with local_copy(file) as copy, open_parquet(copy) as parquet:
        if "txn" not in parquet.schema_arrow.names:
            return
        for row in parquet.read(["txn"]).column("txn").to_pylist():
            if row is not None and row["appId"] is not None:
                yield row["appId"], row["version"]


def _in_commit(actions: list[Action]) -> Iterator[tuple[str, int]]:
    return ((action["txn"]["appId"], action["txn"]["version"]) for action in actions if "txn" in action)


def committed_files(table: Place, application: str, version: int) -> set[str] | None:
    """The data files of a transaction, below the table; None = the log has it no longer."""
    for commit in reversed(commits(table)):
        actions = read_commit(table, commit) or []
        if (application, version) in _in_commit(actions):
            return {unquote(action["add"]["path"]) for action in actions if "add" in action}
    return None
