"""Links of the documents lead somewhere: to a file that git knows, and to a heading of it; and a newcomer finds every page.

Links to other sites are not followed, for the tests run without a network.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.project.repository import ROOT, tracked_files

FENCED = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
SITE = re.compile(r"[a-z]+:", re.IGNORECASE)
DOCUMENTS = [path for path in tracked_files() if path.suffix == ".md"]
PATH = ("README.md", "docs/getting-started.md", "docs/recipes.md", "docs/language.md")
"""The newcomer's: each page is linked from the one before."""


@dataclass(frozen=True, slots=True)
class Link:
    page: Path
    target: str

    @property
    def file(self) -> Path:
        name = self.target.partition("#")[0]
        return Path(os.path.normpath(self.page.parent / name)) if name else self.page

    @property
    def heading(self) -> str:
        return self.target.partition("#")[2]


def links_of(page: Path) -> list[Link]:
    """Links to files and headings; those within code are not links."""
    text = INLINE_CODE.sub("`code`", FENCED.sub("", page.read_text()))
    return [Link(page, target) for target in LINK.findall(text) if not SITE.match(target)]


def headings_of(page: Path) -> set[str]:
    """The names of a page's headings in links, as GitHub makes them; those of equal headings are numbered."""
    names: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", page.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        same = (name, *(f"{name}-{number}" for number in range(1, len(names) + 1)))
        names.add(next(one for one in same if one not in names))
    return names


def fault_of(link: Link, known: set[Path]) -> str | None:
    """What is wrong with a link; None: it leads somewhere."""
    if link.file not in known and not any(path.is_relative_to(link.file) for path in known):
        return f"{link.target}: no such file"
    if link.heading and link.heading not in headings_of(link.file):
        return f"{link.target}: no such heading"
    return None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_link_is_dead(document: Path) -> None:
    known = set(tracked_files())
    assert [fault for link in links_of(document) if (fault := fault_of(link, known))] == []


def test_the_readme_keeps_to_a_screen_and_a_half() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 75


@pytest.mark.parametrize(("page", "after"), list(pairwise(PATH)))
def test_a_newcomer_is_led_to_the_next_page(page: str, after: str) -> None:
    assert ROOT / after in {link.file for link in links_of(ROOT / page)}


@pytest.mark.parametrize("page", [path for path in DOCUMENTS if path.parent.name == "docs"], ids=lambda path: path.name)
def test_a_page_ends_with_what_one_reads_next(page: Path, tmp_path: Path) -> None:
    end = tmp_path / page.name
    end.write_text(page.read_text().rstrip().rpartition("\n\n")[2])
    assert {link.file.name for link in links_of(end)} - {page.name}


def test_every_document_is_found_from_the_readme() -> None:
    reached, new = set(), {ROOT / "README.md"}
    while new:
        reached |= new
        new = {link.file for page in new for link in links_of(page) if link.file.suffix == ".md"} - reached
    assert {path for path in DOCUMENTS if path.parent == ROOT / "docs"} <= reached


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a](page.md)", None),
        ("[a](page.md#one-more-heading-1)", None),
        ("[a](page.md#with-code-and-link)", None),
        ("[![a](page.md)](page.md#heading)", "page.md#heading: no such heading"),
        ("[a](#nothing)", "#nothing: no such heading"),
        ("[a](gone.md)", "gone.md: no such file"),
        ("`[a](gone.md)`", None),
        ("```text\n[a](gone.md)\n```", None),
        ("[a](https://example.org/gone.md)", None),
    ],
)
def test_a_dead_link_would_be_seen(text: str, fault: str | None, tmp_path: Path) -> None:
    linking, page = tmp_path / "linking.md", tmp_path / "page.md"
    linking.write_text(text + "\n")
    page.write_text(
        "# One more: heading\n\n## One more heading\n\n```bash\n# heading\n```\n\n## With `code`, and [link](x)\n"
    )
    faults = [fault_of(link, {linking, page}) for link in links_of(linking)]
    assert [found for found in faults if found] == ([fault] if fault else [])
