"""Tell a user that kernels are being compiled, who would else wait in silence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from querylang.dataclass import dataclass
from querylang.printable import warn
from runtime.progress_line import ProgressLine

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
