"""Legal texts, `legal.cases`: each compiles, and its layout says the same and is its own layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from querylang import compile_text, format_text
from querylang.errors import QueryErrors
from querylang.source import Source
from querylang.syntax.parser import parse


def read_cases() -> dict[str, str]:
    """The texts by name, with the event types that they share."""
    written = (Path(__file__).parent / "legal.cases").read_text(encoding="utf-8")
    parts = dict(part.split("\n", 1) for part in written.split("\n=== ")[1:])
    events = parts.pop("events")
    return {
        name: text + events if text.startswith(("using", "package")) else events + text for name, text in parts.items()
    }


CASES = read_cases()


@pytest.mark.parametrize("name", CASES)
def test_a_legal_text_compiles(name: str) -> None:
    compile_text(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_its_layout_says_the_same(name: str) -> None:
    laid_out = format_text(CASES[name], name)
    assert format_text(laid_out, name) == laid_out
    before, after = (parse(Source(name, text)) for text in (CASES[name], laid_out))
    assert (before[0], after[1]) == (after[0], [])


def test_a_text_that_is_not_legal_is_noticed() -> None:
    with pytest.raises(QueryErrors):
        compile_text(CASES["chain"].replace("C as c", "D as c"))
