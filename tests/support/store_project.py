"""A project whose sources and sinks are in a store."""

from __future__ import annotations

from pathlib import Path

from tests.support.sensors import add_files, project, streamed, table
from tests.support.stores import StoreServer


def store_project(folder: Path, store: StoreServer, files: int = 6) -> Path:
    """The files of a project in the store, below an odd name; its checkpoint is on the disk."""
    path = project(folder, files=1)
    add_files(folder, table(), files)
    store.put_folder(folder / "data", "in %/ü #1")
    text = path.read_text().replace("path: data", "path: 's3://bucket/in %/ü #1'")
    path.write_text(
        text.replace("path: out/", "path: s3://bucket/out/").replace("path: control", "path: s3a://bucket/control")
    )
    return path


def results(folder: Path, store: StoreServer) -> dict[str, list[str]]:
    store.fetch_folder("out", folder / "out")
    return streamed(folder)
