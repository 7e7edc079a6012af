"""The folds over the events of a run: `count sum avg min max`.

Integers wrap, floats are added from the oldest to the newest, `min` and `max` ignore NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from querylang.plan.expression import Kind
from runtime.interpreter.aggregates import aggregate, mean
from runtime.interpreter.decimals import total
from runtime.interpreter.numbers import wrap


def folded(function: str, values: Sequence[Any], kind: Kind) -> Any:
    """The value of a fold over these values, oldest first; None = it has none.

    kind: the values' type
    """
    match function:
        case "sum":
            return _sum(values, kind)
        case "avg":
            return _mean(values, kind) if values else None
        case _:
            return aggregate(function, [(value,) for value in values])


def _mean(values: Sequence[Any], kind: Kind) -> float:
    return float(_sum(values, kind)) / len(values) if kind is Kind.FLOAT else mean(values)


def _sum(values: Sequence[Any], kind: Kind) -> Any:
    if kind is Kind.INTEGER:
        return wrap(sum(values))
    if kind is Kind.DECIMAL:
        return total(values) if values else Decimal(0)
    result = 0.0
    for value in values:
        result += value
    return result
