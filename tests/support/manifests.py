"""What manifests have, by kind of source."""

from __future__ import annotations

from typing import Any

from job_engine.sources.folder.pieces import FolderPiece, TakenFile
from job_engine.sources.folder.settings import ListedSource
from job_engine.sources.kinds import Part
from job_engine.sources.listing.manifests import Manifest, ToldSource


def pieces_of(manifest: Manifest) -> list[Any]:
    return [part.piece for part in manifest.by_source.values()]


def files_in(manifest: Manifest) -> list[TakenFile]:
    return [file for piece in pieces_of(manifest) if isinstance(piece, FolderPiece) for file in piece.files]


def of_files(*sources: ListedSource) -> dict[str, ToldSource]:
    return {source.name: ToldSource("csv", source) for source in sources}


def with_files(number: int, files: tuple[TakenFile, ...], **settings: Any) -> Manifest:
    """A manifest that reads these files of one source."""
    return Manifest(number, {files[0].source: Part("csv", FolderPiece(files=files))}, **settings)
