"""Which micro-batches of which checkpoints a Delta table has: transaction ids in its log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from job_engine.delta.checkpoints import CHECKPOINT_WAY_OUT, column_of_checkpoint
from job_engine.delta.commit_log import Action, Txn, checkpoint_files, commits, read_commit
from job_engine.places.place import Place
from runtime.json_reader import part_of, shaped

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
    for row in column_of_checkpoint(file, "txn"):
        if row is not None:
            with part_of(file, CHECKPOINT_WAY_OUT):
                txn = shaped(row, Txn)
            yield txn["appId"], txn["version"]


def _in_commit(actions: list[Action]) -> Iterator[tuple[str, int]]:
    return ((txn["appId"], txn["version"]) for action in actions if (txn := action.get("txn")))


def committed_files(table: Place, application: str, version: int) -> set[str] | None:
    """The data files of a transaction, below the table; None = the log has it no longer."""
    for commit in reversed(commits(table)):
        actions = read_commit(table, commit) or []
        if (application, version) in _in_commit(actions):
            return {unquote(add["path"]) for action in actions if (add := action.get("add"))}
    return None
