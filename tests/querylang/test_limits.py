"""Texts that are far too large or deep: an answer or a clear limit, never a crash."""

from __future__ import annotations

import pytest

from querylang import QueryErrors, compile_text

HEAD = "event A { integer x; boolean b; } inputs { A() within 5; } find A as a where "


def test_ten_thousand_brackets() -> None:
    assert compile_text(f"{HEAD}{'(' * 10_000}a.x = 3{')' * 10_000}").plan.queries[0].conditions


def test_a_thousand_terms() -> None:
    pattern = " -> ".join(f"A as a{number}" for number in range(1000))
    plan = compile_text(f"inputs {{ A() within 5; }} find {pattern}").plan
    assert len(plan.queries[0].automaton.states) == 1000


def test_thousands_of_conditions() -> None:
    assert len(compile_text(HEAD + " and ".join(["a.x = 3"] * 3000)).plan.queries[0].conditions) == 3000


def test_a_deeply_grouped_pattern() -> None:
    text = f"inputs {{ A() within 5; }} find {'(' * 10_000}A as a{')' * 10_000}"
    assert len(compile_text(text).plan.queries[0].terms) == 1


DEEP = {
    "minus": "-" * 10_000 + "a.x = 3",
    "not": "not " * 10_000 + "a.b",
    "sum": "a.x" + " + 1" * 10_000 + " = 3",
    "or": " or ".join(["a.b"] * 10_000),
    "calls": "a.x" + ".toString()" * 10_000 + ' = ""',
    "members": "a" + ".x" * 10_000 + " = 3",
}


@pytest.mark.parametrize("condition", DEEP.values(), ids=DEEP.keys())
def test_nesting_has_a_limit(condition: str) -> None:
    with pytest.raises(QueryErrors) as caught:
        compile_text(HEAD + condition)
    assert [error.code for error in caught.value.errors] == ["limit"]


BROKEN = {
    "open brackets": HEAD + "(" * 10_000,
    "open blocks": "inputs { A() within 5; } find A as a " + "{" * 5_000,
    "types": f"event A {{ {'sequence<' * 5_000}float{'>' * 5_000} x; }}",
    "patterns": f"inputs {{ A() within 5; }} find {'(A as a and ((' * 1_000}A as a{')))' * 1_000}",
    "digits": HEAD + "a.x = " + "9" * 100_000,
    "zeros": HEAD + "a.x = b.x + " + "0" * 100_000,
    "a long name": HEAD + "a." + "x" * 100_000 + " = 3",
    "many mistakes": "inputs { " + "A(; " * 3_000,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_broken_texts_of_any_size(text: str) -> None:
    with pytest.raises(QueryErrors):
        compile_text(text)
