"""Read a file block by block, and take from its beginning what is understood."""

from __future__ import annotations

from typing import BinaryIO

BLOCK = 4 << 20
"""How many bytes are read at a time, at least: few enough for the processor's caches."""


class Blocks:
    """A file that is being read.

    waiting: what was read and not yet taken
    is_end: nothing follows what is waiting
    line: the number of the line with which it begins
    """

    def __init__(self, file: BinaryIO, size: int = BLOCK) -> None:
        self._file = file
        self._size = size
        self._has_returns_only = False
        self.waiting = b""
        self.is_end = False
        self.line = 1
        self.fill()
        self.waiting = self.waiting.removeprefix(b"\xef\xbb\xbf")

    def fill(self) -> None:
        """Read more, at least as much as is waiting: so a long record costs no repeated scans."""
        wanted = max(self._size, len(self.waiting))
        block = self._file.read(wanted)
        self.is_end = len(block) < wanted
        self.waiting += block.replace(b"\r", b"\n") if self._has_returns_only else block

    def take(self, size: int) -> bytes:
        """The first bytes of what is waiting, which then begins behind them."""
        taken = self.waiting[:size]
        self.skip(size, taken.count(b"\n"))
        return taken

    def skip(self, size: int, lines: int) -> None:
        """Continue behind the first bytes, which have so many line ends."""
        self.line += lines
        self.waiting = self.waiting[size:]

    def skip_line(self) -> None:
        """Continue behind the next line end."""
        end = self.waiting.find(b"\n") + 1
        while not end and self.waiting:
            self.take(len(self.waiting))
            self.fill()
            end = self.waiting.find(b"\n") + 1
        self.take(end)

    def accept_returns(self) -> None:
        """Carriage returns end lines, if there are no line feeds."""
        if b"\n" not in self.waiting and b"\r" in self.waiting:
            self._has_returns_only = True
            self.waiting = self.waiting.replace(b"\r", b"\n")

    @property
    def place(self) -> int:
        """Where in the file it begins."""
        return self._file.tell() - len(self.waiting)

    def go_back(self, place: int, line: int) -> None:
        """Continue at an earlier place, of which the line is known."""
        self._file.seek(place)
        self.waiting, self.is_end, self.line = b"", False, line
        self.fill()
