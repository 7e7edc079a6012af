"""Note Ctrl-C and SIGTERM while a query runs, for a waiting loop to look at.

Spark's own handler of Ctrl-C calls the JVM in the middle of other calls to it, and breaks them.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """A context in which signals are noted and do not end the process.

    Does nothing outside the main thread, where no signals arrive.

    signal: number of the first signal; None = none yet
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._handlers: dict[int, Any] = {}

    @property
    def is_requested(self) -> bool:
        """Whether a signal has arrived."""
        return self.signal is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal = self.signal or number
