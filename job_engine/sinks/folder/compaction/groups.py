"""Which files of a folder become one: files of neighbouring micro-batches, up to a size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from job_engine.places.place import Place

MOST_FILES = 1_000
"""Files that become one at a time. Meanwhile readers may see rows twice: it has to be short."""


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A file of results.

    batch: the micro-batch that it is of; of one that was compacted, the last one
    size: bytes
    """

    place: Place
    batch: int
    size: int


def groups_of(files: Iterable[ResultFile], target: int) -> Iterator[list[ResultFile]]:
    """The groups of files that become one each, in the order of micro-batches.

    A group has all files of its micro-batches, so names keep their order. Files of at least half
    the target stay as they are: otherwise each compaction would write them again.

    files: of one folder
    target: bytes that a compacted file should have
    """
    group: list[ResultFile] = []
    ordered = sorted(files, key=lambda file: (file.batch, file.place.name))
    for _, found in groupby(ordered, key=lambda file: file.batch):
        own = list(found)
        if len(own) == 1 and own[0].size >= target // 2:
            yield from _worthwhile(group)
            group = []
            continue
        group += own
        if sum(file.size for file in group) >= target or len(group) >= MOST_FILES:
            yield from _worthwhile(group)
            group = []
    yield from _worthwhile(group)


def _worthwhile(group: Sequence[ResultFile]) -> Iterator[list[ResultFile]]:
    if len(group) > 1:
        yield list(group)
