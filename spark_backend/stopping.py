"""Being asked to stop: Ctrl-C and SIGTERM, as a fact that a waiting loop looks at.

Takes nothing; gives a `StopRequest` that is open while a query runs. Spark's own handler of Ctrl-C talks to the JVM from
inside whatever talk is going on, and breaks it.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Notes signals instead of dying of them; outside the main thread, where none arrive, it notes nothing.

    `signal`: the number of the one that came first.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    @property
    def has_come(self) -> bool:
        """Whether someone wants us to stop."""
        return self.signal is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal = self.signal or number
