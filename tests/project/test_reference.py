"""The reference says what the tables say: every code with an example that causes it, every table as it is now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tools import command_line, deployment_keys, reference
from tools.reference import DOCS, Entry

ENTRIES = reference.entries()


def test_every_code_has_an_example_and_a_way_out() -> None:
    assert sorted(reference.catalogue().keys() - reference.examples().keys()) == []


def test_every_example_is_of_a_code_that_there_is() -> None:
    assert sorted(reference.examples().keys() - reference.catalogue().keys()) == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.code)
def test_an_example_causes_its_code_and_no_other(entry: Entry) -> None:
    errors, warnings = entry.reported(entry.example)
    assert {error.code for error in (*errors, *warnings)} == {entry.code}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.code)
def test_a_mended_example_has_neither_mistakes_nor_warnings(entry: Entry) -> None:
    assert entry.reported(entry.mended) == ((), ())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.code)
def test_a_way_out_is_a_sentence(entry: Entry) -> None:
    assert entry.way_out[0].isupper() or entry.way_out[0] in "`@"
    assert entry.way_out.strip().endswith((".", "`"))


@pytest.fixture(scope="module")
def pages() -> Mapping[Path, str]:
    """Every page with what the tables say."""
    return reference.pages()


@pytest.mark.parametrize(
    "path",
    [DOCS / f"{name}.md" for name in ("errors", "language", "python", "cli", "deployment")],
    ids=lambda path: path.name,
)
def test_a_page_is_what_the_tables_say(path: Path, pages: Mapping[Path, str]) -> None:
    assert path.read_text() == pages[path], "run `make docs`"


def test_every_table_stands_in_the_reference() -> None:
    text = (DOCS / "language.md").read_text() + (DOCS / "python.md").read_text()
    assert [name for name in reference.TABLES if f"<!-- table: {name} -->" not in text] == []


def test_every_command_and_option_has_an_example() -> None:
    names = [
        (name, item.opts[0])
        for name, command in command_line.commands().items()
        for item in command_line.options(command)
    ]
    missing = [(name, option) for name, option in names if option not in (command_line.example_of(name, option) or "")]
    assert missing == []
    assert [name for name in command_line.commands() if not command_line.example_of(name, "")] == []


def test_every_example_is_of_an_option_that_there_is() -> None:
    commands = command_line.commands()
    known = {
        name: {"", *(item.opts[0] for item in command_line.options(command))} for name, command in commands.items()
    }
    assert [
        (name, option)
        for name, given in command_line.examples().items()
        for option in given
        if option not in known[name]
    ] == []


def test_every_key_of_a_deployment_file_has_a_line_and_no_other() -> None:
    said = {group: set(keys) for group, keys in deployment_keys.said().items()}
    assert said == {group: set(keys) for group, keys in deployment_keys.KEYS.items()}


def test_every_example_of_a_key_names_it() -> None:
    lines = [(key, line) for keys in deployment_keys.said().values() for key, line in keys.items()]
    assert [key for key, line in lines if len(line) != 4 or not line[2].startswith(f"{key}: ")] == []
