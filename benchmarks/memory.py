"""Peak memory and processor time of this process and all its children: JVM and Python workers included."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

INTERVAL = 0.25


class PeakMemory:
    """While entered, sums the proportional set sizes (shared pages are counted once) of the process tree."""

    def __init__(self, root: int | None = None) -> None:
        """`root`: of the tree; None = this process."""
        self._root = os.getpid() if root is None else root
        self.peak_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL):
            self.peak_bytes = max(self.peak_bytes, sum(_size(process) for process in tree(self._root)))


def tree(root: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            parent = _parent(folder)
            if parent is not None:
                children.setdefault(parent, []).append(int(folder.name))
    found, at = [root], 0
    while at < len(found):
        found.extend(children.get(found[at], []))
        at += 1
    return found


def processor_time(root: int) -> float:
    """Seconds that a process and all that run below it have spent on processors."""
    ticks = [_fields(Path(f"/proc/{process}"))[11:13] for process in tree(root)]
    return sum(int(part) for own in ticks for part in own) / os.sysconf("SC_CLK_TCK")


def _parent(folder: Path) -> int | None:
    fields = _fields(folder)
    return int(fields[1]) if fields else None


def _fields(folder: Path) -> list[str]:
    """What the system says of a process, from its state on; nothing if it has ended meanwhile."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _size(process: int) -> int:
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0
