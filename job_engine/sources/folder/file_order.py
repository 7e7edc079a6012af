"""The order in which the files of a source are read, and how many of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from job_engine.places.place import Place
from job_engine.sources.folder.folder_listing import FileStamp
from job_engine.sources.folder.listed_source import ListedSource
from job_engine.sources.folder.source_watch import watch_of
from runtime.natural_names import natural_key


def in_order(source: ListedSource, files: Mapping[str, FileStamp]) -> list[str]:
    """The paths in the source's order."""
    if source.order == "name":
        return sorted(files, key=natural_key)
    return sorted(files, key=lambda path: (files[path].modified, natural_key(path)))


def first_ones(source: ListedSource, paths: Sequence[str], files: Mapping[str, FileStamp]) -> Sequence[str]:
    """As many of the ordered paths as a micro-batch reads; at least one."""
    count = len(paths) if source.max_files is None else min(len(paths), source.max_files)
    if source.max_bytes is None:
        return paths[:count]
    size = 0
    for place, path in enumerate(paths[:count]):
        size += files[path].size
        if place and size > source.max_bytes:
            return paths[:place]
    return paths[:count]


_SAMPLE_FILES = 100
_SAMPLE_BYTES = 64 << 20
"""How much of a source is read for the types of its columns, but at least one file."""


def first_files(source: ListedSource) -> list[Place]:
    """The files that a new job reads first, in order, as many as a sample has."""
    found = watch_of(replace(source, min_age=0)).new_files(lambda _: False, 0)
    ordered = in_order(source, {path: stamp for path, stamp in found.files.items() if stamp.size})
    if not ordered:
        return []
    sample = replace(source, max_files=_SAMPLE_FILES, max_bytes=_SAMPLE_BYTES)
    return [source.file(path) for path in first_ones(sample, ordered, found.files)]
