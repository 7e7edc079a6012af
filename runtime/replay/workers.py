"""Threads beside the engine's: they read what comes next, and gather what was found."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from threading import Lock
from types import TracebackType
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_WAITING = 4
"""So many tasks per thread may wait, with all that they hold in memory."""


class Workers(Generic[Result]):
    """So many threads, perhaps none: then everything happens in the caller's."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads) if threads else None
        self._most = _MOST_WAITING * threads
        self._waiting: deque[_Task[Result]] = deque()

    def __enter__(self) -> Workers[Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def ahead(self, items: Iterator[Item]) -> Iterator[Item]:
        """The same items; the next two are made while one is in use."""
        if self._pool is None:
            yield from items
            return
        first: Future[list[Item]] = self._pool.submit(_next, items, None)
        following = deque([first, self._pool.submit(_next, items, first)])
        while True:
            first = following.popleft()
            while not first.done() and self._help():
                pass
            made = first.result()
            if not made:
                return
            following.append(self._pool.submit(_next, items, following[-1]))
            yield made[0]

    def do(self, task: Callable[[], Result]) -> Callable[[], Result]:
        """Begins a task; the function that is returned waits for its result."""
        own = _Task(task)
        if self._pool is None:
            own.run()
            return own.result
        self._pool.submit(own.run)
        self._waiting.append(own)
        while len(self._waiting) > self._most:
            self._help()
        return own.result

    def _help(self) -> bool:
        """Does the oldest task that has not begun; whether there was one."""
        while self._waiting:
            if self._waiting.popleft().run():
                return True
        return False


class _Task(Generic[Result]):
    """A task, done by the first thread that comes to it."""

    def __init__(self, task: Callable[[], Result]) -> None:
        self._task: Callable[[], Result] | None = task
        self._lock = Lock()
        self._future: Future[Result] = Future()

    def run(self) -> bool:
        """Does the task; False = another thread has begun it."""
        with self._lock:
            task, self._task = self._task, None  # what it holds in memory is free once it is done
        if task is None:
            return False
        try:
            self._future.set_result(task())
        except BaseException as error:
            self._future.set_exception(error)
            if not isinstance(error, Exception):
                raise  # Ctrl-C, in the caller's thread: it must not wait for someone who wants the result
        return True

    def result(self) -> Result:
        """The result, perhaps only now; raises what the task raised."""
        self.run()
        return self._future.result()


def _next(items: Iterator[Item], before: Future[list[Item]] | None) -> list[Item]:
    """The next item in a list, after the one before; empty = there is none."""
    if before is not None:
        wait([before])
    return list(islice(items, 1))
