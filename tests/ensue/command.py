"""A command of the command line, run in this process: for the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ensue import cli


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


def runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in the current folder."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["ensue", *arguments])
        code: int | str | None = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        assert isinstance(code, int | None)
        return Done(code or 0, *capsys.readouterr())

    return run
