"""Check before a start that each executor has what Ensue needs: Python and four packages.

What a task finds out is sent as plain values: Ensue is not on the executor yet, or another release.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from querylang.errors import InputError

if TYPE_CHECKING:
    from pyspark import SparkContext

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
class Found:
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


def problems_of(found: Found, folder: str) -> Iterator[str]:
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


def _looked_at(context: SparkContext, executors: int) -> Iterable[Found]:
    tasks = max(context.defaultParallelism, executors)
    rows = context.parallelize(range(tasks), tasks).mapPartitions(_looking(tuple(NEEDED), LONGEST_TASK))
    for place, python, versions, ensue in rows.collect():
        yield Found(place, python, versions, ensue)


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
            spec = find_spec("spark_backend.stream.worker_calls")
        except ImportError:
            spec = None
        time.sleep(seconds)
        yield f"{socket.gethostname()} {Path.cwd()}", sys.executable, versions, None if spec is None else spec.origin

    return look
