"""Executors on other machines: how many there are, and what each of them needs before a start."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from job_engine.durable_files import make_folder
from job_engine.local_path import LocalPath
from querylang.dataclass import dataclass, field
from querylang.errors import InputError, PassingError, counted
from querylang.printable import warn

if TYPE_CHECKING:
    from pyspark import SparkContext


# Check before a start that each executor has what Ensue needs: Python and four packages.
#
# What a task finds out is sent as plain values: Ensue is not on the executor yet, or another
# release.

NEEDED: Mapping[str, tuple[str, str | None]] = {
    "numba": ("0.68", "0.69"),
    "numpy": ("2.0", None),
    "pandas": ("2.2", "3"),
    "pyarrow": ("18", None),
}
"""By package: the oldest version that fits, and the first later one that does not."""

LONGEST_TASK = 1.0
"""Seconds that a task waits for the others, so that each runs in a place of its own."""

_WAY_OUT = (
    "Install it there, or name a Python that has it: `spark: {conf: {spark.pyspark.python: PATH}}`."
    " docs/cluster.md shows how to send packages along"
)


@dataclass(frozen=True, slots=True)
class ExecutorState:
    """What an executor has.

    place: its machine and folder
    python: the program of its workers
    versions: of the packages that it has
    ensue: where it imports Ensue from; None = it cannot
    """

    place: str
    python: str
    versions: Mapping[str, str] = field(default_factory=dict)
    ensue: str | None = None


def refuse_unfit_executors(context: SparkContext, executors: int, folder: str) -> None:
    """Raise InputError for executors that lack a package, have one that does not fit, or no Ensue.

    folder: the name of the folder that Ensue was sent to
    """
    found = {item.place: item for item in _looked_at(context, executors)}
    problems = {problem for item in found.values() for problem in problems_of(item, folder)}
    if problems:
        raise InputError("; ".join(sorted(problems)) + f". {_WAY_OUT}")


def problems_of(found: ExecutorState, folder: str) -> Iterator[str]:
    """What is wrong with an executor, without its folder: many have the same mistake."""
    where = f"the Python of an executor on {found.place.partition(' ')[0]}, {found.python},"
    missing = [name for name in NEEDED if name not in found.versions]
    if missing:
        yield f"{where} lacks {', '.join(missing)}"
    for name, version in found.versions.items():
        least, beyond = NEEDED[name]
        if not fits(version, least, beyond):
            wanted = f"{least} or later" if beyond is None else f"from {least}, before {beyond}"
            yield f"{where} has {name} {version}; Ensue needs {wanted}"
    if not missing and (found.ensue is None or f"/{folder}/" not in found.ensue):
        yield f"{where} imports Ensue from {found.ensue or 'nowhere'}, not from what the job has sent"


def fits(version: str, least: str, beyond: str | None) -> bool:
    """Whether a version is in a range."""
    return _numbers(version) >= _numbers(least) and (beyond is None or _numbers(version) < _numbers(beyond))


def _numbers(version: str) -> list[int]:
    """The numbers that a version begins with."""
    return [int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", version)[0])]


def _looked_at(context: SparkContext, executors: int) -> Iterable[ExecutorState]:
    tasks = max(context.defaultParallelism, executors)
    rows = context.parallelize(range(tasks), tasks).mapPartitions(_looking(tuple(NEEDED), LONGEST_TASK))
    for place, python, versions, ensue in rows.collect():
        yield ExecutorState(place, python, versions, ensue)


def _looking(names: tuple[str, ...], seconds: float) -> Callable[[Iterable[int]], Iterator[Any]]:
    """The task, as a function that is sent by value: nothing of ours is imported to load it."""

    def look(_: Iterable[int]) -> Iterator[Any]:
        import socket
        import sys
        import time
        from importlib.metadata import PackageNotFoundError, version
        from importlib.util import find_spec
        from pathlib import Path

        versions = {}
        for name in names:
            try:
                versions[name] = version(name)
            except PackageNotFoundError:
                if find_spec(name) is not None:
                    versions[name] = str(__import__(name).__version__)
        try:
            spec = find_spec("spark_backend.spark_operator")
        except ImportError:
            spec = None
        time.sleep(seconds)
        yield f"{socket.gethostname()} {Path.cwd()}", sys.executable, versions, None if spec is None else spec.origin

    return look


# Check before a start that executors see the job's local folders, by files that the driver sees.
#
# A folder on another machine may have the same name and other files.


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


# How many executors an application has: they register while the driver is at work already.

SETTLED = 3.0
"""Seconds without a new executor after which no more are waited for."""

SILENCE = 20.0
"""Seconds without any executor after which this is reported."""

LONGEST_WAIT = 600.0
"""Seconds without any executor after which a start is given up."""


def await_executors(context: SparkContext) -> int:
    """Wait until executors have registered, and their number grows no more; gives it.

    Raises PassingError if there is none for too long.
    """
    expected = int(context.getConf().get("spark.executor.instances", "0") or 0)
    return settled_number(
        lambda: len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1,  # noqa: SLF001 # the driver counts
        expected,
        context.master or "",
    )


def settled_number(
    number: Callable[[], int],
    expected: int,
    master: str,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """The number of executors once it grows no more, or is what was asked for."""
    began = changed = now()
    last, is_reported = 0, False
    while True:
        found, moment = number(), now()
        if found != last:
            last, changed = found, moment
        if found and (found >= expected > 0 or moment - changed >= SETTLED):
            return found
        if not found and moment - began >= SILENCE and not is_reported:
            warn(f"{_no_executor(master, moment - began)}; the job starts when one registers")
            is_reported = True
        if not found and moment - began >= LONGEST_WAIT:
            raise PassingError(_no_executor(master, moment - began))
        sleep(0.1)


def _no_executor(master: str, seconds: float) -> str:
    return (
        f"no executor of {master} has registered for {counted(round(seconds), 'second')}: does the cluster have workers"
        " with free cores, and as much memory as `executor_memory` asks for?"
    )
