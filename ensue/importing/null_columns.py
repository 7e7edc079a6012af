"""Which columns cannot be null in the rows of a variable, as far as its condition shows it.

A comparison with a null is null, so a row for which it holds has values in all that it compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from ensue.importing.row_patterns import Element, RowPattern

_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_CALCULATED = (exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Paren)


def is_never_null(pattern: RowPattern, element: Element, column: str) -> bool:
    """Whether a column has a value in each row of an element; no match has rows without a key."""
    known = {pattern.order, *pattern.keys}
    return column in known or column in compared(pattern.conditions.get(element.variable), element.variable)


def compared(condition: Any, variable: str) -> set[str]:
    """The columns of a variable's own row that must have a value for its condition to hold."""
    return {
        column.name for side in _sides(condition) for column in _columns(side) if column.table.upper() in ("", variable)
    }


def _sides(condition: Any) -> Iterator[Any]:
    """What is compared, if all of the comparison must hold."""
    match condition:
        case exp.Paren():
            yield from _sides(condition.this)
        case exp.And():
            yield from _sides(condition.this)
            yield from _sides(condition.expression)
        case exp.Not() if isinstance(condition.this.unnest(), (*_COMPARED, exp.Between, exp.In)):
            yield from _sides(condition.this)
        case exp.Between() | exp.In():
            yield condition.this
        case _ if isinstance(condition, _COMPARED):
            yield from (condition.this, condition.expression)


def _columns(node: Any) -> Iterator[exp.Column]:
    """The columns that a calculated value has."""
    if isinstance(node, exp.Column):
        yield node
    elif isinstance(node, _CALCULATED):
        yield from _columns(node.this)
        if isinstance(node.args.get("expression"), exp.Expression):
            yield from _columns(node.expression)
