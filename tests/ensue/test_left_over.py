"""A replay to a file removes what one that was killed has left, and nothing that is needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ensue.replay_to_file import held, remove_left_over


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for name in (".m.csv.12.draft", ".m.csv.12.draft.bak", ".other.csv.12.draft", "m.csv.12.draft", ".m.csv.13.draft"):
        (tmp_path / name).write_text("half of the matches")
    (tmp_path / ".m.csv.abc.runs").mkdir()
    (tmp_path / ".m.csv.abc.runs" / "0.arrow").write_text("a run")
    for place in tmp_path.iterdir():
        os.utime(place, (0, 0))
    (tmp_path / ".m.csv.14.draft").write_text("just begun")
    return tmp_path / "m.csv"


def names(out: Path) -> set[str]:
    return {place.name for place in out.parent.iterdir()}


def test_what_is_left_is_removed(out: Path) -> None:
    before = names(out)
    remove_left_over(out)
    assert before - names(out) == {".m.csv.12.draft", ".m.csv.13.draft", ".m.csv.abc.runs"}


def test_what_another_process_needs_is_kept(out: Path) -> None:
    with held(out.parent / ".m.csv.13.draft"), held(out.parent / ".m.csv.abc.runs"):
        remove_left_over(out)
    assert {".m.csv.13.draft", ".m.csv.abc.runs"} <= names(out)
