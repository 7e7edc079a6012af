"""How many threads a process uses, and work that is divided among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

from querylang.errors import InputError

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
    with ThreadPoolExecutor(min(threads, len(given))) as pool:
        return list(pool.map(function, given))


def shares(count: int, parts: int) -> list[tuple[int, int]]:
    """Where each part of so many rows begins and ends; parts are as equal as they can be."""
    bounds = [count * part // parts for part in range(parts + 1)]
    return list(pairwise(bounds))
