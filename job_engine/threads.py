"""Work beside the work of a job: in the background, or for so long.

Work that is divided among threads goes through `runtime.threads`.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from os import register_at_fork
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeVar

Found = TypeVar("Found")


def in_background(do: Callable[[], object], name: str) -> Thread:
    """A thread that does this, and ends with the process; an error of it is one line."""

    def run() -> None:
        try:
            do()
        except Exception as error:  # noqa: BLE001 # nobody waits for the thread
            from querylang.printable import warn  # the process that lists files has to start fast

            lines = str(error).splitlines() or [""]
            warn(f"what '{name}' does beside the job has ended: {type(error).__name__}: {lines[0]}")

    thread = Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def begun(ask: Callable[[], Found], name: str) -> Future[Found]:
    """A call in another thread, and what it will give."""
    found: Future[Found] = Future()

    def run() -> None:
        try:
            found.set_result(ask())
        except BaseException as error:  # noqa: BLE001  raised where the result is wanted
            found.set_exception(error)

    in_kept_thread(run, name)
    return found


_idle: list[SimpleQueue[Callable[[], object]]] = []
"""By thread that has done what it had to: where it waits for more."""

register_at_fork(after_in_child=_idle.clear)  # a child has none of these threads


def in_kept_thread(do: Callable[[], object], name: str) -> None:
    """Let a thread do this that was started for an earlier call and waits, or else a new one.

    Whoever starts a thread waits until it runs, for milliseconds where all cores work. `do` must
    not raise.
    """
    try:
        calls = _idle.pop()
    except IndexError:
        calls = SimpleQueue()
        in_background(partial(_do_what_comes, calls), name)
    calls.put(do)


def _do_what_comes(calls: SimpleQueue[Callable[[], object]]) -> None:
    while True:
        calls.get()()
        _idle.append(calls)


def within(seconds: float, ask: Callable[[], Found], name: str) -> Found:
    """What a call gives, if it returns at all; raises TimeoutError, and then it continues alone."""
    return begun(ask, name).result(seconds)


def new_event() -> Event:
    """Something that threads wait for."""
    return Event()


# What a job starts beside what it has to do first, and does without if that fails.

LONGEST_EXIT = 2.0
"""Seconds that a process waits at its end for something that is being started."""


class EarlyStart:
    """Something that runs beside the main thread; its mistakes show when the job meets them."""

    def __init__(self, start: Callable[[], object]) -> None:
        self._start = start
        self._thread = in_background(self._run, "ensue early start")
        atexit.register(self._thread.join, LONGEST_EXIT)

    def _run(self) -> None:
        with suppress(Exception):
            self._start()

    def wait(self) -> None:
        """Return when it has ended, well or not."""
        self._thread.join()
