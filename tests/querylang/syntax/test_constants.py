"""Long lists of constants: their tokens, and texts that are checked again."""

from __future__ import annotations

from random import Random

import pytest

import querylang
from querylang.errors import QueryErrors
from querylang.source import Source
from querylang.syntax import lexer
from querylang.syntax.lexer import tokenize


def test_constants_of_lists_are_read_as_all_tokens_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers and strings with a comma behind them are found by one expression, wherever they are."""
    random = Random(3)
    parts = ["1", "12", " 0x1F", "1.5", "3d", '"a"', '"a\\n"', '"x y"', ",", " , ", "[", "(", "]", "name", "\n", "'q'"]
    parts += ["1e5", ".5", "-", "// c\n", '"un', "/*c*/", "1,", '"z",', "5 ,", '"\ud800",', "007,", ".", "b.,"]
    texts = ["".join(random.choice(parts) for _ in range(random.randrange(1, 14))) for _ in range(3000)]

    def read(text: str) -> object:
        found = tokenize(Source("x", text))
        return found.tokens, found.comments, [str(mistake) for mistake in found.mistakes]

    fast = [read(text) for text in texts]
    monkeypatch.setattr(lexer, "_BEFORE_CONSTANTS", frozenset())
    assert fast == [read(text) for text in texts]


def test_a_text_that_is_checked_again_has_the_same_mistakes() -> None:
    text = "query Q { inputs { A() within 1.0; } find A as a where a.x = ; }"
    told = []
    for _ in range(2):
        with pytest.raises(QueryErrors) as found:
            querylang.check_text(text)
        told.append(str(found.value))
    assert told[0] == told[1] != ""


def test_the_same_text_twice_is_two_queries_of_one_name() -> None:
    text = Source("q.query", "query Q { inputs { A() within 1.0; } find A as a { } }")
    with pytest.raises(QueryErrors, match="Q"):
        querylang.load._check([text, text], (), None, (), is_final=False)
