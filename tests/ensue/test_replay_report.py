"""A replay as one HTML page."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ensue as library
from ensue.asking_why import MOST_FOLDED, MOST_IN_ALL
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


LATE = """@OutOfOrder()
event A { string k; integer n; }
query Rise { inputs { A() key k within 60.0 wait 2.0; } find A as low -> A as high where high.n > low.n }
"""


def folded(page: str) -> list[tuple[str, str]]:
    """The summary and the text of what is folded, without the queries."""
    return re.findall(r"<details><summary>([^<]*)</summary><pre>(.*?)</pre></details>", page, re.DOTALL)


def test_each_match_and_each_discarded_row_says_why(tmp_path: Path) -> None:
    rows = [
        {"at": 1.0, "ts": 1.0, "k": "<i>", "n": 1},
        {"at": 2.0, "ts": 2.0, "k": "<i>", "n": 5},
        {"at": 9.0, "ts": 3.0, "k": "<i>", "n": 7},
    ]
    result = library.replay(LATE, rows)
    page = result.report(tmp_path / "late.html").read_text("utf-8")
    assert not Tags(page).open
    (match, why_match), (row, why_row) = folded(page)
    match_id = result.match_objects()[0]["match_id"]
    assert match == f"00:00:02 · k &lt;i&gt; · {match_id}"
    assert "where high.n &gt; low.n: high.n is 5, low.n is 1" in why_match
    assert row == "row 3 · late · Rise"
    assert "the least change, which was tried: wait 2 seconds -&gt; wait 6 seconds" in why_row
    assert str(result.why(match=match_id)).splitlines()[-1].strip() in why_match.replace("&gt;", ">")


def test_explanations_are_bounded_and_the_page_says_so(tmp_path: Path) -> None:
    rows = [{"at": float(at), "ts": float(at), "k": "x", "n": at} for at in range(1, 60)]
    rows += [{"at": 60.0 + at, "ts": float(at), "k": "x", "n": at} for at in range(30)]
    result = library.replay(LATE, rows)
    page = result.report(tmp_path / "many.html").read_text("utf-8")
    assert len(folded(page)) == MOST_FOLDED * 2
    assert f"<p>and {len(result) - MOST_FOLDED} more: <code>ensue why --match ID</code>" in page
    assert f"<p>and {30 - MOST_FOLDED} more: <code>ensue why --match ID</code>" in page


def test_the_matches_of_many_queries_are_bounded_together(tmp_path: Path) -> None:
    event, query = LATE.split("query Rise")
    text = event + "".join(f"query Q{number}{query}" for number in range(7))
    rows = [{"at": float(at), "ts": float(at), "k": "x", "n": at} for at in range(1, 30)]
    page = library.replay(text, rows).report(tmp_path / "many.html").read_text("utf-8")
    assert len(folded(page)) == MOST_IN_ALL < 7 * MOST_FOLDED
    assert page.count("more: <code>ensue why --match ID</code>") == 7
