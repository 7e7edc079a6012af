"""Notice that a file has changed since it was read: what was added is never read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from spark_backend.sources.listing.manifests import TakenFile
from spark_backend.sources.listing.read_files import ReadFiles
from spark_backend.sources.listing.source_watch import SourceWatch

WATCHED = 1000
"""Number of files that are looked at before each micro-batch: those that were read last."""


class ChangeWatch:
    """The files that were read last."""

    def __init__(self) -> None:
        self._watched: deque[tuple[str, str, int]] = deque(maxlen=WATCHED)

    def watch(self, files: Iterable[TakenFile]) -> None:
        """Look at these from now on."""
        self._watched.extend((file.source, file.path, file.number) for file in files)

    def watch_all(self, read: ReadFiles) -> None:
        """Look at those that were read last before this run."""
        recent = [
            (item.manifest, source, path)
            for source, files in read.files.items()
            for path, item in files.items()
            if item.manifest
        ]
        self._watched.extend((source, path, 0) for _, source, path in sorted(recent)[-WATCHED:])

    def found(
        self, watches: Mapping[str, SourceWatch], read: ReadFiles, report: Callable[[str, str, str], None]
    ) -> list[TakenFile]:
        """The files that have changed since they were looked at last, each reported."""
        changed: list[TakenFile] = []
        for source, path, number in self._watched:
            known = read.of(source).get(path)
            if known is None or source not in watches:
                continue
            try:
                stamp = watches[source].stamp(path)
            except OSError:
                continue  # removed after it was read, which is nobody's loss
            if stamp != known.seen:
                is_same = stamp.inode != 0 and stamp.inode == known.seen.inode  # an object is only ever replaced
                is_grown = is_same and stamp.size > known.seen.size
                report("grown" if is_grown else "replaced", source, path)
                read.of(source)[path] = type(known)(known.stamp, stamp, known.manifest)
                changed.append(TakenFile(source, number, path, stamp))
        return changed
