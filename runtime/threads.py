"""How many threads a process uses, what is divided among them, and when its collector looks."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

from querylang.errors import InputError

# How many threads a process uses, what is divided among them, and when its collector looks.

VARIABLE = "ENSUE_THREADS"

Item = TypeVar("Item")
Result = TypeVar("Result")


def thread_count() -> int:
    """All cores of this process, or as many as the environment says. Raises InputError."""
    found = os.environ.get(VARIABLE, "")
    if not found:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not found.isascii() or not found.isdigit() or not 1 <= int(found) <= 1024:
        raise InputError(f"{VARIABLE}: expected a number of threads from 1 to 1024; found '{found}'")
    return int(found)


def in_threads(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> list[Result]:
    """The function's results, in order; the first item's error is raised first."""
    given: Sequence[Item] = list(items)
    if threads == 1 or len(given) < 2:
        return [function(item) for item in given]
    from concurrent.futures import ThreadPoolExecutor  # commands start without it

    with ThreadPoolExecutor(min(threads, len(given))) as pool:
        return list(pool.map(function, given))


def shares(count: int, parts: int) -> list[tuple[int, int]]:
    """Where each part of so many rows begins and ends; parts are as equal as they can be."""
    bounds = [count * part // parts for part in range(parts + 1)]
    return list(pairwise(bounds))


COLLECTIONS = 100_000, 20, 50
"""When the collector looks for cycles, of which Ensue makes few: plans and columns are kept, or
freed at once. After 700 new objects, as Python has it, that is a sixth of the time of a check."""

_COLLECTING = Lock()
_outer: list[tuple[int, int, int]] = []
"""One for each call that is at work; the first one is what the process had before."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the collector look more rarely meanwhile, also where several threads ask for it."""
    with _COLLECTING:
        _outer.append(gc.get_threshold() if not _outer else _outer[0])
        if gc.get_threshold()[0]:  # 0: a user has switched it off
            gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        with _COLLECTING:
            before = _outer.pop()
            if not _outer:
                gc.set_threshold(*before)


# Python workers collect garbage after every task: make that cheap where much is loaded.
#
# A collection looks at every object that is there, and the packages of a worker are half a million.
# So what a long collection has left is never looked at again.

LONGEST = 0.01
"""Seconds that a collection may take before what it has left is set aside."""

_started = 0.0


def set_objects_aside() -> None:
    """Do so from now on in this process; again is harmless."""
    if _after_collection not in gc.callbacks:
        gc.callbacks.append(_after_collection)


def _after_collection(phase: str, _: dict[str, Any]) -> None:
    global _started  # noqa: PLW0603 # Python calls this before and after a collection, and passes nothing on
    now = monotonic()
    if phase == "start":
        _started = now
    elif now - _started > LONGEST:
        gc.freeze()
