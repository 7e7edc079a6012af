"""Divide the files of a micro-batch among tasks: equal sizes, large files first."""

from __future__ import annotations

from collections.abc import Sequence

from job_engine.sources.folder.pieces import TakenFile

OPENING = 1 << 16
"""Bytes that reading could cover in the time that it takes to open a file."""


def split(files: Sequence[TakenFile], tasks: int) -> list[list[TakenFile]]:
    """At most `tasks` lists, none empty, each in the order of `files`."""
    shares: list[list[int]] = [[] for _ in range(min(tasks, len(files)))]
    loads = [0] * len(shares)
    for place in sorted(range(len(files)), key=lambda place: (-files[place].stamp.size, place)):
        least = loads.index(min(loads))
        shares[least].append(place)
        loads[least] += files[place].stamp.size + OPENING
    return [[files[place] for place in sorted(share)] for share in shares]
