"""SQL expressions of a row pattern to expressions of a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from math import isinf
from typing import Any

from sqlglot import exp

from ensue.importing.row_patterns import (
    MOST_DIGITS,
    Comparison,
    Element,
    NotTranslatedError,
    RowPattern,
    as_name,
    compared,
    is_never_null,
)
from ensue.importing.sql_reader import UNITS, line_of
from querylang.dataclass import dataclass, replace
from querylang.printable import one_line, printable

ROW = "$"
"""How comparisons name the row that they are about."""

_OPERATORS: Mapping[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.And: "and",
    exp.Or: "or",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
}
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_FOLDS: Mapping[type[exp.Expression], str] = {exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max"}
_GREATEST = 2**63 - 1
"""Of integers."""
_SECONDS = {"day": 86_400, "hour": 3_600, "min": 60, "sec": 1}


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the condition of a variable, or a measure (`own` is None).

    names: of the query, by variable
    """

    pattern: RowPattern
    names: Mapping[str, str]
    own: Element | None = None

    def text(self, node: exp.Expression) -> str:
        """An expression; raises NotTranslatedError."""
        if type(node) in _OPERATORS:
            return self._calculation(node)
        match node:
            case exp.Paren():
                return f"({self.text(node.this)})"
            case exp.Not():
                return f"not ({self.text(node.this)})"
            case exp.Neg():
                return f"-{self.text(node.this)}"
            case exp.Boolean():
                return "true" if node.this else "false"
            case exp.Literal():
                return _literal(node)
            case exp.Between():
                value = self.text(node.this)
                return f"({value} >= {self.text(node.args['low'])} and {value} <= {self.text(node.args['high'])})"
            case exp.In() if node.expressions:
                value = self.text(node.this)
                return "(" + " or ".join(f"{value} = {self.text(item)}" for item in node.expressions) + ")"
            case exp.Interval():
                return _seconds(node)
            case exp.Column():
                return self._column(node)
            case exp.First() | exp.Last():
                return self._end(node)
            case exp.Count():
                return self._count(node)
        if type(node) in _FOLDS:
            return self._fold(node, _FOLDS[type(node)])
        if isinstance(node, exp.Anonymous) and str(node.this).upper() == "PREV":
            return self._previous(node)
        raise NotTranslatedError(line_of(node), f"`{node.sql()}` is not translated")

    def _calculation(self, node: exp.Expression) -> str:
        """Operands and operators from left to right; there may be many."""
        behind: list[tuple[str, exp.Expression]] = []
        while (sign := _OPERATORS.get(type(node))) is not None:
            behind.append((sign, node.expression))
            node = node.this
        return " ".join([self.text(node), *(f"{sign} {self.text(other)}" for sign, other in reversed(behind))])

    def _column(self, node: exp.Column) -> str:
        element = self._element(node)
        if self.own is not None and element is self.own:
            return self._field(self.names[element.variable], node)
        name = self.names[element.variable]
        if element.is_single:
            return self._field(name, node)
        self._refuse_empty(element, node)
        return self._field(f"last({name})", node)

    def _element(self, node: exp.Column) -> Element:
        """Whose rows a column is of; without a variable it is the last row that there is."""
        if not node.table:
            return self.own or self.pattern.elements[-1]
        position = self.pattern.position(node.table.upper())
        if position is None:
            raise NotTranslatedError(line_of(node), f"`{node.table}` is not a variable of the pattern")
        element = self.pattern.elements[position]
        if self.own is not None and position > self.pattern.elements.index(self.own):
            raise NotTranslatedError(line_of(node), f"`{node.sql()}` is of a row that comes later")
        return element

    def _field(self, owner: str, node: exp.Column) -> str:
        if node.name == self.pattern.order:
            return f"{owner}.getTime()"
        return f"{owner}.{as_name(node.name, line_of(node))}"

    def _refuse_empty(self, element: Element, node: exp.Expression) -> None:
        if not element.least:
            raise NotTranslatedError(
                line_of(node), f"`{node.sql()}` is null where {element.variable} has no row, which is not translated"
            )

    def _column_in(self, node: exp.Expression) -> exp.Column:
        if not isinstance(node.this, exp.Column) or not node.this.table or node.args.get("expression") is not None:
            raise NotTranslatedError(line_of(node), f"`{node.sql()}` is not translated: it takes VARIABLE.COLUMN alone")
        return node.this

    def _end(self, node: exp.Expression) -> str:
        column = self._column_in(node)
        element = self._element(column)
        name, word = self.names[element.variable], "first" if isinstance(node, exp.First) else "last"
        if element.is_single or (element is self.own and word == "last"):
            return self._field(name, column)
        self._refuse_empty(element, node)
        return self._field(f"{word}({name})", column)

    def _fold(self, node: exp.Expression, word: str) -> str:
        column = self._column_in(node)
        element = self._element(column)
        if element is self.own:
            raise NotTranslatedError(
                line_of(node), f"`{node.sql()}` is over the rows so far; a fold is over all rows of {element.variable}"
            )
        if element.is_single:
            return self._field(self.names[element.variable], column)
        self._refuse_empty(element, node)
        if word == "sum" and not is_never_null(self.pattern, element, column.name):
            raise NotTranslatedError(
                line_of(node),
                f"`{node.sql()}` is null where all are null, where a sum is 0 here;"
                f" let the condition of {element.variable} compare {column.name}",
            )
        return f"{word}({self._field(self.names[element.variable], column)})"

    def _count(self, node: exp.Count) -> str:
        if isinstance(node.this, exp.Star) and self.own is None:
            return " + ".join(self._number(element) for element in self.pattern.elements)
        column = self._column_in(node)
        element = self._element(column)
        if element is self.own:
            raise NotTranslatedError(line_of(node), f"`{node.sql()}` counts the rows so far")
        if not isinstance(column.this, exp.Star) and not is_never_null(self.pattern, element, column.name):
            raise NotTranslatedError(
                line_of(node),
                f"`{node.sql()}` leaves out nulls, where a query counts events; count rows by"
                f" COUNT({element.variable}.*), or let the condition of {element.variable} compare {column.name}",
            )
        return self._number(element)

    def _number(self, element: Element) -> str:
        return "1" if element.is_single else f"count({self.names[element.variable]})"

    def _previous(self, node: exp.Anonymous) -> str:
        column, *rest = node.expressions
        if rest and not (isinstance(rest[0], exp.Literal) and str(rest[0].this) == "1"):
            raise NotTranslatedError(line_of(node), f"`{node.sql()}` looks further back than one row")
        if self.own is None or not isinstance(column, exp.Column) or self._element(column) is not self.own:
            raise NotTranslatedError(line_of(node), f"`{node.sql()}` is not translated: PREV is of the row itself")
        if self.own is self.pattern.elements[0]:
            raise NotTranslatedError(
                line_of(node), f"`{node.sql()}` is of a row before the match; begin the pattern with a variable for it"
            )
        return self._field(f"prev({self.names[self.own.variable]})", column)


def comparisons(writer: Writer, node: exp.Expression | None) -> Iterator[Comparison]:
    """Comparisons of the row, the row before it and constants that a condition asks for."""
    if node is None:
        return
    if isinstance(node, exp.Paren):
        yield from comparisons(writer, node.this)
    elif isinstance(node, exp.And):
        parts: Iterator[Any] = node.flatten()
        for part in parts:
            yield from comparisons(writer, part)
    elif isinstance(node, exp.Between):
        yield from _comparison(writer, node.this, ">=", node.args["low"])
        yield from _comparison(writer, node.this, "<=", node.args["high"])
    elif isinstance(node, exp.Not) and isinstance(node.this.unnest(), _COMPARED):
        inner = node.this.unnest()
        yield from _comparison(writer, inner.this, _OPPOSITE[_OPERATORS[type(inner)]], inner.expression)
    elif isinstance(node, _COMPARED):
        yield from _comparison(writer, node.this, _OPERATORS[type(node)], node.expression)


def _comparison(writer: Writer, left: exp.Expression, operator: str, right: exp.Expression) -> Iterator[Comparison]:
    if not all(_is_of_row(writer, side) for side in (left, right)):
        return
    with suppress(NotTranslatedError):  # it is reported where the condition is translated
        yield Comparison(_side(writer, left), operator, _side(writer, right))


def _is_of_row(writer: Writer, node: exp.Expression) -> bool:
    """Whether nothing of other variables is in it."""
    assert writer.own is not None
    names = {column.table.upper() for column in node.find_all(exp.Column)}
    return names <= {"", writer.own.variable} and not any(node.find(kind) for kind in (exp.First, exp.AggFunc))


def _side(writer: Writer, node: exp.Expression) -> str | float:
    bare: Any = node.unnest()
    if isinstance(bare, exp.Literal) and not bare.is_string:
        return float(str(bare.this))
    if isinstance(bare, exp.Neg) and isinstance(bare.this, exp.Literal) and not bare.this.is_string:
        return -float(str(bare.this.this))
    return writer.text(bare)


def _literal(node: exp.Literal) -> str:
    text = str(node.this)
    if not node.is_string:
        if (text.isdigit() and int(text) > _GREATEST) or isinf(float(text)):
            raise NotTranslatedError(line_of(node), f"the number {text} does not fit an integer or a float")
        return text if not text.startswith(".") else f"0{text}"
    if printable(text.replace("\r", "")) != text.replace("\r", ""):
        raise NotTranslatedError(
            line_of(node),
            f"the text '{one_line(text)}' has a character that acts on a terminal, which is not translated",
        )
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return f'"{escaped}"'


def _seconds(node: exp.Interval) -> str:
    """An interval as seconds, which is what times are counted in."""
    unit = UNITS.get(str(node.args.get("unit") or "").upper().rstrip("S"))
    value = str(node.this.this) if isinstance(node.this, exp.Literal) else ""
    if unit is None or not value.isdecimal() or len(value) > MOST_DIGITS:
        raise NotTranslatedError(line_of(node), f"`{node.sql()}` is not translated; write INTERVAL '10' MINUTE")
    return f"{float(int(value) * _SECONDS[unit])}"


# The row before, however a condition says it, as `PREV`.
#
# Snowflake calls it `LAG`. Flink has neither: there a condition looks at the last row of the
# variable before its own, and from its second row on at its own last row but one.

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
