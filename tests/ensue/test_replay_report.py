"""A replay as one HTML page."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ensue as library
from tests.ensue.command import Run

QUERY = """event A { string k; integer n; }
query Rise { inputs { A() key k within 60.0; } find A as low -> A as high where high.n > low.n { print k; } }
query Both { inputs { A() key k within 60.0; } find every A as a select count() as c }
query Runs { inputs { A() key k within 60.0; } find A as a -> wait(5.0) as t without A as b where b.n > 9 }
"""
ROWS = [
    {"at": 1.0, "k": "<b>x", "n": 1},
    {"at": 2.0, "k": "<b>x", "n": 5},
    {"at": 3.0, "k": "y", "n": 2},
    {"at": 4.0, "k": "y", "n": "many"},
]


class Tags(HTMLParser):
    """The elements that are open; a page closes them all."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.images.append(dict(attrs)["src"] or "")
        elif tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_report_has_everything_and_needs_nothing(tmp_path: Path) -> None:
    result = library.replay(QUERY, ROWS)
    path = result.report(tmp_path / "cards.html")
    page = path.read_text("utf-8")
    tags = Tags(page)
    assert not tags.open
    assert "<b>x" not in page
    assert "&lt;b&gt;x" in page
    for text in ("Matches of Rise", "Matches of Both", "Outputs", "Discarded", "Step by step", "is not a value of"):
        assert text in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    pictures = [ElementTree.fromstring(base64.b64decode(image.partition(",")[2])) for image in tags.images]
    assert len(pictures) == 2 + 3  # matches of queries with members, and each automaton
    shown = ["".join(picture.itertext()) for picture in pictures]
    assert "low" in shown[0]
    assert "1 s" in shown[0]
    assert result.report(path) == path, "a report is replaced"
    assert path.read_text("utf-8") == page


def test_other_files_are_not_replaced(tmp_path: Path) -> None:
    result = library.replay(QUERY, ROWS)
    (tmp_path / "other.html").write_text("<!DOCTYPE html>\nmy own page")
    with pytest.raises(library.InputError, match="is not a report of Ensue, so it is not overwritten"):
        result.report(tmp_path / "other.html")
    with pytest.raises(library.InputError, match=r"a report is an HTML page; write a name such as 'cards.html'"):
        result.report(tmp_path / "cards.csv")
    with pytest.raises(library.InputError, match="cannot be written"):
        result.report(tmp_path / "none" / "cards.html")


def test_the_command_writes_a_report(tmp_path: Path, ensue: Run) -> None:
    (tmp_path / "a.query").write_text(QUERY)
    (tmp_path / "a.csv").write_text("at,k,n\n1,x,1\n2,x,2\n")
    done = ensue("replay", str(tmp_path / "a.query"), str(tmp_path / "a.csv"), "--report", str(tmp_path / "a.html"))
    assert done.returncode == 0
    assert "Matches of Rise" in (tmp_path / "a.html").read_text()
