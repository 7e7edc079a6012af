"""`ensue fmt`: which files it changes, how, and what it tells."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from tests.ensue.command import Done, Run

LOOSE = "inputs{A() within 30.0;} // all\nfind A as a->A:b\n"
NEAT = """inputs {
    A() within 30.0;
} // all
find A as a -> A as b
"""
WRONG = "inputs { A() within 30.0; }\nfind A as -> A as b\n"


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> Path:
    (tmp_path / "loose.query").write_text(LOOSE)
    (tmp_path / "neat.query").write_text(NEAT)
    (tmp_path / "wrong.query").write_text(WRONG)
    return tmp_path


def test_it_changes_what_is_not_laid_out_and_names_it(ensue: Run, files: Path) -> None:
    done = ensue("fmt", "loose.query", "neat.query")
    assert (done.returncode, done.stdout, done.stderr) == (0, "loose.query\n", "")
    assert (files / "loose.query").read_text() == NEAT


def test_what_is_laid_out_is_not_touched(ensue: Run, files: Path) -> None:
    before = (files / "neat.query").stat()
    ensue("fmt", "neat.query")
    after = (files / "neat.query").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_check_changes_nothing_and_names_what_differs(ensue: Run, files: Path) -> None:
    done = ensue("fmt", "--check", "loose.query", "neat.query")
    assert (done.returncode, done.stdout) == (1, "loose.query\n")
    assert (files / "loose.query").read_text() == LOOSE


def test_check_of_what_is_laid_out_is_silent(ensue: Run) -> None:
    done = ensue("fmt", "--check", "neat.query")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_stdout_prints_and_changes_nothing(ensue: Run, files: Path) -> None:
    done = ensue("fmt", "--stdout", "loose.query")
    assert (done.returncode, done.stdout) == (0, NEAT)
    assert (files / "loose.query").read_text() == LOOSE


def test_a_file_with_mistakes_stays_and_the_others_are_laid_out(ensue: Run, files: Path) -> None:
    done = ensue("fmt", "wrong.query", "loose.query")
    assert (done.returncode, done.stdout) == (1, "loose.query\n")
    assert done.stderr.startswith("wrong.query:2:11: syntax: ")
    assert (files / "wrong.query").read_text() == WRONG


def test_a_folder_is_all_its_queries_and_definitions(ensue: Run, files: Path) -> None:
    (files / "wrong.query").unlink()
    (files / "types.mon").write_text("event A { integer n; }\n")
    (files / "notes.txt").write_text("find A")
    assert ensue("fmt", ".").stdout == "loose.query\ntypes.mon\n"


def test_a_missing_file_is_told(ensue: Run) -> None:
    done = ensue("fmt", "none.query")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "none.query: no such file or folder\n")


def test_a_dash_is_standard_input(ensue: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(LOOSE))
    assert ensue("fmt", "-").stdout == NEAT


def test_a_pipe_is_printed_like_standard_input_and_stays_a_pipe(ensue: Run, files: Path) -> None:
    pipe = files / "pipe"
    os.mkfifo(pipe)
    with _written(pipe, LOOSE):
        assert ensue("fmt", "pipe").stdout == NEAT
    assert pipe.is_fifo()
    with _written(pipe, LOOSE):
        assert ensue("fmt", "--check", "pipe") == Done(1, "pipe\n", "")


@contextmanager
def _written(pipe: Path, text: str) -> Iterator[None]:
    """Writes a text into a pipe once, as `<(...)` of a shell does."""
    writer = Thread(target=pipe.write_text, args=(text,))
    writer.start()
    yield
    writer.join()


def test_mistakes_of_standard_input_are_told(ensue: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(WRONG))
    done = ensue("fmt", "-")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("-:2:11: syntax: ")


def test_the_rights_of_a_file_and_a_link_to_it_stay(ensue: Run, files: Path) -> None:
    (files / "loose.query").chmod(0o640)
    (files / "link.query").symlink_to("loose.query")
    ensue("fmt", "link.query")
    assert (files / "link.query").is_symlink()
    assert (files / "loose.query").read_text() == NEAT
    assert (files / "loose.query").stat().st_mode & 0o777 == 0o640


def test_a_write_that_fails_leaves_the_file_and_nothing_else(
    ensue: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copymode", fail)
    done = ensue("fmt", "loose.query")
    assert (done.returncode, done.stderr) == (
        4,
        "loose.query: cannot be written: the disk is full. Make room, or choose another place\n",
    )
    assert (files / "loose.query").read_text() == LOOSE
    assert sorted(path.name for path in files.iterdir()) == ["loose.query", "neat.query", "wrong.query"]


def test_a_folder_is_not_left(ensue: Run, files: Path) -> None:
    (files / "inside").mkdir()
    (files / "inside" / "link.query").symlink_to(files / "loose.query")
    (files / "inside" / "own.query").write_text(LOOSE)
    (files / "inside" / "other.query").symlink_to(files / "inside" / "own.query")
    done = ensue("fmt", "inside")
    assert (files / "loose.query").read_text() == LOOSE
    assert (files / "inside" / "own.query").read_text() == NEAT
    assert (files / "inside" / "other.query").is_symlink()
    assert "link.query" not in done.stdout


def test_mode_owner_and_names_of_a_file_are_kept(ensue: Run, files: Path) -> None:
    (files / "loose.query").chmod(0o640)
    (files / "second.query").hardlink_to(files / "loose.query")
    ensue("fmt", "loose.query")
    assert (files / "second.query").read_text() == NEAT
    found = (files / "loose.query").stat()
    assert (found.st_mode & 0o777, found.st_nlink) == (0o640, 2)
