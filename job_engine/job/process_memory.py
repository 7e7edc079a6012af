"""How much memory a job's processes have here: the driver, workers, and Java if it is Spark's."""

from __future__ import annotations

from pathlib import Path

from job_engine.local_path import LocalPath
from querylang.dataclass import dataclass

PROC = LocalPath("/proc")


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of a process and of all below it.

    bytes: what several of them share is counted once
    """

    bytes: int
    processes: int


def memory_of(process: int, proc: Path = PROC) -> ProcessMemory | None:
    """The memory of a tree of processes; None = the system does not tell."""
    children: dict[int, list[int]] = {}
    for number, parent in _parents(proc):
        children.setdefault(parent, []).append(number)
    found, waiting = [], [process]
    while waiting:
        number = waiting.pop()
        waiting += children.get(number, [])
        size = _bytes(proc / str(number))
        if size is not None:
            found.append(size)
    return ProcessMemory(sum(found), len(found)) if found else None


def _parents(proc: Path) -> list[tuple[int, int]]:
    """All processes with the ones that started them."""
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text("utf-8", "replace")
            found.append((int(folder.name), int(text.rpartition(")")[2].split()[1])))
        except (OSError, ValueError, IndexError):
            continue  # it has ended
    return found


def _bytes(folder: Path) -> int | None:
    """The share of a process in memory: a page that several have is divided among them."""
    try:
        lines = (folder / "smaps_rollup").read_text("utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return _resident(folder)


def _resident(folder: Path) -> int | None:
    """For processes of another user, whose shares are secret."""
    try:
        lines = (folder / "status").read_text("utf-8", "replace").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
