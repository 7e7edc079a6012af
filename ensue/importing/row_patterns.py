"""What a `MATCH_RECOGNIZE` clause says: its parts as plain data, with their lines; what follows
from the texts of its conditions: which columns are not null, and which conditions exclude others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from querylang.dataclass import dataclass
from querylang.plan.text import written_name
from querylang.printable import one_line
from querylang.syntax.lexer import KEYWORDS

if TYPE_CHECKING:
    from sqlglot.expressions import Expression
    from sqlglot.tokenizer_core import Token


class NotTranslatedError(Exception):
    """A part of the text has no counterpart, or would mean something else."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


@dataclass(frozen=True, slots=True)
class Element:
    """A variable of the pattern, and how often it may come: `most` None = without end.

    is_reluctant: it takes as few rows as it can
    """

    variable: str
    line: int
    least: int = 1
    most: int | None = 1
    is_reluctant: bool = False

    @property
    def is_single(self) -> bool:
        """Whether it is one row, always."""
        return self.least == 1 and self.most == 1

    @property
    def is_fixed(self) -> bool:
        """Whether it always has as many rows."""
        return self.least == self.most


@dataclass(frozen=True, slots=True)
class Skip:
    """`AFTER MATCH SKIP`.

    to: "past last row", "next row", or the "first" or "last" row of `variable`
    is_default: the clause is missing
    """

    to: str
    line: int
    variable: str = ""
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class RowPattern:
    """A clause.

    table: what rows are read from
    keys: columns of `PARTITION BY`
    null_keys: those that may be null, and are a partition then: no WHERE leaves them out
    order: the column of `ORDER BY`
    measures: output columns: name and expression
    within: how long a match may last, as text of a duration; "" = without end
    conditions: of `DEFINE`, by variable
    """

    table: str
    keys: tuple[str, ...]
    null_keys: frozenset[str]
    order: str
    measures: tuple[tuple[str, Expression], ...]
    elements: tuple[Element, ...]
    skip: Skip
    within: str
    conditions: Mapping[str, Expression]

    @property
    def is_fixed(self) -> bool:
        """Whether all matches have as many rows."""
        return all(element.is_fixed for element in self.elements)

    def position(self, variable: str) -> int | None:
        """Which element a variable is."""
        names = [element.variable for element in self.elements]
        return names.index(variable) if variable in names else None


# The text of `PATTERN ( … )` to elements, from the tokens of the SQL reader.

_FOREIGN = {
    "|": "alternatives",
    "(": "groups",
    "^": "anchors",
    "$": "anchors",
    "-": "exclusions",
}


MOST_DIGITS = 9
"""Of a number in a quantifier or an interval."""


def as_name(name: str, line: int) -> str:
    """A name of the SQL text as a query writes it; raises NotTranslatedError where it cannot."""
    if not name or not name.isprintable() or "`" in name:
        what = "an empty name" if not name else f"the name '{one_line(name)}'"
        raise NotTranslatedError(
            line, f"{what} is not translated: a query has names of letters, signs and blanks, without backquotes"
        )
    return f"`{name}`" if name in KEYWORDS else written_name(name)


def elements_of(tokens: Sequence[Token]) -> tuple[Element, ...]:
    """The elements of a pattern, without its outer brackets; raises NotTranslatedError."""
    found: list[Element] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if (what := _FOREIGN.get(token.text)) or (token.text == "{" and _text(tokens, at + 1) == "-"):
            raise NotTranslatedError(token.line, f"{what or 'exclusions'} in the pattern are not translated")
        if token.text.upper() == "PERMUTE" and _text(tokens, at + 1) == "(":
            raise NotTranslatedError(token.line, "PERMUTE is not translated")
        if not token.text.replace("_", "a").isalnum() or token.text[0].isdigit():
            raise NotTranslatedError(token.line, f"{token.text!r} in the pattern is not understood")
        if _text(tokens, at + 1) == "{" and _text(tokens, at + 2) == "-":
            raise NotTranslatedError(token.line, "exclusions in the pattern are not translated")
        least, most, at = _quantifier(tokens, at + 1)
        is_reluctant = (least, most) != (1, 1) and _text(tokens, at) == "?"
        at += is_reluctant
        element = Element(token.text.upper(), token.line, least, most, is_reluctant)
        if element.most == 0:
            raise NotTranslatedError(token.line, f"{token.text} takes no row")
        if any(other.variable == element.variable for other in found):
            raise NotTranslatedError(token.line, f"{token.text} is in the pattern twice")
        found.append(element)
    return tuple(found)


def _quantifier(tokens: Sequence[Token], at: int) -> tuple[int, int | None, int]:
    """Least, most, and where the next token is."""
    match _text(tokens, at):
        case "+":
            return 1, None, at + 1
        case "*":
            return 0, None, at + 1
        case "?":
            return 0, 1, at + 1
        case "{":
            return _counts(tokens, at)
    return 1, 1, at


def _counts(tokens: Sequence[Token], at: int) -> tuple[int, int | None, int]:
    end = at
    while _text(tokens, end) not in ("}", ""):
        end += 1
    parts = "".join(token.text for token in tokens[at + 1 : end]).split(",")
    is_number = all(part == "" or (part.isdecimal() and len(part) <= MOST_DIGITS) for part in parts)
    if not is_number or len(parts) > 2 or parts == [""]:
        raise NotTranslatedError(tokens[at].line, "this quantifier is not understood")
    least = int(parts[0] or 0)
    most = least if len(parts) == 1 else int(parts[1]) if parts[1] else None
    return least, most, end + 1


def _text(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].text if at < len(tokens) else ""


# Which columns cannot be null in the rows of a variable, as far as its condition shows it.
#
# A comparison with a null is null, so a row for which it holds has values in all that it compares.

_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_CALCULATED = (exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Paren)


def is_never_null(pattern: RowPattern, element: Element, column: str) -> bool:
    """Whether a column has a value in each row of an element."""
    known = {pattern.order, *pattern.keys} - pattern.null_keys
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
            for part in condition.flatten():
                yield from _sides(part)
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


# Whether two conditions on one row exclude each other, as far as their texts show it.

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
