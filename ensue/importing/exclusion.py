"""Whether two conditions on one row exclude each other, as far as their texts show it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison that must hold, as texts; numbers and strings are values.

    left, right: what is compared; the row itself is `$`
    """

    left: str | float
    operator: str
    right: str | float

    def flipped(self) -> Comparison:
        """The same with its sides exchanged."""
        return Comparison(self.right, _FLIPPED[self.operator], self.left)


def exclude_each_other(first: Iterable[Comparison], second: Iterable[Comparison]) -> bool:
    """Whether no row fulfils all of both."""
    others = [form for item in second for form in (item, item.flipped())]
    return any(_contradict(one, other) for one in first for other in others if one.left == other.left)


def _contradict(one: Comparison, other: Comparison) -> bool:
    """Of two comparisons of the same thing."""
    if one.right == other.right:
        return not _relations(one.operator) & _relations(other.operator)
    if _is_text(one.right) and _is_text(other.right):
        return one.operator == other.operator == "="
    if isinstance(one.right, float) and isinstance(other.right, float):
        return not _overlap(_interval(one), _interval(other))
    return False


def _relations(operator: str) -> set[str]:
    """Which of less, equal and greater an operator allows."""
    return {"<": {"<"}, "<=": {"<", "="}, "=": {"="}, ">": {">"}, ">=": {">", "="}, "!=": {"<", ">"}}[operator]


def _is_text(value: str | float) -> bool:
    return isinstance(value, str) and value.startswith('"')


def _interval(item: Comparison) -> tuple[float, bool, float, bool]:
    """Lowest value, whether it is in, highest value, whether it is in."""
    assert isinstance(item.right, float)
    match item.operator:
        case "=":
            return item.right, True, item.right, True
        case "<" | "<=":
            return -_INFINITY, False, item.right, item.operator == "<="
        case ">" | ">=":
            return item.right, item.operator == ">=", _INFINITY, False
    return -_INFINITY, False, _INFINITY, False


def _overlap(one: tuple[float, bool, float, bool], other: tuple[float, bool, float, bool]) -> bool:
    lowest, highest = max(one[0], other[0]), min(one[2], other[2])
    if lowest != highest:
        return lowest < highest
    is_in = [bounds[1] for bounds in (one, other) if bounds[0] == lowest]
    is_in += [bounds[3] for bounds in (one, other) if bounds[2] == highest]
    return all(is_in)
