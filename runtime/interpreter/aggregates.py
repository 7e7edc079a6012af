"""The aggregates of `find every`, over values of the candidates from the oldest to the newest.

A candidate without a value for an argument is left out of that aggregate. Without any values a
count is 0 and all other aggregates have no value. Integers wrap, a decimal out of range has no
value. Sums of floats are exact and rounded once, in means and deviations too, so no result depends
on the order of candidates. Means of integers and decimals are rounded once. `percentile`
interpolates linearly; its share is that of the newest candidate. `min`, `max` and `percentile`
ignore NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from querylang.plan.expression import Kind
from runtime.interpreter.decimals import total
from runtime.interpreter.numbers import wrap
from runtime.interpreter.values import EvaluationError, order_key

Values = Sequence[Any]

BY_RECENCY = frozenset({"first", "last", "nth", "percentile"})
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
    return exact_sum(values) if isinstance(values[0], float) else wrap(sum(values))


_UNITS = 1 << 1074
"""Every float is a whole number of units, of which so many are 1."""


def exact_sum(values: Iterable[float]) -> float:
    """The sum of floats, rounded once: it does not depend on their order.

    NaN and infinities count as in any order of additions. A sum beyond the floats is an infinity,
    one of zero is 0.0.
    """
    terms = list(values)
    odd = [value for value in terms if not math.isfinite(value)]
    if odd:
        return sum(odd)
    try:
        return math.fsum(terms) + 0.0  # exact, rounded once; -0.0 becomes 0.0
    except OverflowError:
        return _sum_of_units(terms)


def _sum_of_units(terms: Sequence[float]) -> float:
    """The same where sums on the way are beyond the floats."""
    ratios = (value.as_integer_ratio() for value in terms)
    units = sum(numerator * (_UNITS // denominator) for numerator, denominator in ratios)
    try:
        return units / _UNITS
    except OverflowError:
        return math.inf if units > 0 else -math.inf


def mean(values: Values) -> float:
    """The mean; of integers and decimals the float that is nearest to it.

    The sum of floats is rounded before it is divided.
    """
    if isinstance(values[0], float):
        return exact_sum(values) / len(values)
    if isinstance(values[0], Decimal):
        return float(sum(map(Fraction, values), Fraction()) / len(values))
    return float(sum(values) / len(values))


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
    ordered = sorted((float(value) for value in _numbers(values)), key=lambda value: (value, math.copysign(1.0, value)))
    share = float(shares[-1])
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
    middle = mean(values)
    if not math.isfinite(middle):
        return math.nan
    distances = [float(value) - middle for value in values]
    return math.sqrt(exact_sum(distance * distance for distance in distances) / (len(values) - less))


def _weighted(values: Values, weights: Values) -> float:
    heavy = exact_sum(map(float, weights))
    if heavy == 0.0:
        return math.nan
    return exact_sum(float(value) * float(weight) for value, weight in zip(values, weights, strict=True)) / heavy


def _different(values: Values) -> int:
    return len({order_key(value) for value in values})


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "count": _count,
    "countUnique": _different,
    "sum": _sum,
    "avg": mean,
    "mean": mean,
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


# The folds over the events of a run: `count sum avg min max`. Integers wrap, floats are added from
# the oldest to the newest, `min` and `max` ignore NaN.


def folded(function: str, values: Sequence[Any], kind: Kind) -> Any:
    """The value of a fold over these values, oldest first; None = it has none.

    kind: the values' type
    """
    match function:
        case "sum":
            return _sum_of_kind(values, kind)
        case "avg":
            return _mean_of_kind(values, kind) if values else None
        case _:
            return aggregate(function, [(value,) for value in values])


def _mean_of_kind(values: Sequence[Any], kind: Kind) -> float:
    return float(_sum_of_kind(values, kind)) / len(values) if kind is Kind.FLOAT else mean(values)


def _sum_of_kind(values: Sequence[Any], kind: Kind) -> Any:
    if kind is Kind.INTEGER:
        return wrap(sum(values))
    if kind is Kind.DECIMAL:
        return total(values) if values else Decimal(0)
    result = 0.0
    for value in values:
        result += value
    return result
