"""Queries that are said to never match do not match; some that are nearly the same do."""

from __future__ import annotations

from random import Random

import pytest

import ensue

TYPES = "event A { string k; integer n; }\nevent B { string k; integer n; }\n"

NEVER = {
    "inputs { A() retain 1; B() retain 1; } find A as a -> A as b": "retain 2",
    "inputs { A() retain 2; B() retain 1; } find A as a -> (A as b and B as c) -> A as d": "retain 3",
    "inputs { A() key k within 9 with unique k; B() key k within 9; } find A as a -> A as b": "with unique n",
    "inputs { A() key k within 9; B() key k within 9; } find A as a -> B as b where a.k != b.k": "a.n != b.n",
    "inputs { A(n > 2) within 9; B() within 9; } find A as a -> B as b where a.n < 3": "b.n < 3",
    "inputs { A() within 9; B() within 9; } find wait(2.0) as t -> A as a within 2.0 between (t a)": "within 2.1",
}
"""Queries, and how what keeps them from matching is written otherwise."""

WRONG = ("retain 1", "retain 2", "with unique k", "a.k != b.k", "a.n < 3", "within 2.0")


@pytest.mark.parametrize(
    ("query", "right", "wrong"), [(q, r, w) for (q, r), w in zip(NEVER.items(), WRONG, strict=True)]
)
def test_what_is_said_to_never_match_never_does(query: str, right: str, wrong: str) -> None:
    random = Random(1)
    rows = [
        {"at": n / 2, "event": random.choice("AB"), "k": random.choice("xy"), "n": random.randrange(6)}
        for n in range(400)
    ]
    assert [warning.code for warning in ensue.load(TYPES + query).warnings if "never" in warning.code]
    assert not len(ensue.replay(TYPES + query, rows))
    other = TYPES + query.replace(wrong, right, 1)
    assert not [warning.code for warning in ensue.load(other).warnings if "never" in warning.code]
    assert len(ensue.replay(other, rows))
