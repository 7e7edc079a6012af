"""Check before a start that executors see the job's local folders, by files that the driver sees.

A folder on another machine may have the same name and other files.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from job_engine.durable_files import make_folder
from job_engine.places.local_path import LocalPath
from querylang.errors import InputError
from spark_backend.cluster.executor_check import LONGEST_TASK

if TYPE_CHECKING:
    from pyspark import SparkContext


def refuse_unseen_folders(
    context: SparkContext, executors: int, read: Mapping[str, Path], written: Mapping[str, Path]
) -> None:
    """Raise InputError for folders that some executor does not see.

    executors: how many there are
    read, written: the folders that tasks read from and write to, by what they are for
    """
    with _marked(written) as marks:
        wanted = {what: str(folder / _known(folder)) for what, folder in read.items()}
        wanted |= {what: str(mark) for what, mark in marks.items()}
        unseen = sorted(set(_unseen(context, executors, list(wanted.items()))))
    if unseen:
        what, host = unseen[0]
        folder = {**read, **written}[what]
        raise InputError(
            f"{folder}: the executor on {host} does not see this folder of {what} as the driver does."
            " Put it on storage that all machines share, or in a store such as `s3://`: docs/places.md"
        )


def _known(folder: Path) -> str:
    """A name in the folder; "" = it is empty, and has to exist only."""
    return min((path.name for path in folder.iterdir()), default="") if folder.is_dir() else ""


@contextmanager
def _marked(folders: Mapping[str, Path]) -> Iterator[dict[str, Path]]:
    """Files that only these folders have, for as long as it takes to look for them."""
    name = f".ensue-{uuid.uuid4().hex}"
    marks = {what: folder / name for what, folder in folders.items()}
    try:
        for mark in marks.values():
            make_folder(LocalPath.of(mark.parent))
            mark.touch()
        yield marks
    finally:
        for mark in marks.values():
            mark.unlink(missing_ok=True)


def _unseen(context: SparkContext, executors: int, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    tasks = max(context.defaultParallelism, executors)
    found: list[tuple[str, str]] = (
        context.parallelize(range(tasks), tasks).mapPartitions(looking(wanted, LONGEST_TASK)).collect()
    )
    return found


def looking(wanted: Sequence[tuple[str, str]], seconds: float) -> Callable[[Iterable[int]], Iterator[tuple[str, str]]]:
    """The task, as a function that is sent by value: what is not there, and the machine's name."""

    def look(_: Iterable[int]) -> Iterator[tuple[str, str]]:
        import os
        import socket
        import time

        time.sleep(seconds)
        for what, path in wanted:
            if not os.path.lexists(path):
                yield what, socket.gethostname()

    return look
