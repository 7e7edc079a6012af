"""Formats of a job's folders: how the names of their files end. Imports no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from querylang.errors import InputError
from runtime.reading.formats.unfolding import COMPRESSIONS
from spark_backend.places.place import Place
from spark_backend.sources.formats import SourceFormat
from spark_backend.sources.listing.file_order import first_files
from spark_backend.sources.listing.listed_source import ListedSource
from spark_backend.sources.listing.name_patterns import is_hidden
from spark_backend.sources.listing.source_watch import watch_of


@dataclass(frozen=True, slots=True)
class FolderOfFiles:
    """Folders of files of one format; `suffixes`: how the names of its files end, in lower case."""

    suffixes: tuple[str, ...]

    @property
    def plain_suffixes(self) -> tuple[str, ...]:
        """Those of files that are not compressed."""
        return tuple(suffix for suffix in self.suffixes if not suffix.endswith(tuple(COMPRESSIONS)))

    def refuse_unreadable(self, source: ListedSource) -> None:
        """Refuse a folder that has files, but none of the format."""
        files = [file.name for file in source.place.iterdir() if not is_hidden(file.name) and file.is_file()]
        if files and source.pattern is None and not watch_of(source).names():
            raise InputError(
                f"{source.folder}: no file of the source '{source.name}' ends in {' or '.join(self.plain_suffixes)};"
                f" found '{min(files)}'"
            )

    def sample(self, source: ListedSource) -> list[Place]:
        """The files that a new job reads first."""
        return first_files(source)


def _folder_of(*suffixes: str) -> FolderOfFiles:
    """Files with these endings, compressed ones too."""
    return FolderOfFiles(tuple(suffix + packing for suffix in suffixes for packing in ("", *COMPRESSIONS)))


FORMATS: Mapping[str, SourceFormat] = {
    "parquet": _folder_of(".parquet"),
    "csv": _folder_of(".csv", ".tsv"),
    "json": _folder_of(".json", ".jsonl", ".ndjson"),
    "arrow": _folder_of(".arrow", ".feather"),
}
