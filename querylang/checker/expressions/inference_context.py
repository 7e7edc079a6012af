"""What the modules of type inference share: a protocol, arguments, conversions.

None instead of an expression: a mistake was reported, or a type is open (nothing defines it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from querylang.checker.names.namespaces import Namespace
from querylang.checker.names.scope import Scope
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import Call, Expression, Kind, Literal, New, Type
from querylang.source import Span
from querylang.syntax import ast


class Inferring(Protocol):
    """Infers the types of expressions in one scope."""

    @property
    def scope(self) -> Scope:
        """The meaning of names."""

    @property
    def namespace(self) -> Namespace:
        """The meaning of names of types."""

    def typed(self, node: ast.Expression, wanted: Type | None = None) -> Expression | None:
        """The typed expression.

        `wanted`: the type of an empty `[]` or `{}`; it converts or refuses nothing.
        """

    def of_type(self, node: ast.Expression, wanted: Type, what: str) -> Expression | None:
        """The typed expression, which must be of this type; `what`: how a message calls it."""

    def within(self, scope: Scope) -> Inferring:
        """The same in another scope."""

    def report(self, mistake: QueryError) -> Expression | None:
        """Report a mistake; return the None that replaces the expression."""


def type_of(value: Expression) -> Type:
    """The type of an expression that has a value."""
    assert value.type is not None, "an expression used as a value has a type"
    return value.type


def fitting(value: Expression, wanted: Type) -> Expression:
    """The value, or what it converts to by itself where that is wanted.

    An optional with the value (`optional<integer> x := 42;`), and the float of an integer literal
    (`float x := 42;`).
    """
    if wanted.kind is Kind.OPTIONAL and value.type != wanted:
        inner = fitting(value, wanted.of[0])
        return New(wanted, (inner,)) if inner.type == wanted.of[0] else value
    is_literal = isinstance(value, Literal) and value.type == Type.INTEGER
    return as_float(value) if is_literal and wanted == Type.FLOAT else value


def as_float(value: Expression) -> Expression:
    """An integer as a float, as `toFloat` converts it; a float as it is."""
    if value.type == Type.FLOAT:
        return value
    if isinstance(value, Literal):
        return Literal(Type.FLOAT, float(value.value))
    return Call(Type.FLOAT, "toFloat", value)


def alike(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Both sides of an operator; an integer beside a float is a float."""
    if {left.type, right.type} == {Type.INTEGER, Type.FLOAT}:
        return as_float(left), as_float(right)
    return left, right


def is_empty_literal(node: ast.Expression) -> bool:
    """Whether it is `[]` or `{}`, whose type only the context can give."""
    return isinstance(node, ast.SequenceLiteral | ast.DictionaryLiteral) and not node.items


def check_untyped(inferring: Inferring, node: ast.Expression) -> Expression | None:
    """Report the mistakes in an expression whose expected type is open."""
    return None if is_empty_literal(node) else inferring.typed(node)


def arguments_of(
    inferring: Inferring,
    name: ast.Name,
    nodes: Sequence[ast.Expression],
    parameters: Sequence[tuple[str, Type | None]],
    required: int | None = None,
) -> tuple[Expression, ...] | None:
    """The arguments of a call; None if one has a mistake or their number is wrong.

    - `parameters`: how a message calls each, and its type; None: open.
    - `required`: how many arguments there must be; None: all.
    """
    least = len(parameters) if required is None else required
    if not least <= len(nodes) <= len(parameters):
        inferring.report(wrong_count(name.span, name.text, least, len(parameters), len(nodes)))
        return None
    values = [
        check_untyped(inferring, node) if type_ is None else inferring.of_type(node, type_, what)
        for node, (what, type_) in zip(nodes, parameters, strict=False)
    ]
    found = tuple(value for value in values if value is not None)
    return found if len(found) == len(values) else None


def wrong_count(span: Span, name: str, least: int, most: int, count: int) -> QueryError:
    """The mistake of a call with too few or too many arguments."""
    number = f"{least}" if least == most else f"{least} to {most}"
    expected = "no arguments" if most == 0 else f"{number} argument{'' if least == most == 1 else 's'}"
    return QueryError.of(Mistake.ARGUMENT_COUNT, span, name=name, expected=expected, count=count)
