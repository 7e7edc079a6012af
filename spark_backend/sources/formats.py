"""The formats that a job's sources can have, and what a job asks of each.

A new format is a file with its `SourceFormat`, and a line in FORMATS. Its module is imported on
first use, so that `ensue check` reads deployment files without Spark and Arrow.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from spark_backend.sources.listing.listed_source import ListedSource


class SourceFormat(Protocol):
    """Folders of files of one format."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """How the names of its files end, in lower case."""

    def refuse_unreadable(self, source: ListedSource) -> None:
        """Raise InputError if a job would silently read nothing."""

    def sample(self, source: ListedSource) -> Path | None:
        """A file with the source's columns, to infer field types from; None = no data yet."""


@dataclass(frozen=True, slots=True)
class FormatEntry:
    """One line of the table.

    module: has a mapping `FORMATS` with the SourceFormat by name
    options: names that `options` of a deployment file may have
    counts: those of them that are whole numbers from 1
    fixed: those of them that choose records, and so may not change on a checkpoint
    """

    module: str
    options: tuple[str, ...]
    counts: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()


_FILES = FormatEntry(
    "spark_backend.sources.files",
    options=("maxFilesPerTrigger", "maxBytesPerTrigger", "pathGlobFilter", "recursiveFileLookup"),
    counts=("maxFilesPerTrigger", "maxBytesPerTrigger"),
    fixed=("pathGlobFilter", "recursiveFileLookup"),
)

FORMATS: Mapping[str, FormatEntry] = {"parquet": _FILES, "csv": _FILES, "json": _FILES}
"""By the name that a deployment file uses."""


def source_format(name: str) -> SourceFormat:
    """The format of that name."""
    formats: Mapping[str, SourceFormat] = importlib.import_module(FORMATS[name].module).FORMATS
    return formats[name]
