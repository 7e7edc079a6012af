"""What the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ensue.command import Run, runner


@pytest.fixture
def ensue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in the test's own folder."""
    monkeypatch.chdir(tmp_path)
    return runner(monkeypatch, capsys)
