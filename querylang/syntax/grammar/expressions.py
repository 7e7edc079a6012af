"""Rules of expressions, and what all parts of the grammar share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

from querylang.dataclass import dataclass, field
from querylang.errors import Mistake, QueryError
from querylang.source import Source, Span
from querylang.syntax import ast
from querylang.syntax.folded_tokens import REASONS
from querylang.syntax.lexer import Token

# The base class of all grammar rules: reporting mistakes, lists.

Parts = list[Any]
"""What a rule reads and writes: its node at 0, its parts from 1."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a query with its keyword.

    `node`: Metadata, Parameters, Inputs, Find, ActionDefinition, Broken.
    """

    keyword: str
    span: Span
    node: Any


@dataclass(frozen=True, slots=True)
class QueryParts:
    """A query whose sections are not checked yet; a bare body has no name."""

    span: Span
    name: ast.Name | None
    sections: tuple[Section, ...]


@dataclass(slots=True)
class Rules:
    """The state of one parse that rules may read and write."""

    source: Source
    mistakes: list[QueryError]
    package: ast.Package | None = None
    usings: list[ast.Using] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    """Event types, QueryParts, and sections outside of any query."""
    value: ast.Expression | None = None
    """Of a text that is one expression only."""

    def report(self, mistake: Mistake, span: Span, **facts: str | int) -> None:
        """Report a mistake that a rule has found."""
        self.mistakes.append(QueryError.of(mistake, span, **facts))


def grown(p: Parts) -> list[Any]:
    """The rule of a list: empty, its first element, or a longer list; separators are dropped."""
    match len(p):
        case 1:
            return []
        case 2:
            return [p[1]]
        case length:
            # Extended in place: a copy per element would make long lists slow.
            p[1].append(p[length - 1])
            longer: list[Any] = p[1]
            return longer


def of_kind(nodes: Iterable[Any], kind: type) -> tuple[Any, ...]:
    """The nodes of that class."""
    return tuple(node for node in nodes if isinstance(node, kind))


# Rules of expressions; `querylang.syntax.grammar.PRECEDENCE` holds their precedence.
#
# A `sum` is an expression without comparisons and boolean operators, for places where `or` and `=`
# mean something else.

# ruff: noqa: D403 (docstrings are rules)


_MOST_DIGITS = 100
"""Of an integer without leading zeros; no type has more, and Python refuses to read thousands."""


class ExpressionRules(Rules):
    """Operators, calls, names, literals."""

    def p_same_expression(self, p: Parts) -> None:
        """expression : comparison
        | sum"""

    def p_binary(self, p: Parts) -> None:
        """expression : expression OR expression
        | expression XOR expression
        | expression AND expression
        comparison : sum EQ sum
        | sum NE sum
        | sum LT sum
        | sum LE sum
        | sum GT sum
        | sum GE sum
        | sum IN sum
        sum : sum PLUS sum
        | sum MINUS sum
        | sum STAR sum
        | sum SLASH sum
        | sum PERCENT sum"""
        p[0] = ast.Binary(p[1].span.until(p[3].span), p[2].content, p[1], p[3])

    def p_binary_not_in(self, p: Parts) -> None:
        """comparison : sum NOT IN sum"""
        p[0] = ast.Binary(p[1].span.until(p[4].span), "not in", p[1], p[4])

    def p_unary_null(self, p: Parts) -> None:
        """comparison : sum IS NULL
        | sum IS NOT NULL"""
        operator = "is null" if len(p) == 4 else "is not null"
        p[0] = ast.Unary(p[1].span.until(p[len(p) - 1].span), operator, p[1])

    def p_unary(self, p: Parts) -> None:
        """expression : NOT expression
        sum : MINUS sum %prec NEGATIVE"""
        p[0] = ast.Unary(p[1].span.until(p[2].span), p[1].content, p[2])

    def p_chain(self, p: Parts) -> None:
        """comparison : comparison comparer sum"""
        if not isinstance(p[1], ast.Broken):
            self.report(Mistake.COMPARISON_CHAIN, p[2].span)
        p[0] = ast.Broken(p[1].span.until(p[3].span))

    def p_same_comparer(self, p: Parts) -> None:
        """comparer : EQ
        | NE
        | LT
        | LE
        | GT
        | GE
        | IN"""

    def p_same_sum(self, p: Parts) -> None:
        """sum : postfix
        | positive"""

    def p_sum_new(self, p: Parts) -> None:
        """sum : NEW type"""
        p[0] = ast.New(p[1].span.until(p[2].span), p[2])

    def p_sum_dictionary(self, p: Parts) -> None:
        """sum : LBRACE RBRACE
        | LBRACE pairs RBRACE"""
        items = tuple(p[2]) if len(p) == 4 else ()
        p[0] = ast.DictionaryLiteral(p[1].span.until(p[len(p) - 1].span), items)

    def p_pairs(self, p: Parts) -> None:
        """pairs : pairs COMMA pair
        | pair"""
        p[0] = grown(p)

    def p_pair(self, p: Parts) -> None:
        """pair : expression COLON expression"""
        p[0] = (p[1], p[3])

    # What may come before a dot, an index, an assignment

    def p_postfix_member(self, p: Parts) -> None:
        """postfix : postfix DOT NAME"""
        p[0] = ast.Member(p[1].span.until(p[3].span), p[1], ast.Name(p[3].content, p[3].span))

    def p_postfix_call(self, p: Parts) -> None:
        """postfix : postfix DOT NAME LPAREN arguments RPAREN"""
        name = ast.Name(p[3].content, p[3].span)
        p[0] = ast.Call(p[1].span.until(p[6].span), p[1], name, tuple(p[5]))

    def p_postfix_index(self, p: Parts) -> None:
        """postfix : postfix LBRACKET argument RBRACKET"""
        p[0] = ast.Index(p[1].span.until(p[4].span), p[1], p[3])

    def p_postfix_index_of_several(self, p: Parts) -> None:
        """postfix : postfix LBRACKET argument COMMA argument_list RBRACKET"""
        p[0] = ast.Index(p[1].span.until(p[6].span), p[1], p[3], tuple(p[5]))

    def p_same_postfix(self, p: Parts) -> None:
        """postfix : literal"""

    def p_postfix_name(self, p: Parts) -> None:
        """postfix : name"""
        p[0] = ast.NameUse(p[1])

    def p_postfix_function(self, p: Parts) -> None:
        """postfix : name LPAREN arguments RPAREN"""
        p[0] = ast.Call(p[1].span.until(p[4].span), None, p[1], tuple(p[3]))

    def p_postfix_rooted(self, p: Parts) -> None:
        """postfix : DOT qualified_name LPAREN arguments RPAREN"""
        name = ast.Name(f".{p[2].text}", p[1].span.until(p[2].span))
        p[0] = ast.Call(p[1].span.until(p[5].span), None, name, tuple(p[4]))

    def p_postfix_type_constant(self, p: Parts) -> None:
        """postfix : basic_type DOT NAME"""
        p[0] = ast.TypeConstant(p[1].span.until(p[3].span), p[1], ast.Name(p[3].content, p[3].span))

    def p_postfix_type_call(self, p: Parts) -> None:
        """postfix : basic_type DOT NAME LPAREN arguments RPAREN"""
        name = ast.Name(p[3].content, p[3].span)
        p[0] = ast.TypeCall(p[1].span.until(p[6].span), p[1], name, tuple(p[5]))

    def p_postfix_type_constructor(self, p: Parts) -> None:
        """postfix : basic_type LPAREN arguments RPAREN"""
        p[0] = ast.TypeCall(p[1].span.until(p[4].span), p[1], None, tuple(p[3]))

    def p_postfix_group(self, p: Parts) -> None:
        """postfix : LPAREN group RPAREN"""
        p[0] = p[2]

    def p_same_group(self, p: Parts) -> None:
        """group : expression"""

    def p_postfix_sequence(self, p: Parts) -> None:
        """postfix : LBRACKET arguments RBRACKET"""
        p[0] = ast.SequenceLiteral(p[1].span.until(p[3].span), tuple(p[2]))

    def p_postfix_refused(self, p: Parts) -> None:
        """postfix : REFUSED_VALUE"""
        p[0] = ast.Refused(p[1].span, f"`{p[1].content}`", REASONS[p[1].content])

    def p_arguments(self, p: Parts) -> None:
        """arguments : argument_list
        |"""
        p[0] = p[1] if len(p) == 2 else []

    def p_argument_list(self, p: Parts) -> None:
        """argument_list : argument_list COMMA argument
        | argument"""
        p[0] = grown(p)

    def p_same_argument(self, p: Parts) -> None:
        """argument : expression"""

    # Literals

    def p_same_literal(self, p: Parts) -> None:
        """literal : number"""

    def p_literal_string(self, p: Parts) -> None:
        """literal : STRING_LITERAL"""
        p[0] = ast.Constant(p[1].span, p[1].content)

    def p_literal_boolean(self, p: Parts) -> None:
        """literal : TRUE
        | FALSE"""
        p[0] = ast.Constant(p[1].span, p[1].content == "true")

    def p_literal_decimal(self, p: Parts) -> None:
        """literal : DECIMAL_LITERAL"""
        p[0] = self._decimal(p[1])

    def p_number_integer(self, p: Parts) -> None:
        """number : INTEGER_LITERAL"""
        is_hexadecimal = p[1].content[1:2] in {"x", "X"}
        digits = p[1].content[2 if is_hexadecimal else 0 :].lstrip("0") or "0"
        if len(digits) > _MOST_DIGITS:
            self.report(Mistake.NUMBER_RANGE, p[1].span, type="integer")
            digits = "0"
        p[0] = ast.Constant(p[1].span, int(digits, 16 if is_hexadecimal else 10))

    def p_number_float(self, p: Parts) -> None:
        """number : FLOAT_LITERAL"""
        value = float(p[1].content)
        if math.isinf(value):
            self.report(Mistake.NUMBER_RANGE, p[1].span, type="float")
        p[0] = ast.Constant(p[1].span, value)

    def p_signed_literal(self, p: Parts) -> None:
        """signed_literal : MINUS literal"""
        p[0] = ast.Unary(p[1].span.until(p[2].span), "-", p[2])

    def p_same_signed_literal(self, p: Parts) -> None:
        """signed_literal : literal
        | positive"""

    def p_positive(self, p: Parts) -> None:
        """positive : PLUS number
        | PLUS DECIMAL_LITERAL"""
        p[0] = p[2] if isinstance(p[2], ast.Constant) else self._decimal(p[2])

    def _decimal(self, token: Token) -> ast.Expression:
        try:
            return ast.Constant(token.span, Decimal(token.content.removesuffix("d")))
        except InvalidOperation:  # the exponent has too many digits for decimals
            self.report(Mistake.NUMBER_RANGE, token.span, type="decimal")
            return ast.Broken(token.span)
