"""What a terminal shows while something takes long: how far it is; that kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

from querylang.dataclass import dataclass
from querylang.printable import warn

# One line on a terminal that tells how far something is: a bar, the rate and the time left.

EVERY = 0.1
"""Seconds from one line to the next, at least."""

WIDTH = 24
"""Columns of the bar."""


class ProgressLine:
    """A line that is written over itself; nothing is written where nobody watches."""

    def __init__(
        self,
        out: TextIO,
        what: str,
        unit: str,
        total: int | None = None,
        clock: Callable[[], float] = monotonic,
        began: float | None = None,
    ) -> None:
        """A line for work that begins now, or began at a moment of the clock.

        what: what is being done: `replay`
        unit: what is counted: `rows`
        total: how many there will be, perhaps about; None = unknown
        """
        self._out, self._what, self._unit, self._clock = out, what, unit, clock
        self._is_watched = out.isatty()
        now = clock()
        self._began = now if began is None else began
        self._shown = now - EVERY
        self._width = 0
        self.total = total

    def update(self, done: int) -> None:
        """Shows that so many are done."""
        now = self._clock()
        if self._is_watched and now - self._shown >= EVERY:
            self._shown = now
            self._write(self._text(done, now - self._began))

    def close(self) -> None:
        """Removes the line."""
        if self._width:
            self._write("")
            self._out.write("\r")
            self._out.flush()

    def _text(self, done: int, seconds: float) -> str:
        rate = done / seconds if seconds > 0 else 0.0
        parts = [f"{self._what}: {done:,} {self._unit}"]
        if rate:
            parts.append(f"{rate:,.0f} {self._unit}/s")
        if not self.total:
            return ", ".join(parts)
        share = min(done / self.total, 1.0)
        left = max(self.total - done, 0) / rate if rate else None
        if left is not None:
            parts.append(f"{duration_text(left)} left")
        filled = int(share * WIDTH)
        return f"{share:4.0%} [{'#' * filled}{' ' * (WIDTH - filled)}] {', '.join(parts)}"

    def _write(self, text: str) -> None:
        self._out.write(f"\r{text:<{self._width}}")
        self._out.flush()
        self._width = len(text)


def duration_text(seconds: float) -> str:
    """`7 s`, `2 min 05 s` or `3 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


# Tell a user that kernels are being compiled, who would else wait in silence.

ONCE = "compiling kernels for this machine, once: about half a minute of a processor"


class Notice:
    """Shows on a terminal a bar per kernel; elsewhere says once that kernels are compiled."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._was_told, self._depth, self._done = out, False, 0, 0
        self._line: ProgressLine | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nobody can be notified any more, because the command has ended."""
        return self._out.closed

    @contextmanager
    def compiling(self, name: str, functions: int) -> Iterator[None]:
        """Compiling a kernel with so many functions; those that it calls are compiled within."""
        if self._depth == 0:
            self._begin(name, functions)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._done += 1
            if self._line is not None:
                self._line.update(self._done)
                if self._depth == 0:
                    self._line.close()

    def _begin(self, name: str, functions: int) -> None:
        self._done = 0
        if self._out.isatty():
            self._line = ProgressLine(self._out, f"compiling {name} for this machine, once", "functions", functions)
            self._line.update(0)
        elif not self._was_told:
            self._out.write(f"{ONCE}\n")
            self._out.flush()
        self._was_told = True


@dataclass(slots=True)
class _Told:
    """Where a process tells it; None = by the logger, once."""

    notice: Notice | None = None
    is_logged: bool = False


_told = _Told()


def tell_on(out: TextIO) -> None:
    """From now on tell it there."""
    _told.notice = Notice(out)


def be_silent() -> None:
    """Tell nothing from now on, in a process whose parent tells it."""
    _told.notice, _told.is_logged = None, True


@contextmanager
def compiling(name: str, functions: int) -> Iterator[None]:
    """Compiling a kernel; said where `tell_on` has named a place, else once by the logger."""
    notice = _told.notice
    if notice is None and not _told.is_logged:
        _told.is_logged = True
        warn(ONCE)
    if notice is None or notice.is_closed:
        yield
        return
    with notice.compiling(name, functions):
        yield
