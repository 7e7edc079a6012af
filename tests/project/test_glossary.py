"""The glossary defines each term once, and only terms that the documents or the code use."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.project.repository import PACKAGES, ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"


def terms() -> list[str]:
    """The first column of every table; a cell may hold several terms."""
    cells = re.findall(r"^\| (.+?) \|", GLOSSARY.read_text(), re.MULTILINE)
    return [term for cell in cells if cell not in {"term", "---"} for term in cell.split(", ")]


@cache
def everything() -> str:
    """All documents but the glossary, and all modules of the packages, in lower case."""
    documents = [path for path in sorted((ROOT / "docs").glob("*.md")) if path != GLOSSARY]
    modules = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return "\n".join(path.read_text().lower() for path in (*documents, *modules, ROOT / "README.md"))


def is_used(term: str, text: str) -> bool:
    words = r"[\s_#-]+".join(map(re.escape, re.split(r"[\s-]", term.lower())))
    return re.search(rf"(?:\b|_){words}", text) is not None


def test_every_term_is_defined_once() -> None:
    assert len(terms()) > 30
    assert sorted(term for term in set(terms()) if terms().count(term) > 1) == []


@pytest.mark.parametrize("term", terms())
def test_every_term_is_used(term: str) -> None:
    assert is_used(term, everything())


def test_a_term_that_nobody_uses_is_noticed() -> None:
    assert is_used("held event", "two held\nevents")
    assert not is_used("held event", "events are held")
