"""The progress line: what it shows, and when."""

from __future__ import annotations

import io

import pytest

from runtime.progress_line import ProgressLine, duration_text


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def lines(terminal: io.StringIO) -> list[str]:
    return [line.rstrip() for line in terminal.getvalue().split("\r") if line.strip()]


def test_it_shows_share_count_rate_and_time_left() -> None:
    now, terminal = iter([0.0, 10.0]), Terminal()
    ProgressLine(terminal, "replay", "rows", 4_000, clock=lambda: next(now)).update(1_000)
    assert lines(terminal) == [" 25% [######                  ] replay: 1,000 rows, 100 rows/s, 30 s left"]


def test_without_a_total_it_shows_no_share() -> None:
    now, terminal = iter([0.0, 10.0]), Terminal()
    ProgressLine(terminal, "replay", "rows", clock=lambda: next(now)).update(1_000)
    assert lines(terminal) == ["replay: 1,000 rows, 100 rows/s"]


def test_it_is_written_ten_times_a_second_at_most_and_removed_at_the_end() -> None:
    now, terminal = iter([0.0, 1.0, 1.05, 1.2]), Terminal()
    line = ProgressLine(terminal, "replay", "rows", clock=lambda: next(now))
    for done in (1, 2, 3):
        line.update(done)
    assert [text.split()[1] for text in lines(terminal)] == ["1", "3"]
    line.close()
    assert terminal.getvalue().endswith(" \r")


def test_nothing_is_written_to_a_file() -> None:
    file = io.StringIO()
    line = ProgressLine(file, "replay", "rows", 10)
    line.update(5)
    line.close()
    assert file.getvalue() == ""


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0 s"), (125, "2 min 05 s"), (11_100, "3 h 05 min")])
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
