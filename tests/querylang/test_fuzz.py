"""No text raises anything but the language's own errors: mutations of good and bad texts, from a fixed seed.

ENSUE_MUTATIONS: how many texts. Each is checked as a whole, sometimes with another as the definitions beside it;
what is legal is formatted too.
"""

from __future__ import annotations

import os
import random
import re
import time
from functools import cache
from pathlib import Path

from querylang import QueryErrors, Source, check_text, compile_text
from querylang.formatter.formatting import format_text
from querylang.syntax.lexer import KEYWORDS, SYMBOLS
from querylang.syntax.parser import parse
from tests.support.pace import measured
from tests.support.texts import Texts

HERE = Path(__file__).parent
LONGEST = 2.0
"""Seconds of processor time that one text may take."""


@cache
def corpus() -> list[str]:
    """Legal files of every construct, written by hand and drawn at random, and the texts of the error cases."""
    cases = [
        re.sub(r"^//~.*\n", "", path.read_text(), flags=re.MULTILINE) for path in sorted(HERE.glob("errors/*.cases"))
    ]
    parts = [part for text in cases for part in re.split(r"^// case: .*\n", text, flags=re.MULTILINE) if part]
    written = [path.read_text() for path in sorted(HERE.glob("formatter/fmt/*"))]
    drawn = [Texts(random.Random(seed), size=2).text() for seed in range(60)]
    return [*parts, *written, *[text for text in drawn if len(text) < 3000]]


PARTS = re.compile(r"\w+|\s+|.", re.DOTALL)
WORDS = (
    *KEYWORDS,
    *SYMBOLS,
    *(
        "a",
        "A",
        "3",
        "1.5",
        "1.5d",
        '"x"',
        "#day",
        "/*",
        "*/",
        "//",
        '"',
        "\\",
        "\x00",
        "é",
        "\n",
        " ",
        "minutes",
        "self",
    ),
)
CHARACTERS = " \n\t\"'\\/*#.,:;(){}[]<>=+-%@_aZ0é\u00a0\ufeff\U0001f600"


def mutated(random_: random.Random) -> str:
    """A text with a few characters, words or lines dropped, doubled, swapped or replaced, or with its end cut off."""
    text = random_.choice(corpus())
    match random_.randrange(8):
        case 0 | 1:
            parts, fresh = list(text), CHARACTERS
        case 2 | 3:
            parts, fresh = text.splitlines(keepends=True), random_.choice(corpus()).splitlines(keepends=True) or ["\n"]
        case _:
            parts, fresh = PARTS.findall(text), WORDS
    for _ in range(random_.choice((1, 1, 2, 3, 8))):
        _change(parts, fresh, random_)
    return "".join(parts)


def _change(parts: list[str], fresh: tuple[str, ...] | list[str] | str, random_: random.Random) -> None:
    at = random_.randrange(len(parts)) if parts else 0
    match random_.randrange(6):
        case 0:
            del parts[at : at + random_.randrange(1, 4)]
        case 1:
            parts[at:at] = parts[at : at + random_.randrange(1, 6)]
        case 2:
            parts.insert(at, random_.choice(fresh))
        case 3:
            parts[at : at + 1] = [random_.choice(fresh)]
        case 4:
            other = random_.randrange(len(parts)) if parts else 0
            parts[at : at + 1], parts[other : other + 1] = parts[other : other + 1], parts[at : at + 1]
        case 5 if random_.random() < 0.2:
            del parts[at:]
        case _:
            parts.append(random_.choice(fresh))


def outcome(text: str, definitions: list[Source], random_: random.Random) -> QueryErrors | None:
    """The mistakes of the text, None if it has none."""
    try:
        (compile_text if random_.random() < 0.5 else check_text)(text, definitions=definitions)
    except QueryErrors as found:
        return found
    format_text(text)
    return None


@cache
def check_all() -> tuple[float, str]:
    """Checks every text; the seconds of the slowest, and this text."""
    random_, slowest = random.Random(7), (0.0, "")
    for _ in range(int(os.environ.get("ENSUE_MUTATIONS", "8000"))):
        text = mutated(random_)
        definitions = [Source("beside.mon", mutated(random_))] if random_.random() < 0.1 else []
        start = time.process_time()
        try:
            found = outcome(text, definitions, random_)
        except BaseException as error:
            raise AssertionError(f"{error!r} for the text:\n{text}") from error
        slowest = max(slowest, (time.process_time() - start, text))
        for error in () if found is None else found.errors:
            span = error.span
            assert 0 <= span.start <= span.end <= len(span.source.text), f"{error.message}: {text}"
            assert span.source.text in {text, *(source.text for source in definitions)}
        assert found is None or (found.errors and str(found)), text
    return slowest


def test_no_text_raises_anything_but_query_errors() -> None:
    check_all()


def test_no_text_takes_long() -> None:
    """The one that seemed slowest is tried again: it may have been interrupted."""
    _, text = check_all()
    with measured() as used:
        outcome(text, [], random.Random(7))
    assert used.seconds < LONGEST, text


def test_the_corpus_has_legal_texts_and_others() -> None:
    legal = [text for text in corpus() if not parse(Source("x", text))[1]]
    assert len(legal) >= 200
    assert len(corpus()) - len(legal) >= 30
