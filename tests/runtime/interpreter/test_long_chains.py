"""Conditions of hundreds of terms, which a plan nests by halves, have the values of the terms in order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import ensue

COUNT = 333
EVENTS = [
    {"event": "A", "at": float(at), "n": n, "s": f"{n:x}", "b": None if n % 5 == 0 else n % 2 == 0}
    for at, n in enumerate(random.Random(7).choices(range(-9, 500), k=60))
]


def kept(condition: str) -> list[int]:
    """The numbers of the events for which the condition holds."""
    event = "event A { integer n; string s; boolean b; }"
    query = (
        f"{event} query Q {{ inputs {{ A() retain 1; }} find A as a where {condition} {{ print(a.n.toString()); }} }}"
    )
    return [int(text) for text in ensue.replay(query, EVENTS).outputs["text"]]


def numbers(*, of: Callable[[dict[str, Any]], object]) -> list[int]:
    return [event["n"] for event in EVENTS if of(event)]


def test_one_of_many_values() -> None:
    wanted = {number * 3 for number in range(COUNT)}
    condition = " or ".join(f"a.n = {number}" for number in wanted)
    assert kept(condition) == numbers(of=lambda event: event["n"] in wanted)
    assert kept(f"not ({condition})") == numbers(of=lambda event: event["n"] not in wanted)


def test_none_of_many_values() -> None:
    wanted = {number * 3 for number in range(COUNT)}
    condition = " and ".join(f"a.n != {number}" for number in wanted)
    assert kept(f"({condition}) or a.n = 3") == numbers(of=lambda event: event["n"] not in wanted or event["n"] == 3)


def test_a_null_among_terms_decides_nothing() -> None:
    assert kept("a.b or " * COUNT + "a.n > 100") == numbers(of=lambda event: event["b"] or event["n"] > 100)
    assert kept("(" + "a.b and " * COUNT + "a.n > 100)") == numbers(of=lambda event: event["b"] and event["n"] > 100)


def test_a_term_that_fails_hides_those_behind_it_and_none_before() -> None:
    fails = "1 / (a.n - a.n) = 0"
    chain = ["a.n = 7"] * COUNT
    assert kept(" or ".join(["a.n > 100", *chain, fails])) == numbers(
        of=lambda event: event["n"] > 100 or event["n"] == 7
    )
    assert kept(" or ".join([fails, *chain, "a.n > 100"])) == []


def test_sums_and_texts_have_their_terms_in_order() -> None:
    total = " + ".join(["a.n"] * COUNT)
    assert kept(f"{total} = a.n * {COUNT}") == [event["n"] for event in EVENTS]
    text = " + ".join(f'"{number}"' for number in range(COUNT))
    assert kept(f'{text} + a.s = "{"".join(map(str, range(COUNT)))}1f"') == numbers(of=lambda event: event["s"] == "1f")


def test_floats_are_added_from_left_to_right_or_not_at_all() -> None:
    with pytest.raises(ensue.QueryErrors, match="nested more than 200 levels"):
        kept("0.1 + " * COUNT + "0.1 > 3.0")
