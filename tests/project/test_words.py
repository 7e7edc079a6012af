"""The repository is in plain English and in the words of `docs/glossary.md`: phrases to avoid, and what to write instead.

Checked are the documents, all docstrings and comments, and the messages of the packages; not code and inline code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.project.repository import PACKAGES, ROOT
from tests.support.prose import Passage, messages_of, passages_of

EACH = (
    "key|row|record|timeline|group|query|batch|micro-batch|bucket|input|source|partition|file|term|call|step|task|type"
)
AMOUNT = "one|two|half|once|twice|entry|number|rows?|columns?|lines?|steps?|files|bytes?|ns|ms"

AVOID = {
    r"(?<!there )\b(?:is|are|was|were) no\b(?! (?:longer|more|later|earlier|older|newer|larger|smaller)\b)": "is not a",
    r"(?<!there )\b(?:is|are|was|were) (?-i:none)\b": "is not one",
    rf"\b(?:{AMOUNT}) an? (?:{EACH})\b(?! (?:of|is|has|was)\b)": "per",
    r"\b(?:its|their) turns?\b": "releasable",
    r"\bshel(?:f|ves)\b": "cold store",
    r"\b(?:that|which) rests?\b|\bresting\b": "idle; of keys: cold",
    r"\blessons?\b": "dead ends",
    r"\b(?:is|are|was) over\b(?! (?:an?|all|the|terms|parameters|\d))": "has ended, has expired",
    r"\b(?:comes?|brings?|brought) to hand\b": "load",
    r"\btold\b(?! (?:apart|otherwise)\b)": "reported",
    r"\b(?:lets?|letting) go\b": "release",
    r"\bgo(?:es|ing)? on\b": "continue; of time: advance",
    r"\b(?:is|are) gone\b": "explored; evicted",
    r"\bha(?:s|ve|d) come (?:to|that far)\b": "has reached",
    r"\bhow far [^.;:]{0,40}\bha(?:s|ve|d) come\b": "the progress of",
    r"\bstands? (?:in(?! for)|there|here|at|beside|above|behind|twice)\b": "is in, is written, follows",
    r"\bquiet\b": "idle",
    r"\bheard\b": "seen, has reported",
    r"\bremembered\b": "stored",
    r"\bforget(?:s|ting)? (?:events?|windows?)\b|\bmay be forgotten\b": "evict; keys are forgotten",
    r"\bripe\b": "due",
    r"\bbeats?\b": "heartbeat",
    r"\bTakes\b[^.]*; (?:\w+ )?gives\b": "what it is for",
}
"""Each phrase, and what to write instead. Only phrases that are hardly ever right are here."""

PHRASES = {re.compile(phrase, re.IGNORECASE): instead for phrase, instead in AVOID.items()}

LONGEST = 100
"""Columns of a line of a docstring, or of a comment on a line of its own."""

WIDEST = 120
"""Columns of a line of prose in the documents."""


@dataclass(frozen=True, slots=True, order=True)
class Offender:
    place: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.place}:{self.line}: {self.what}"


def documents() -> list[Path]:
    return [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def wide_lines(text: str) -> Iterator[int]:
    """Numbers of lines that are too wide, if they could be broken: code, tables and single words cannot."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        opened = re.match(r" *(```|~~~)", line)
        if fence or opened:
            fence = "" if line.strip() == fence else fence or (opened[1] if opened else "")
        elif len(line) > WIDEST and not line.startswith("|") and len(re.findall(r"`[^`]*`|[^\s`]+", line)) > 3:
            yield number


def modules() -> list[Path]:
    """All but the parser's tables, which are generated."""
    folders = (*PACKAGES, "tests", "benchmarks", "tools")
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if path.name != "parsetab.py"]


def offenders_of(path: Path) -> list[Offender]:
    """Phrases everywhere; messages and long lines in the packages only."""
    place, passages = path.relative_to(ROOT), passages_of(path)
    checked = [*passages, *(messages_of(path) if place.parts[0] in PACKAGES else ())]
    whole = "\n.\n".join(passage.text for passage in checked)  # hardly a file has one: look at all of it first
    if any(phrase.search(whole) for phrase in PHRASES):
        found = [offender for passage in checked for offender in phrases_to_avoid(str(place), passage)]
    else:
        found = []
    if place.parts[0] in PACKAGES:
        found += [offender for passage in passages for offender in long_lines(str(place), passage)]
    return sorted(found)


def phrases_to_avoid(place: str, passage: Passage) -> Iterator[Offender]:
    for phrase, instead in PHRASES.items():
        for found in phrase.finditer(passage.text):
            yield Offender(place, passage.line_at(found.start()), f"“{found[0]}”: write “{instead}”")


def long_lines(place: str, passage: Passage) -> Iterator[Offender]:
    for number, width in enumerate(passage.widths, passage.line):
        if width > LONGEST:
            yield Offender(place, number, f"{width} columns: write at most {LONGEST}")


def test_docstrings_comments_and_documents_are_plain_english() -> None:
    found = [str(offender) for path in (*documents(), *modules()) for offender in offenders_of(path)]
    if found:
        pytest.fail("\n".join([f"{len(found)} phrases to avoid", *found]), pytrace=False)


@pytest.mark.parametrize("path", [*documents(), ROOT / "CHANGELOG.md"], ids=lambda path: path.name)
def test_lines_of_documents_have_at_most_120_columns(path: Path) -> None:
    assert list(wide_lines(path.read_text())) == []


def test_wide_lines_are_those_that_could_be_broken() -> None:
    prose, code = "word " * 30, "`" + "x" * 130 + "`"
    assert list(wide_lines(f"{prose}\n```text\n{prose}\n```\n| {prose} |\n- {code}.\n{prose}")) == [1, 7]


MODULE = '''"""Rows of keys that
rest: a cell that is no number is none. The rest is over the keys; there is no other, it is no longer."""
LIMIT = 9  # one row a key
# What is "is no type" in code: `is no type`.
'''


def test_phrases_are_found_in_docstrings_and_comments_and_across_lines(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    found = [str(offender) for passage in passages_of(path) for offender in phrases_to_avoid("m", passage)]
    assert found == [
        "m:2: “is no”: write “is not a”",
        "m:2: “is none”: write “is not one”",
        "m:1: “that rest”: write “idle; of keys: cold”",
        "m:3: “row a key”: write “per”",
        "m:4: “is no”: write “is not a”",
    ]


def test_phrases_are_found_in_documents_outside_of_code(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# A page\n\n```text\ntime goes on\n```\n\nWith `goes on` time\ngoes on.\n")
    found = [str(offender) for passage in passages_of(path) for offender in phrases_to_avoid("p", passage)]
    assert found == ["p:8: “goes on”: write “continue; of time: advance”"]


def test_phrases_are_found_in_messages(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""It is no docstring."""\nlimit = 3\nraise ValueError(f"{limit} is no type")\n')
    found = [str(offender) for message in messages_of(path) for offender in phrases_to_avoid("m", message)]
    assert found == ["m:3: “is no”: write “is not a”"]


def test_long_lines_are_those_of_docstrings_and_comments(tmp_path: Path) -> None:
    long = "x" * LONGEST
    path = tmp_path / "module.py"
    path.write_text(f'"""Short.\n\n{long}y"""\nCODE = "{long}"  # {long}\n# {long}\n')
    found = [offender.line for passage in passages_of(path) for offender in long_lines("m", passage)]
    assert found == [3, 5]
