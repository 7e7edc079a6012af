"""A store that is away for a moment says nothing about the files in it: none is called damaged, and none is passed over."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from job_engine.delta_log import last_checkpoint
from job_engine.deployment import Deployment
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.job_folder import BatchFiles
from job_engine.job.history.read_again import read_mark
from job_engine.job.preflight import refuse_damaged_logs
from job_engine.job.written_journal import read_files, read_journal
from job_engine.setting_keys import Engine
from job_engine.sources.folder.after_reading import SettledFile
from job_engine.sources.listing.batch_log import job_notes
from job_engine.sources.listing.command_folder import CommandFolder
from job_engine.sources.listing.manifests import ManifestFolder, load_list

READS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a command": (f"ensue/commands/{7:020d}.json", lambda folder: CommandFolder(folder).read(7)),
    "totals": ("0000000001.json", lambda folder: BatchFiles(folder).latest()),
    "the record": ("ensue.json", read_record),
    "the list": ("read.json", lambda folder: load_list(folder / "read.json", ManifestFolder(folder), 1)),
    "what is archived": ("settled.json", lambda folder: SettledFile(folder / "settled.json").read()),
    "a manifest": (f"{1:010d}.json", lambda folder: ManifestFolder(folder).read(1)),
    "notes": ("ensue/progress/0000000001.json", job_notes),
    "a log of Delta": ("_delta_log/_last_checkpoint", last_checkpoint),
    "a log of Spark": ("offsets/0", lambda checkpoint: refuse_damaged_logs(checkpoint, Engine.SPARK)),
    "the mark of a history": ("mark.json", read_mark),
    "the journal": ("ensue/program.json", lambda folder: read_journal(_deployment(folder))),
    "texts of files": ("ensue/files.json", lambda folder: read_files(_deployment(folder))),
}


def _deployment(checkpoint: Path) -> Deployment:
    return cast("Deployment", SimpleNamespace(checkpoint=checkpoint, value_of=None))


@pytest.mark.parametrize("name", READS)
def test_what_cannot_be_reached_is_not_called_damaged(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = READS[name]
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("{}")

    read_text, open_file = Path.read_text, os.open

    def refuse(path: object) -> None:
        if path == tmp_path / file:
            raise ConnectionError(5, "the store cannot be reached", str(path))

    def text_away(path: Path, *arguments: str) -> str:
        refuse(path)
        return read_text(path, *arguments)

    def away(path: Path, *arguments: int) -> int:
        refuse(path)
        return open_file(path, *arguments)

    monkeypatch.setattr(Path, "read_text", text_away)
    monkeypatch.setattr("runtime.json_reader.os.open", away)
    with pytest.raises(ConnectionError, match="the store cannot be reached"):
        read(tmp_path)
