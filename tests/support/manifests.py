"""What manifests have, by kind of source."""

from __future__ import annotations

from typing import Any

from spark_backend.sources.folder.listed_source import ListedSource
from spark_backend.sources.folder.pieces import FolderPiece, TakenFile
from spark_backend.sources.kinds import Part
from spark_backend.sources.listing.manifests import Manifest
from spark_backend.sources.listing.tasks import ToldSource


def pieces_of(manifest: Manifest) -> list[Any]:
    return [part.piece for part in manifest.by_source.values()]


def files_in(manifest: Manifest) -> list[TakenFile]:
    return [file for piece in pieces_of(manifest) if isinstance(piece, FolderPiece) for file in piece.files]


def of_files(*sources: ListedSource) -> dict[str, ToldSource]:
    return {source.name: ToldSource("csv", source) for source in sources}


def with_files(number: int, files: tuple[TakenFile, ...], **settings: Any) -> Manifest:
    """A manifest that reads these files of one source."""
    return Manifest(number, {files[0].source: Part("csv", FolderPiece(files=files))}, **settings)
