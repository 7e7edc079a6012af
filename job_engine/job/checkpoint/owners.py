"""Whose files a checkpoint has: what is written there has to be read and replaced by its job."""

from __future__ import annotations

import pwd
from collections.abc import Iterator

from job_engine.places.local_path import LocalPath, this_user
from job_engine.places.place import Place
from querylang.errors import InputError

ROOT = 0


def refuse_foreign_files(checkpoint: Place) -> None:
    """Raise InputError if this user must not change a checkpoint, before anything in it is changed.

    The files that root writes would be root's, and a job of another user could not read them. What
    a store permits is seen when it is asked.
    """
    if not isinstance(checkpoint, LocalPath) or not checkpoint.exists():
        return
    own, user = checkpoint.user(), this_user()
    if user == ROOT and own != ROOT:
        raise InputError(
            f"{checkpoint}: belongs to {_name(own)}, whose job could not read what root writes there: run this as"
            f" {_name(own)}; nothing was changed"
        )
    for path in _closed(checkpoint):
        raise InputError(
            f"{path}: belongs to {_name(path.user())}, and {_name(user)} may not change it: run this as {_name(own)},"
            f" or give all files of the checkpoint to {_name(own)}; nothing was changed"
        )


def _closed(checkpoint: LocalPath) -> Iterator[LocalPath]:
    """What this user cannot read, or, of folders, cannot change."""
    if not checkpoint.is_open():
        yield checkpoint
    for folder, folders, names in checkpoint.walk_below():
        yield from (path for name in (*folders, *names) if not (path := folder / name).is_open())


def _name(user: int) -> str:
    try:
        return f"'{pwd.getpwuid(user).pw_name}'"
    except KeyError:
        return f"user {user}"
