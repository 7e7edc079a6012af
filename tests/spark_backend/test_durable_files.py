"""Files that are written whole: the old content or the new one, and the folder is synced after the rename."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_backend.durable_files import write_durably


def test_a_file_is_synced_then_renamed_then_its_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    rename = Path.replace

    def synced(handle: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name}")

    def renamed(self: Path, target: Path) -> Path:
        steps.append(f"rename to {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write_durably(tmp_path / "a.json", "1")
    assert steps == ["sync .a.json.draft", "rename to a.json", f"sync {tmp_path.name}"]
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a.json", "1")]
