"""Ctrl-C and SIGTERM: noted while a query runs, and noticed at once before it does.

Spark's own handler of Ctrl-C calls the JVM in the middle of other calls to it, and breaks them.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

SIGNAL_EXIT = 128
"""Exit code of a process that a signal has ended, less the signal's number."""

LOOK = 0.05
"""Seconds between two looks whether a call to Java has returned."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """A signal has arrived before there was anything to end in order.

    number: of the signal
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class StopRequest:
    """A context in which signals are noted and do not end the process.

    Does nothing outside the main thread, where no signals arrive. A context within another one
    knows the signal that the other has noted.

    signal: number of the first signal; None = none yet
    """

    _inner: StopRequest | None = None
    """The context that signals reach now."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._raises = False
        self._handlers: dict[int, Any] = {}
        self._outer: StopRequest | None = None

    @property
    def is_requested(self) -> bool:
        """Whether a signal has arrived."""
        return self.signal is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._outer, StopRequest._inner = StopRequest._inner, self
            self.signal = self._outer.signal if self._outer is not None else None
            self._handlers = self._listen()
        return self

    def _listen(self) -> dict[int, Any]:
        """Let signals reach this context; gives what they reached before."""
        return {number: signal.signal(number, self._note) for number in _SIGNALS}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handlers:
            StopRequest._inner = self._outer
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @contextmanager
    def noticed_at_once(self) -> Iterator[None]:
        """Raise Stopped when a signal arrives, once: what is being prepared may take long.

        A call to Java is not broken off: then it is raised as soon as the call has returned.
        """
        self._raises = True
        try:
            if self.signal is not None:
                raise Stopped(self.signal)
            yield
        finally:
            self._raises = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        is_first = self.signal is None
        self.signal = self.signal or number
        if is_first:
            self._raise(frame)

    def _raise(self, frame: FrameType | None) -> None:
        if not self._raises or self.signal is None:
            return
        if _is_in_call_to_java(frame):
            signal.signal(signal.SIGALRM, lambda _, frame: self._raise(frame))
            signal.setitimer(signal.ITIMER_REAL, LOOK)
            return
        self._raises = False
        raise Stopped(self.signal)


def listen_again() -> None:
    """Take back what a new session of Spark has taken: it breaks its own calls at Ctrl-C."""
    if StopRequest._inner is not None and threading.current_thread() is threading.main_thread():  # noqa: SLF001 # its own
        StopRequest._inner._listen()  # noqa: SLF001 # its own


def _is_in_call_to_java(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("py4j."):
            return True
        frame = frame.f_back
    return False
