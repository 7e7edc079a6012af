"""Notice that a file has changed since it was read: what was added is never read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from job_engine.sources.folder.pieces import FolderMemory, ReadFile, TakenFile
from job_engine.sources.folder.source_watch import SourceWatch
from job_engine.sources.kinds import Report

WATCHED = 1000
"""Number of files that are looked at before each micro-batch: those that were read last."""


class ChangeWatch:
    """The files of a source that were read last."""

    def __init__(self) -> None:
        self._watched: deque[tuple[str, int]] = deque(maxlen=WATCHED)

    def watch(self, files: Iterable[TakenFile]) -> None:
        """Look at these from now on."""
        self._watched.extend((file.path, file.number) for file in files)

    def watch_all(self, memory: FolderMemory) -> None:
        """Look at those that were read last before this run."""
        recent = [(item.manifest, path) for path, item in memory.files.items() if item.manifest]
        self._watched.extend((path, 0) for _, path in sorted(recent)[-WATCHED:])

    def found(self, watch: SourceWatch, memory: FolderMemory, report: Report) -> list[TakenFile]:
        """The files that have changed since they were looked at last, each reported."""
        changed: list[TakenFile] = []
        for path, number in self._watched:
            known = memory.files.get(path)
            if known is None:
                continue
            try:
                stamp = watch.stamp(path)
            except OSError:
                continue  # removed after it was read, which is nobody's loss
            if stamp != known.seen:
                is_same = stamp.inode != 0 and stamp.inode == known.seen.inode  # an object is only ever replaced
                is_grown = is_same and stamp.size > known.seen.size
                report("grown" if is_grown else "replaced", memory.source, path)
                memory.files[path] = ReadFile(known.stamp, stamp, known.manifest, known.number)
                changed.append(TakenFile(memory.source, number, path, stamp))
        return changed
