"""Means of integers and sums and means of decimals are exact to the last rounding, whoever computes them."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import ensue

EVENT = "event A { integer n; decimal d; } "
WAYS = {
    "every": "inputs { A() retain 100; } find every A as a select {};",
    "a sliding window": "inputs { A() within 3.5; } find every A as a select {};",
    "the reference matcher": "inputs { A() retain 100; } find every A as a select {} select stddev(a.d) as s;",
    "a run": "inputs { A() retain 100; } find A as a {1,} select {};",
}


def rows() -> list[dict[str, Any]]:
    dice = random.Random(1)
    return [
        {
            "event": "A",
            "at": float(at),
            "n": dice.choice((2**53 + 1, 2**62 + 3, -(2**61) + 5, 7)) + dice.randint(0, 9),
            "d": str(Decimal(dice.randint(-(10**30), 10**30)).scaleb(-18)),
        }
        for at in range(12)
    ]


def expected(values: list[Fraction], way: str, at: int) -> list[Fraction]:
    return values[max(0, at - 3) : at + 1] if way == "a sliding window" else values[: at + 1]


@pytest.mark.parametrize("way", WAYS)
def test_a_mean_of_integers_is_rounded_once(way: str) -> None:
    found = ensue.replay(
        EVENT + WAYS[way].replace("{};", "avg(a.n) as m;").replace("{} ", "avg(a.n) as m "), rows()
    ).matches
    whole = [Fraction(row["n"]) for row in rows()]
    assert found["m"].tolist() == [float(sum(own) / len(own)) for at in range(12) for own in [expected(whole, way, at)]]


@pytest.mark.parametrize("way", WAYS)
def test_sums_and_means_of_decimals_are_exact(way: str) -> None:
    text = (
        WAYS[way]
        .replace("{};", "sum(a.d) as t select avg(a.d) as m;")
        .replace("{} ", "sum(a.d) as t select avg(a.d) as m ")
    )
    found = ensue.replay(EVENT + text, rows()).matches
    whole = [Fraction(row["d"]) for row in rows()]
    parts = [expected(whole, way, at) for at in range(12)]
    assert [Fraction(value) for value in found["t"]] == [sum(own) for own in parts]
    assert found["m"].tolist() == [float(sum(own) / len(own)) for own in parts]


def test_a_condition_compares_an_exact_mean() -> None:
    text = "inputs { A() retain 100; } find A as a {2} where avg(a.n) = 9007199254740994.0;"
    pair = [{"event": "A", "at": at, "n": number, "d": "0"} for at, number in ((1.0, 2**53 + 1), (2.0, 2**53 + 2))]
    assert len(ensue.replay(EVENT + text, pair)) == (float(Fraction(2**54 + 3, 2)) == 9007199254740994.0)
