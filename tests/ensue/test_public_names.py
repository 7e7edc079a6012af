"""The public names: what `help` begins with, their documentation, their types."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ensue
from tests.project.repository import ROOT

FUNCTIONS = [name for name in ensue.__all__ if inspect.isfunction(getattr(ensue, name))]


def test_help_begins_with_what_users_call() -> None:
    lines = pydoc.plain(pydoc.render_doc(ensue)).splitlines()
    begin = "\n".join(lines[:25])
    for name in FUNCTIONS:
        assert f"ensue.{name}(" in begin


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_of_a_public_function_is_explained(name: str) -> None:
    function = getattr(ensue, name)
    text = inspect.getdoc(function) or ""
    explained = {name for names in re.findall(r"^([\w, ]+):", text, re.MULTILINE) for name in names.split(", ")}
    for argument in inspect.signature(function).parameters:
        assert argument in explained or argument in ("path", "source", "queries"), argument
    assert "Raises" in text
    assert not text.startswith(" ")


def test_every_public_name_has_an_example_on_its_page() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    missing = [name for name in ensue.__all__ if f"ensue.{name}" not in page]
    assert missing == []


def mypy(path: Path) -> str:
    """What mypy prints about a file, by the rules of this project: all of `--strict`, and what `make lint` knows."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_mypy_finds_the_types_of_what_users_write(tmp_path: Path) -> None:
    """As for an installed package: the sources are on the path, and only `py.typed` says they have types."""
    example = tmp_path / "example.py"
    example.write_text((Path(__file__).parent / "typed_example.py").read_text() + "\nreveal_type(ensue.match)\n")
    told = mypy(example)
    notes = [line for line in told.splitlines() if ": error:" in line]
    assert notes == [], told
    assert "pyspark.sql" in told
    assert "DataFrame" in told


def test_mypy_refuses_a_keyword_that_there_is_not_and_a_value_of_another_type(tmp_path: Path) -> None:
    lines = ['ensue.replay("q", "t", arrivals="x")', 'ensue.open("q", csv="delimiter=;", time_unit=5)']
    (tmp_path / "wrong.py").write_text("\n".join(["import ensue", *lines]))
    told = mypy(tmp_path / "wrong.py")
    found = [line.partition("error: ")[2] for line in told.splitlines() if "error: " in line]
    assert found == [
        'Unexpected keyword argument "arrivals" for "replay"; did you mean "arrival"?  [call-arg]',
        'Argument "time_unit" to "open" has incompatible type "int"; expected "str | None"  [arg-type]',
    ]
