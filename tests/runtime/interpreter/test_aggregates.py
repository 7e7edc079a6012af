"""Aggregates of values at the edges of their types; what they come to otherwise is compared with another reading in tests/differential."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from runtime.interpreter.aggregates import aggregate

INFINITY, NAN = math.inf, math.nan


def of(function: str, *values: Any) -> Any:
    return aggregate(function, [(value,) for value in values])


@pytest.mark.parametrize("function", ["stddev", "stddev2"])
def test_a_deviation_too_large_is_infinite(function: str) -> None:
    assert of(function, 1e200, -1e200) == INFINITY


@pytest.mark.parametrize(
    ("rows", "value"),
    [
        ([(1.0, 1e308), (1.0, 1e308)], NAN),
        ([(1.0, INFINITY), (1.0, -INFINITY)], NAN),
        ([(1e308, 1.0), (1e308, 1.0)], INFINITY),
        ([(INFINITY, 1.0), (-INFINITY, 1.0)], NAN),
    ],
)
def test_a_weighted_mean_too_large_is_as_floats_are(rows: list[tuple[float, float]], value: float) -> None:
    assert aggregate("wavg", rows) == pytest.approx(value, nan_ok=True)


def test_between_two_infinities_is_an_infinity() -> None:
    assert aggregate("percentile", [(INFINITY, 50.0), (INFINITY, 50.0)]) == INFINITY


def test_a_sum_of_decimals_keeps_all_digits() -> None:
    found = of("sum", Decimal("12345678901234567890.000000000000000001"), Decimal(1))
    assert found == Decimal("12345678901234567891.000000000000000001")


def test_a_sum_out_of_the_range_of_decimals_is_no_value() -> None:
    assert of("sum", Decimal("6e19"), Decimal("6e19")) is None


def test_only_the_whole_sum_must_be_in_the_range_of_decimals() -> None:
    assert of("sum", Decimal("-6e19"), Decimal("6e19"), Decimal("6e19")) == Decimal("6e19")
