"""Threads and time of a simulated world: one thread runs at a time, and which one is drawn from a seed.

Threads are real ones that hand on a baton. They do so where they wait, and at every call that leaves the process. When
all of them wait, the clock jumps to the first moment that one of them waits for; if there is none, they hang for ever,
and whoever started the world gets Hangs.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from os import getpid
from typing import Any

START = 1_750_000_000.0
"""The time of day at which a world begins, seconds since 1970."""

PATIENCE = 900.0
"""Seconds of this machine's time that a thread waits for the baton before the simulator itself is broken."""


WEIGHTS = (1.0, 1.0, 1.0, 0.1, 0.01)
"""How often a thread is chosen, compared with others: some come to nothing while others do much."""


class Ended(BaseException):
    """The world has ended, so that threads end: what their handlers do has no effect any more."""


class Hangs(AssertionError):
    """Nothing can happen any more, or far too much has happened."""


class _Task:
    """A thread of the world.

    weight: how often it is chosen, compared with others
    ready: what it waits for; None = nothing
    until: the moment at which it continues in any case
    """

    def __init__(self, name: str, weight: float = 1.0) -> None:
        self.name = name
        self.weight = weight
        self.baton = threading.Semaphore(0)
        self.ready: Callable[[], bool] | None = None
        self.until = inf
        self.has_ended = False


class Scheduler:
    """The threads of one world; `most`: so many steps until it is said to hang."""

    def __init__(self, chooser: random.Random, most: int = 60_000) -> None:
        self._chooser = chooser
        self._most = most
        self._local = threading.local()
        self._tasks: list[_Task] = []
        self._real: list[threading.Thread] = []
        self.now = 0.0
        self.skew = 0.0
        self.steps = 0
        self.end: BaseException | None = None
        self._process = getpid()
        self._main = self._adopt("main")

    def _adopt(self, name: str) -> _Task:
        task = _Task(name)
        self._tasks.append(task)
        self._local.task = task
        return task

    @property
    def is_inside(self) -> bool:
        """Whether the calling thread is one of the world's."""
        return getattr(self._local, "task", None) is not None and not getattr(self._local, "is_outside", False)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Let the calling thread act for the rest of the world, whose calls nothing strikes."""
        before = getattr(self._local, "is_outside", False)
        self._local.is_outside = True
        try:
            yield
        finally:
            self._local.is_outside = before

    def name(self) -> str:
        """The name of the thread that runs."""
        return str(self._local.task.name)

    def start(self, do: Callable[[], object], name: str) -> _Task:
        """A new thread, which runs when it is chosen."""
        task = _Task(name, self._chooser.choice(WEIGHTS))

        def run() -> None:
            self._local.task = task
            task.baton.acquire()
            try:
                if self.end is None:
                    do()
            except Ended:
                pass
            finally:
                task.has_ended = True
                self._hand_on(task)

        self._tasks.append(task)
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._real.append(thread)
        thread.start()
        return task

    def step(self) -> None:
        """A call that leaves the process: another thread may come first."""
        if self.end is not None:
            raise Ended
        self.steps += 1
        self.now += 0.0001
        if self.steps > self._most:
            self.stop(Hangs(f"{self.steps} calls, and no end: {self._state()}"))
            raise Ended
        if len(self._tasks) > 1 and self._chooser.random() < 0.25:
            self.wait(lambda: True)

    def wait(self, ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Let others run until something is so, at most so long; gives whether it is."""
        if self.end is not None:
            raise Ended
        task: _Task = self._local.task
        task.ready, task.until = ready, inf if seconds is None else self.now + max(seconds, 0.0)
        self._hand_on(task)
        task.ready, task.until = None, inf
        if self.end is not None:
            raise Ended
        return ready()

    def stop(self, why: BaseException) -> None:
        """End the world: every thread that waits gets Ended."""
        self.end = self.end or why

    def finish(self) -> None:
        """Let all other threads end, once the world has."""
        assert self._local.task is self._main
        self.stop(Ended())
        while any(not task.has_ended for task in self._tasks if task is not self._main):
            self._main.ready = lambda: all(task.has_ended for task in self._tasks if task is not self._main)
            self._hand_on(self._main)
        for thread in self._real:
            thread.join(PATIENCE)

    def _hand_on(self, own: _Task) -> None:
        """Choose who runs next, and wait for the baton, unless the thread has ended."""
        if getpid() != self._process:  # a fork has none of the other threads
            return
        if own.has_ended:
            self._tasks.remove(own)
        chosen = self._chosen()
        if chosen is own:
            return
        chosen.baton.release()
        if not own.has_ended and not own.baton.acquire(timeout=PATIENCE):
            raise AssertionError(f"the simulator has lost its baton: {self._state()}")

    def _chosen(self) -> _Task:
        alive = [task for task in self._tasks if not task.has_ended]
        if self.end is not None:
            others = [task for task in alive if task is not self._main]
            return others[0] if others else self._main
        able = [task for task in alive if task.ready is None or task.until <= self.now or task.ready()]
        if able:
            return able[0] if len(able) == 1 else self._chooser.choices(able, [task.weight for task in able])[0]
        first = min(alive, key=lambda task: task.until)
        if first.until == inf:
            self.stop(Hangs(f"all threads wait for each other: {self._state()}"))
            return self._chosen()
        self.steps += 1
        if self.steps > self._most:
            self.stop(Hangs(f"{self.steps} waits, and no end: {self._state()}"))
            return self._chosen()
        self.now = max(self.now, first.until)
        return first

    def _state(self) -> str:
        return ", ".join(f"{task.name} until {task.until:.1f}" for task in self._tasks if not task.has_ended)


class Clock:
    """Stands for the module `time`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def time(self) -> float:
        return START + self._scheduler.now + self._scheduler.skew

    def monotonic(self) -> float:
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        self._scheduler.wait(lambda: False, seconds)


def classes(scheduler: Scheduler) -> dict[str, type[Any]]:
    """What stands for the classes of `threading` and `concurrent.futures` that jobs use."""

    class Thread:
        def __init__(self, target: Callable[[], object], name: str, daemon: bool = True) -> None:
            assert daemon
            self._do, self._name = target, name

        def start(self) -> None:
            self._task = scheduler.start(self._do, self._name)

        def join(self, seconds: float | None = None) -> None:
            scheduler.wait(lambda: self._task.has_ended, seconds)

        def is_alive(self) -> bool:
            return not self._task.has_ended

    class Event:
        def __init__(self) -> None:
            self._is_set = False

        def set(self) -> None:
            self._is_set = True

        def is_set(self) -> bool:
            return self._is_set

        def wait(self, seconds: float | None = None) -> bool:
            return scheduler.wait(lambda: self._is_set, seconds)

    class Future:
        def __init__(self) -> None:
            self._is_done = False
            self._error: BaseException | None = None
            self._found: Any = None

        def __class_getitem__(cls, _: object) -> type[Future]:
            return cls

        def set_result(self, found: Any) -> None:
            self._found, self._is_done = found, True

        def set_exception(self, error: BaseException) -> None:
            self._error, self._is_done = error, True

        def done(self) -> bool:
            return self._is_done

        def exception(self, seconds: float | None = None) -> BaseException | None:
            if not scheduler.wait(lambda: self._is_done, seconds):
                raise TimeoutError
            return self._error

        def result(self, seconds: float | None = None) -> Any:
            if not scheduler.wait(lambda: self._is_done, seconds):
                raise TimeoutError
            if self._error is not None:
                raise self._error
            return self._found

    class Lock:
        def __init__(self) -> None:
            self._is_held = False

        def acquire(self) -> bool:
            scheduler.wait(lambda: not self._is_held)
            self._is_held = True
            return True

        def release(self) -> None:
            self._is_held = False

        def locked(self) -> bool:
            return self._is_held

        def __enter__(self) -> bool:
            return self.acquire()

        def __exit__(self, *_: object) -> None:
            self.release()

    return {"Thread": Thread, "Event": Event, "Future": Future, "Lock": Lock}
