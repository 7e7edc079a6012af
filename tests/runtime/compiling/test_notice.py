"""The line that tells that kernels are being compiled."""

from __future__ import annotations

import io

import pytest

from runtime import progress_line
from runtime.progress_line import ONCE, compiling, tell_on


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _silent_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "_told", progress_line._Told())


def _compile_twice() -> None:
    for _ in range(2):
        with compiling("search", 2), compiling("look_ahead", 1):
            pass


def test_elsewhere_than_on_a_terminal_it_is_said_once() -> None:
    out = io.StringIO()
    tell_on(out)
    _compile_twice()
    assert out.getvalue() == f"{ONCE}\n"


def test_a_terminal_shows_a_bar_per_kernel_and_nothing_remains() -> None:
    terminal = Terminal()
    tell_on(terminal)
    _compile_twice()
    shown = terminal.getvalue().split("\r")
    assert len([line for line in shown if "compiling search for this machine, once: 0 functions" in line]) == 2
    assert terminal.getvalue().endswith("\r")


def test_where_no_place_is_named_the_logger_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    _compile_twice()
    assert caplog.messages == [ONCE]


def test_nothing_is_said_behind_the_end_of_a_command() -> None:
    out = io.StringIO()
    tell_on(out)
    out.close()
    _compile_twice()
