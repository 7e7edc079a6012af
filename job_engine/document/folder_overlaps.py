"""Folders of a deployment that must not lie in each other, compared by what is on the disk.

A sink inside a source would be read as input; results inside a sink would be read as its own; a
checkpoint has no other files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from job_engine.places.place import Place, is_within


class FolderKind(StrEnum):
    """What a folder is for, as messages call it."""

    SOURCE = "source"
    CONTROL = "control stream"
    SINK = "sink"
    CHANNEL = "channel"
    ARCHIVE = "archive of the source"
    CHECKPOINT = "checkpoint"


_READ = (FolderKind.SOURCE, FolderKind.CONTROL)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that a deployment names.

    name: of the source or sink
    line: in the deployment file
    is_recursive: whether the files of its subfolders are read, too
    """

    kind: FolderKind
    name: str
    path: Place
    line: int
    is_recursive: bool = False

    def __str__(self) -> str:
        has_name = self.kind not in (FolderKind.CONTROL, FolderKind.CHECKPOINT)
        return f"the {self.kind} '{self.name}'" if has_name else f"the {self.kind}"


def overlaps(folders: Sequence[Folder]) -> Iterator[tuple[int, str]]:
    """The lines and messages of folders that are one, or that lie in each other."""
    for one, other in combinations(sorted(folders, key=lambda folder: folder.line), 2):
        inner, outer = (one, other) if is_within(one.path, other.path) else (other, one)
        if not is_within(inner.path, outer.path):
            continue
        if is_within(outer.path, inner.path):
            yield max(one.line, other.line), f"{one} and {other} have the same folder"
        elif not (inner.kind in _READ and outer.kind in _READ and not outer.is_recursive):
            yield inner.line, f"the folder of {inner} lies in that of {outer}; choose folders beside each other"
