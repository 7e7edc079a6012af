"""The aggregates of `find every`, over values of the candidates from the oldest to the newest.

A candidate without a value for an argument is left out of that aggregate. Without any values a
count is 0 and all other aggregates have no value. Sums run from the newest candidate to the oldest:
integers wrap, floats round at each step, a decimal out of range has no value. `percentile`
interpolates linearly. `min`, `max` and `percentile` ignore NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from runtime.interpreter.decimals import total
from runtime.interpreter.numbers import wrap
from runtime.interpreter.values import EvaluationError, order_key

Values = Sequence[Any]

BY_RECENCY = frozenset({"first", "last", "nth"})
"""Aggregates that need the candidates in order of the *recent* policy; all others accept the order
of the search."""


def aggregate(function: str, rows: Sequence[tuple[Any, ...]]) -> Any:
    """The value of an aggregate; None = it has none.

    function: its name
    rows: its arguments, one row per candidate that has them all
    """
    if not rows:
        return 0 if function in {"count", "countUnique"} else None
    columns = list(zip(*rows, strict=True))
    if not columns:
        return len(rows)
    try:
        return _FUNCTIONS[function](*columns)
    except EvaluationError:
        return None


def _count(values: Values) -> int:
    """Booleans that are true, and other values that are not NaN."""
    return sum(1 for value in values if (value if isinstance(value, bool) else value == value))  # noqa: PLR0124


def _sum(values: Values) -> Any:
    if isinstance(values[0], Decimal):
        return total(values)
    result = values[-1]
    for value in values[-2::-1]:
        result += value
    return wrap(result) if isinstance(result, int) else result


def _exact(values: Iterable[float]) -> float:
    """The sum of floats, rounded once; infinities and NaN as in IEEE 754."""
    terms = list(values)
    try:
        return math.fsum(terms)
    except (OverflowError, ValueError):
        return sum(terms)


def _mean(values: Values) -> float:
    return float(_sum([float(value) for value in values])) / len(values)


def _least(values: Values) -> Any:
    return min(_numbers(values), default=math.nan)


def _greatest(values: Values) -> Any:
    return max(_numbers(values), default=math.nan)


def _numbers(values: Values) -> list[Any]:
    return [value for value in values if value == value]  # noqa: PLR0124


def _nth(values: Values, places: Values) -> Any:
    place = places[-1]
    return values[place] if 0 <= place < len(values) else None


def _percentile(values: Values, shares: Values) -> float | None:
    ordered, share = sorted(float(value) for value in _numbers(values)), float(shares[-1])
    if not ordered:
        return math.nan
    if not 0.0 <= share <= 100.0:
        return None
    place = (len(ordered) - 1) * share / 100.0
    low = math.floor(place)
    between = place - low
    if between == 0.0 or ordered[low] == ordered[low + 1]:
        return ordered[low]
    return ordered[low] + (ordered[low + 1] - ordered[low]) * between


def _deviation(values: Values, less: int) -> float:
    if len(values) <= less:
        return math.nan
    middle = _mean(values)
    if not math.isfinite(middle):
        return math.nan
    distances = [float(value) - middle for value in values]
    return math.sqrt(_exact(distance * distance for distance in distances) / (len(values) - less))


def _weighted(values: Values, weights: Values) -> float:
    heavy = _exact(map(float, weights))
    if heavy == 0.0:
        return math.nan
    return _exact(float(value) * float(weight) for value, weight in zip(values, weights, strict=True)) / heavy


def _different(values: Values) -> int:
    return len({order_key(value) for value in values})


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "count": _count,
    "countUnique": _different,
    "sum": _sum,
    "avg": _mean,
    "mean": _mean,
    "min": _least,
    "max": _greatest,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "nth": _nth,
    "percentile": _percentile,
    "stddev": lambda values: _deviation(values, 0),
    "stddev2": lambda values: _deviation(values, 1),
    "wavg": _weighted,
}
