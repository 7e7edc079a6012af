"""Checkpoints of the log of a Delta table: Parquet files, which may be damaged or hostile, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from job_engine.delta.commit_log import LOG, checkpoint_files, commits, read_commit
from job_engine.places.place import Place, local_copy
from querylang.errors import InputError
from runtime.json_reader import DamagedJson, part_of
from runtime.reading.formats.parquet_files import open_parquet

CHECKPOINT_WAY_OUT = "Restore it from a copy, or let whoever writes the table make a new checkpoint"

_SIDECAR = re.compile(r"[0-9A-Za-z.-]+[.]parquet")
"""Files beside a checkpoint have the names of UUIDs."""


def column_of_checkpoint(file: Place, name: str) -> Iterator[Any]:
    """The values of a column of actions; none if there is no such column. Raises DamagedJson."""
    with part_of(file, CHECKPOINT_WAY_OUT):
        try:
            with local_copy(file) as copy, open_parquet(copy) as parquet:
                if name not in parquet.schema_arrow.names:
                    return
                found = parquet.read([name]).column(name).to_pylist()
        except (FileNotFoundError, ConnectionError):
            raise
        except (OSError, pa.ArrowException, ArithmeticError) as error:
            raise DamagedJson(f"it cannot be read: {' '.join(str(error).split())[:200]}") from error
    yield from found


def has_deletion_vectors(table: Place, version: int) -> bool:
    """Whether a data file of a version has deleted rows; of the log, not of what it names."""
    begin, files = checkpoint_files(table, version)
    present = [number for number in commits(table) if begin < number <= version]
    if len(present) != version - begin:
        raise InputError(f"{table}: the log has no checkpoint in Parquet behind which all commits are there")
    marked: dict[str, bool] = {}
    for file in (*files, *_sidecars(table, files)):
        for add in column_of_checkpoint(file, "add"):
            if isinstance(add, dict) and isinstance(add.get("path"), str):
                marked[add["path"]] = bool(add.get("deletionVector"))
    for commit in present:
        actions = read_commit(table, commit) or []
        for remove in (found for action in actions if (found := action.get("remove"))):
            marked.pop(remove["path"], None)
        for own in (found for action in actions if (found := action.get("add"))):
            marked[own["path"]] = bool(own.get("deletionVector"))
    return any(marked.values())


def _sidecars(table: Place, files: list[Place]) -> Iterator[Place]:
    for file in files:
        for row in column_of_checkpoint(file, "sidecar"):
            path = row.get("path") if isinstance(row, dict) else None
            if path is None:
                continue
            if not isinstance(path, str) or not _SIDECAR.fullmatch(path):
                raise DamagedJson(f"{file}: is damaged: 'sidecar' does not name a file. {CHECKPOINT_WAY_OUT}")
            yield table / LOG / "_sidecars" / path
