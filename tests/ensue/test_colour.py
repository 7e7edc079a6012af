"""Colour: for people at terminals who have not refused it."""

from __future__ import annotations

import io
import re

import pytest

from ensue.commands.common import coloured, wants_colour

TEXT = """cards.query:4:9: unknown-name: 'w3' is not a name of this pattern
  4 |   where w3.country != w1.country
    |         ^^"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_gets_colour_unless_it_is_refused(environment: dict[str, str], wanted: bool) -> None:
    assert wants_colour(Terminal(), environment) is wanted


def test_a_file_gets_none() -> None:
    assert not wants_colour(io.StringIO(), {})


def test_place_code_and_carets_are_coloured_and_nothing_else() -> None:
    assert coloured(TEXT) == (
        "\x1b[1mcards.query:4:9\x1b[0m: \x1b[31munknown-name: \x1b[0m'w3' is not a name of this pattern\n"
        "  4 |   where w3.country != w1.country\n"
        "    |         \x1b[31m^^\x1b[0m"
    )


@pytest.mark.parametrize(
    "text",
    [TEXT, f"warning: {TEXT}", "run.yaml:7: 'sinks' is missing", "none.csv: no such file", "4 rows, 1 match", "a ^ b"],
)
def test_the_words_stay_as_they_are(text: str) -> None:
    assert re.sub(r"\x1b\[\d+m", "", coloured(text)) == text


def test_a_warning_is_yellow() -> None:
    assert coloured(f"warning: {TEXT}").count("\x1b[33m") == 3
    assert "\x1b[31m" not in coloured(f"warning: {TEXT}")
