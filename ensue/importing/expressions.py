"""SQL expressions of a row pattern to expressions of a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from ensue.importing.exclusion import Comparison
from ensue.importing.null_columns import is_never_null
from ensue.importing.pattern_text import MOST_DIGITS
from ensue.importing.row_patterns import Element, NotTranslatedError, RowPattern
from ensue.importing.sql_reader import UNITS, line_of

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
        if (sign := _OPERATORS.get(type(node))) is not None:
            return f"{self.text(node.this)} {sign} {self.text(node.expression)}"
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
        return f"{owner}.{node.name}" if node.name.isidentifier() else f"{owner}.`{node.name}`"

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
        yield from comparisons(writer, node.this)
        yield from comparisons(writer, node.expression)
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
        return text if not text.startswith(".") else f"0{text}"
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
