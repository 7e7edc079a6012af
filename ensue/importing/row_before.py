"""The row before, however a condition says it, as `PREV`.

Snowflake calls it `LAG`. Flink has neither: there a condition looks at the last row of the variable
before its own, and from its second row on at its own last row but one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from ensue.importing.null_columns import compared
from ensue.importing.row_patterns import Element, RowPattern

Test = Callable[[exp.Expression], exp.Column | None]
"""The column of the row before, if an expression is one."""


def with_previous(pattern: RowPattern) -> RowPattern:
    """Conditions with `PREV` in place of `LAG`, and of

    `(LAST(down.x, 1) IS NULL AND down.x < strt.x) OR down.x < LAST(down.x, 1)`.
    """
    read: Mapping[str, Any] = pattern.conditions  # sqlglot reads some broken texts as words
    conditions = {
        variable: _without_idiom(pattern, variable, node.transform(_without_lag))
        for variable, node in read.items()
        if isinstance(node, exp.Expression)
    }
    return replace(pattern, conditions={**read, **conditions})


def of_one_row(pattern: RowPattern, element: Element, node: Any) -> Any:
    """The condition of a single row, with `PREV` in place of the last row before it."""
    before = _before(pattern, element)
    if before is None or not element.is_single or not isinstance(node, exp.Expression):
        return node
    return _with_previous_for(element, node, _last_of(before))


def _without_lag(node: exp.Expression) -> exp.Expression:
    if not isinstance(node, exp.Lag) or node.args.get("default") is not None:
        return node
    offset = node.args.get("offset")
    return exp.Anonymous(this="PREV", expressions=[node.this, *([offset] if offset is not None else [])])


def _without_idiom(pattern: RowPattern, variable: str, node: exp.Expression) -> exp.Expression:
    position = pattern.position(variable)
    if position is None or not isinstance(node.unnest(), exp.Or):
        return node
    element = pattern.elements[position]
    before, either = _before(pattern, element), node.unnest()
    if before is None:
        return node
    for first, later in ((either.this, either.expression), (either.expression, either.this)):
        for guard, rest in _of_first_row(element, first.unnest()):
            on_first = _with_previous_for(element, rest, _last_of(before))
            on_later = _with_previous_for(element, later, _last_but_one_of(element))
            # A later row whose row before has a null there would be asked as the first one is.
            if on_first == on_later and guard.name in compared(on_first, element.variable):
                return on_first
    return node


def _of_first_row(element: Element, node: exp.Expression) -> Iterator[tuple[exp.Column, exp.Expression]]:
    """What `LAST(down.x, 1) IS NULL AND ...` asks of the first row: the column, and the rest."""
    if not isinstance(node, exp.And):
        return
    for guard, rest in ((node.this, node.expression), (node.expression, node.this)):
        bare = guard.unnest()
        if isinstance(bare, exp.Is) and isinstance(bare.expression, exp.Null):
            column = _last_but_one_of(element)(bare.this)
            if column is not None:
                yield column, rest


def _before(pattern: RowPattern, element: Element) -> Element | None:
    """The element whose last row is always directly before the first of another one."""
    position = pattern.elements.index(element)
    before = pattern.elements[position - 1] if position else None
    return before if before and before.least else None


def _last_of(element: Element) -> Test:
    """`strt.x` and `LAST(down.x)`."""

    def test(node: exp.Expression) -> exp.Column | None:
        if isinstance(node, exp.Last) and node.args.get("expression") is None:
            node = node.this
        return node if isinstance(node, exp.Column) and node.table.upper() == element.variable else None

    return test


def _last_but_one_of(element: Element) -> Test:
    """`LAST(down.x, 1)`."""

    def test(node: exp.Expression) -> exp.Column | None:
        if not isinstance(node, exp.Last) or node.args.get("expression") != exp.Literal.number(1):
            return None
        column = node.this
        return column if isinstance(column, exp.Column) and column.table.upper() == element.variable else None

    return test


def _with_previous_for(element: Element, node: Any, test: Test) -> Any:
    """The expression without brackets around it."""

    def previous(one: exp.Expression) -> exp.Expression:
        column = test(one)
        if column is None:
            return one
        own = column.copy()
        own.set("table", exp.to_identifier(element.variable))
        return exp.Anonymous(this="PREV", expressions=[own])

    return node.unnest().transform(previous)
