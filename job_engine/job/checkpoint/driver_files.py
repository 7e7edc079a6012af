"""The files that a driver keeps in a checkpoint, and their places.

Where the state was moved to another number of buckets, or to another driver, they are in a folder
below the checkpoint, and the files of before stay until a micro-batch has ended there.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from job_engine.job.checkpoint.checkpoint_record import Record, write_record
from job_engine.places.local_path import LocalPath
from job_engine.places.place import Place, files_below, names_in
from job_engine.sources.listing.batch_log import LATER, DriverFiles, driver_files
from job_engine.wire.program import Program

_FIRST = ("metadata", "offsets", "commits", "sources", "state")
"""Names in a checkpoint that are a driver's."""

_SEEDS = re.compile("seeds-[0-9]+")


def new_places(checkpoint: Place, engine: str) -> tuple[str, str]:
    """Names of new folders below a checkpoint, for a driver's files and for states of buckets."""
    used = [name for name in (*names_in(checkpoint), *names_in(checkpoint / "ensue")) if "-" in name]
    numbers = [int(name.rpartition("-")[2]) for name in used if LATER.fullmatch(name) or _SEEDS.fullmatch(name)]
    number = max(numbers, default=0) + 1
    return f"{engine}-{number}", f"ensue/seeds-{number}"


def placed(program: Program, record: Record, checkpoint: Place) -> Program:
    """The program as it runs on a checkpoint."""
    moved = record.moved
    if moved is None:
        return replace(program, tasks=record.tasks)
    begins = moved.seeds is not None and not _has_ended_one(driver_files(checkpoint))
    seeds = str((checkpoint / str(moved.seeds)).resolve()) if begins else None
    return replace(program, tasks=record.tasks, before=moved.before, seeds=seeds)


def remove_old_files(checkpoint: Place, record: Record) -> Record:
    """Remove what moving the checkpoint has left, once a micro-batch has ended there.

    A move that was killed has left states that the record does not name.
    """
    moved = record.moved
    if moved is not None and not _has_ended_one(driver_files(checkpoint)):
        return record
    if moved is not None and moved.seeds is not None:
        record = replace(record, moved=replace(moved, seeds=None))
        write_record(checkpoint, record)
    remove_unused(checkpoint, record)
    return record


def remove_unused(checkpoint: Place, record: Record) -> None:
    """Remove all files of drivers, and states, that the record does not name."""
    used = ("", "") if record.moved is None else (record.moved.folder, record.moved.seeds or "")
    for name in names_in(checkpoint):
        is_first = name in _FIRST and record.moved is not None and record.moved.seeds is None
        if is_first or (LATER.fullmatch(name) and name != used[0]):
            _remove(checkpoint / name)
    for name in names_in(checkpoint / "ensue"):
        if _SEEDS.fullmatch(name) and f"ensue/{name}" != used[1]:
            _remove(checkpoint / "ensue" / name)


def _has_ended_one(files: DriverFiles) -> bool:
    """Whether a micro-batch has ended there: then the driver has the states of all buckets."""
    return any(name.isdecimal() for name in names_in(files.commits))


def _remove(place: Place) -> None:
    if isinstance(place, Path):
        LocalPath.of(place).remove_tree() if place.is_dir() else place.unlink(missing_ok=True)
        return
    for file in list(files_below(place)) or [place]:
        file.unlink(missing_ok=True)
