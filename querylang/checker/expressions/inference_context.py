"""What the modules of type inference share: a protocol, arguments, conversions to optional.

None instead of an expression: a mistake was reported, or a type is open (nothing defines it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from querylang.checker.names.namespaces import Namespace
from querylang.checker.names.scope import Scope
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import Expression, New
from querylang.plan.value_types import Kind, Type
from querylang.source import Span
from querylang.syntax import ast


class Inferring(Protocol):
    """Types expressions in one scope."""

    @property
    def scope(self) -> Scope:
        """What names mean."""

    @property
    def namespace(self) -> Namespace:
        """What names of types mean."""

    def typed(self, node: ast.Expression, wanted: Type | None = None) -> Expression | None:
        """The typed expression. `wanted`: the type of an empty `[]` or `{}`; no other is converted or refused."""

    def of_type(self, node: ast.Expression, wanted: Type, what: str) -> Expression | None:
        """The typed expression, which must be of this type; `what` says in messages what it is for."""

    def within(self, scope: Scope) -> Inferring:
        """The same in another scope."""

    def wrong(self, mistake: QueryError) -> Expression | None:
        """Tells a mistake; gives the None that stands for the expression."""


def type_of(value: Expression) -> Type:
    """The type of what `typed` gave."""
    assert value.type is not None, "what returns nothing is no value"
    return value.type


def fitting(value: Expression, wanted: Type) -> Expression:
    """The value; where an optional is wanted and what it holds is there, as an optional.

    The only conversion that happens by itself: `optional<integer> x := 42;` is legal.
    """
    is_inner = wanted.kind is Kind.OPTIONAL and value.type == wanted.of[0]
    return New(wanted, (value,)) if is_inner else value


def is_empty_literal(node: ast.Expression) -> bool:
    """Whether it is `[]` or `{}`, whose type only its surroundings can say."""
    return isinstance(node, ast.SequenceLiteral | ast.DictionaryLiteral) and not node.items


def look_at(inferring: Inferring, node: ast.Expression) -> Expression | None:
    """Tells the mistakes of what stands where the type is open."""
    return None if is_empty_literal(node) else inferring.typed(node)


def arguments_of(
    inferring: Inferring,
    name: ast.Name,
    nodes: Sequence[ast.Expression],
    parameters: Sequence[tuple[str, Type | None]],
    required: int | None = None,
) -> tuple[Expression, ...] | None:
    """The arguments of a call, each of its parameter's type; None if one has a mistake or their number is wrong.

    `parameters`: what each is called in messages, and its type; None for an open one. `required`: how many must be
    there; None: all.
    """
    least = len(parameters) if required is None else required
    if not least <= len(nodes) <= len(parameters):
        inferring.wrong(wrong_count(name.span, name.text, least, len(parameters), len(nodes)))
        return None
    values = [
        look_at(inferring, node) if type_ is None else inferring.of_type(node, type_, what)
        for node, (what, type_) in zip(nodes, parameters, strict=False)
    ]
    found = tuple(value for value in values if value is not None)
    return found if len(found) == len(values) else None


def wrong_count(span: Span, name: str, least: int, most: int, count: int) -> QueryError:
    """The mistake of a call with too few or too many arguments."""
    number = f"{least}" if least == most else f"{least} to {most}"
    expected = "no arguments" if most == 0 else f"{number} argument{'' if least == most == 1 else 's'}"
    return QueryError.of(Mistake.ARGUMENT_COUNT, span, name=name, expected=expected, count=count)
