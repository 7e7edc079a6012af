"""The progress of `ensue replay` on terminals: a line while it reads, and one while it replays."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from ensue import embedded
from ensue.commands.replay import ReplayProgress
from ensue.data_options import DataOptions

QUERY = "event A { integer id; }\nquery Q { inputs { A() within 9.0; } find A as a -> A as b }"


class Terminal(io.StringIO):
    """What a terminal shows."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def replayed(tmp_path: Path) -> list[Path]:
    """The query, and a table of 2,000 rows."""
    paths = [tmp_path / "q.query", tmp_path / "a.csv"]
    paths[0].write_text(QUERY, encoding="utf-8")
    paths[1].write_text("at,event,id\n" + "".join(f"{row},A,{row}\n" for row in range(2_000)), encoding="utf-8")
    return paths


def test_rows_rate_and_time_left_are_shown_and_removed(replayed: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with ReplayProgress(replayed[1:]) as progress:
        progress.update("reading", 500)
        progress.update("replay", 1_000)
    reading, replay = [line for line in terminal.getvalue().split("\r") if line.strip()]
    assert reading.startswith(" 25% [####")
    assert " reading: 500 rows, " in reading
    assert replay.startswith(" 50% [##########")
    assert " replay: 1,000 rows, " in replay
    assert all(" rows/s, " in line and line.rstrip().endswith(" left") for line in (reading, replay))
    assert not terminal.getvalue().split("\r")[-2].strip()


def test_both_parts_are_told(replayed: list[Path]) -> None:
    told: list[tuple[str, int]] = []
    embedded.replay(*replayed, DataOptions(), progress=lambda what, rows: told.append((what, rows)))
    assert told == [("reading", 2_000), ("replay", 2_000)]


def test_nothing_is_shown_where_nobody_watches(replayed: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    with ReplayProgress(replayed[1:]) as progress:
        progress.update("reading", 500)
    assert capsys.readouterr().err == ""
