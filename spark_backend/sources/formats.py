"""The formats that a job's sources can have, and what a job asks of each.

A new format is a file with its `SourceFormat`, and a line in FORMATS. Its module is imported on
first use, so that `ensue check` reads deployment files without Spark and Arrow.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from spark_backend.places.place import Place
from spark_backend.sources.delta.delta_source import SOURCE_OPTIONS as DELTA_OPTIONS
from spark_backend.sources.kafka.client_options import ISOLATION
from spark_backend.sources.kafka.kafka_source import SOURCE_OPTIONS

if TYPE_CHECKING:
    from spark_backend.sources.listing.listed_source import ListedSource


class SourceFormat(Protocol):
    """Folders of files of one format."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """How the names of its files end, in lower case."""

    def refuse_unreadable(self, source: ListedSource) -> None:
        """Raise InputError if a job would silently read nothing."""

    def sample(self, source: ListedSource) -> list[Place]:
        """Files with the source's columns, to infer field types from; empty = no data yet."""


@dataclass(frozen=True, slots=True)
class FormatEntry:
    """One line of the table.

    module: has a mapping `FORMATS` with the SourceFormat by name; "" = the format is not of files
    options: names that `options` of a deployment file may have
    counts: those of them that are whole numbers from 1
    fixed: those of them that choose records, and so may not change on a checkpoint
    """

    module: str
    options: tuple[str, ...]
    counts: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()


_FILES = FormatEntry(
    "spark_backend.sources.file_formats",
    options=("maxFilesPerTrigger", "maxBytesPerTrigger", "pathGlobFilter", "recursiveFileLookup"),
    counts=("maxFilesPerTrigger", "maxBytesPerTrigger"),
    fixed=("pathGlobFilter", "recursiveFileLookup"),
)

_KAFKA = FormatEntry(
    "",
    options=(*SOURCE_OPTIONS, ISOLATION),  # others of the client choose no records
    fixed=("subscribe", "subscribePattern", "assign", ISOLATION),
)

FORMATS: Mapping[str, FormatEntry] = {
    "parquet": _FILES,
    "csv": _FILES,
    "json": _FILES,
    "arrow": _FILES,
    "kafka": _KAFKA,
    "delta": FormatEntry("", DELTA_OPTIONS, counts=DELTA_OPTIONS),
}
"""By the name that a deployment file uses."""


FILE_FORMATS = tuple(name for name, entry in FORMATS.items() if entry.module)
"""The formats of files."""


def source_format(name: str) -> SourceFormat:
    """The format of files of that name."""
    formats: Mapping[str, SourceFormat] = importlib.import_module(FORMATS[name].module).FORMATS
    return formats[name]
