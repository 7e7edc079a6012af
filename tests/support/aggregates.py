"""Aggregates over the candidates of a `find every`: the definitions as a textbook has them.

A candidate in which an argument mentions an unset name, or has no value, is left out of that aggregate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from tests.support.conditions import (
    Aggregate,
    Bound,
    Constant,
    Node,
    NoValueError,
    Selected,
    arithmetic,
    is_true,
    names_in,
    replaced,
    value_of,
)
from tests.support.patterns import Every


def selected(every: Every, candidates: Sequence[Bound]) -> tuple[Any, ...] | None:
    """What is selected of these candidates, the oldest first; None where a `having` does not hold.

    What has no value is None: an aggregate over no value at all.
    """
    selects: dict[str, Node] = {}
    values = []
    for name, node in every.selects:
        selects[name] = resolved(node, candidates, selects)
        try:
            values.append(value_of(selects[name], {}))
        except NoValueError:
            values.append(None)
    return tuple(values) if all(is_true(resolved(node, candidates, selects), {}) for node in every.having) else None


def resolved(node: Node, candidates: Sequence[Bound], selects: dict[str, Node]) -> Node:
    """The expression with every aggregate replaced by its value, and every select name by what it stands for."""

    def change(part: Node) -> Node | None:
        match part:
            case Aggregate(function, arguments):
                return Constant(aggregate(function, arguments, candidates))
            case Selected(name):
                return selects[name]
        return None

    return replaced(node, change)


def aggregate(function: str, arguments: Sequence[Node], candidates: Sequence[Bound]) -> Any:
    """The value of an aggregate; None where it has none."""
    if function == "count" and not arguments:
        return len(candidates)
    rows = [row for row in (evaluated(arguments, candidate) for candidate in candidates) if row is not None]
    return FUNCTIONS[function](*(list(column) for column in zip(*rows, strict=True))) if rows else _empty(function)


def evaluated(arguments: Sequence[Node], candidate: Bound) -> list[Any] | None:
    """The arguments for one candidate; None where one of them has no value."""
    if any(name not in candidate for node in arguments for name in names_in(node)):
        return None
    try:
        values = [value_of(node, candidate) for node in arguments]
    except NoValueError:
        return None
    return None if None in values else values


def _empty(function: str) -> Any:
    return 0 if function in {"count", "countUnique"} else None


def total(values: list[Any]) -> Any:
    """The sum, of the values' type."""
    result = values[0]
    for value in values[1:]:
        result = arithmetic("+", result, value)
    return result


def mean(values: list[Any]) -> float:
    """The arithmetic mean, exact before it is rounded once."""
    return float(sum(map(Fraction, values)) / len(values))


def deviation(values: list[Any], less: int) -> float:
    """The root of the squared distances from the mean over their number, less as much."""
    if len(values) <= less:
        return math.nan
    exact = list(map(Fraction, values))
    middle = sum(exact) / len(exact)
    return math.sqrt(sum((value - middle) ** 2 for value in exact) / (len(exact) - less))


def weighted(values: list[Any], weights: list[Any]) -> float:
    """The mean in which each value counts as much as its weight says."""
    heavy = sum(map(Fraction, weights))
    if not heavy:
        return math.nan
    return float(sum(Fraction(value) * Fraction(weight) for value, weight in zip(values, weights, strict=True)) / heavy)


def nth(values: list[Any], places: list[Any]) -> Any:
    """The value of a place, counted from the oldest."""
    place = places[0]
    return values[place] if 0 <= place < len(values) else None


def percentile(values: list[Any], shares: list[Any]) -> float:
    """Between the two values around the place `share` percent of the way from the smallest to the largest."""
    ordered = sorted(map(Fraction, values))
    place = (len(ordered) - 1) * Fraction(shares[0]) / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "count": lambda values: sum(1 for value in values if value),
    "sum": total,
    "avg": mean,
    "mean": mean,
    "min": min,
    "max": max,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "nth": nth,
    "percentile": percentile,
    "stddev": lambda values: deviation(values, 0),
    "stddev2": lambda values: deviation(values, 1),
    "wavg": weighted,
    "countUnique": lambda values: len(set(values)),
}
