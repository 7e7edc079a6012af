"""Type inference: expressions of the syntax tree to typed expressions of the plan.

The result is None if a mistake was reported, or if a type is open (nothing defines it). Nothing
further is reported about None. Each kind of expression has its own module: `literals`, `members`,
`operators`, `calls`, `aggregates`.
"""

from __future__ import annotations

from typing import assert_never

from querylang.checker.expressions import calls, literals, members
from querylang.checker.namespaces import Namespace
from querylang.checker.scope import LONG, Scope, fitting, flat_chain, is_empty_literal, type_of
from querylang.dataclass import dataclass, replace
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import (
    EventOf,
    Expression,
    IndexOf,
    KeyOf,
    Literal,
    LocalOf,
    MemberOf,
    ParameterOf,
    SelectOf,
    Type,
)
from querylang.plan.library import conversion
from querylang.syntax import ast

DEEPEST = 200
"""Levels of nesting of one expression; calls and literals of parts count twice. So all that reads
expressions may recurse.
"""


@dataclass(frozen=True, slots=True)
class Inference:
    """Infers the types of expressions in one scope."""

    scope: Scope
    namespace: Namespace

    def value(self, node: ast.Expression, wanted: Type | None = None) -> Expression | None:
        """The typed expression; `wanted`: the type of an empty `[]` or `{}`."""
        return None if self._is_too_deep(node) else self.typed(node, wanted)

    def check_untyped(self, node: ast.Expression) -> Expression | None:
        """As `value`, where the expected type is open: an empty `[]` or `{}` is not a mistake."""
        return None if is_empty_literal(node) else self.value(node)

    def value_of_type(self, node: ast.Expression, wanted: Type, what: str) -> Expression | None:
        """The typed expression, which must be of this type; `what`: how a message calls it."""
        return None if self._is_too_deep(node) else self.of_type(node, wanted, what)

    def value_beside(self, node: ast.Expression, other: Type, what: str) -> Expression | None:
        """As `value_of_type`, but one may be an integer, the other a float."""
        if self._is_too_deep(node):
            return None
        found = self.typed(node, other)
        is_mixed = found is not None and {other, found.type} == {Type.INTEGER, Type.FLOAT}
        return found if is_mixed else self._fitting(node, found, other, what)

    def effect(self, node: ast.Expression) -> Expression | None:
        """A call as a statement; it may return nothing."""
        if self._is_too_deep(node):
            return None
        return calls.call(self, node, is_statement=True) if isinstance(node, ast.Call) else self.typed(node)

    def conditions(self, node: ast.Expression) -> list[Expression]:
        """The parts between the outer `and`s, each boolean."""
        parts = [self.value_of_type(part, Type.BOOLEAN, "a condition") for part in conjuncts(node)]
        return [part for part in parts if part is not None]

    def typed(self, node: ast.Expression, wanted: Type | None = None) -> Expression | None:
        """As `value`, for a part of an expression that is not too deep."""
        match node:
            case ast.Constant():
                return literals.constant(self, node)
            case ast.NameUse(name=name):
                return members.name(self, name)
            case ast.Member():
                return members.member(self, node)
            case ast.Call():
                return calls.call(self, node)
            case ast.Binary():
                return literals.binary(self, node)
            case ast.Unary():
                return literals.unary(self, node)
            case ast.Index():
                return members.index(self, node)
            case ast.TypeConstant():
                return literals.type_constant(self, node)
            case ast.TypeCall():
                return calls.type_call(self, node)
            case ast.New():
                return literals.new(self, node)
            case ast.SequenceLiteral():
                return literals.sequence(self, node, wanted)
            case ast.DictionaryLiteral():
                return literals.dictionary(self, node, wanted)
            case ast.Refused(span=span, what=what, reason=reason):
                return self.report(QueryError.of(Mistake.NOT_IN_QUERIES, span, what=what, reason=reason))
            case ast.Broken():
                return None
        assert_never(node)

    def of_type(self, node: ast.Expression, wanted: Type, what: str) -> Expression | None:
        """As `value_of_type`, for a part of an expression that is not too deep."""
        return self._fitting(node, self.typed(node, wanted), wanted, what)

    def _fitting(self, node: ast.Expression, found: Expression | None, wanted: Type, what: str) -> Expression | None:
        if found is None:
            return None
        value = fitting(found, wanted)
        if value.type == wanted:
            return value
        facts = {"what": what, "expected": str(wanted), "found": str(found.type)}
        mistake = QueryError.of(Mistake.EXPECTED_TYPE, node.span, **facts)
        return self.report(mistake.with_hint(conversion(type_of(found), wanted)))

    def within(self, scope: Scope) -> Inference:
        """The same in another scope."""
        return replace(self, scope=scope)

    def report(self, mistake: QueryError) -> Expression | None:
        """Report a mistake; return the None that replaces the expression."""
        self.namespace.diagnostics.add(mistake)
        return None

    def _is_too_deep(self, node: ast.Expression) -> bool:
        is_deep = is_deeper(node, DEEPEST)
        if is_deep:
            self.report(QueryError.of(Mistake.TOO_DEEP, node.span, limit=DEEPEST))
        return is_deep


def conjuncts(node: ast.Expression) -> list[ast.Expression]:
    """The parts of an expression between its outer `and`s, in text order; any number of them."""
    parts: list[ast.Expression] = []
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Binary) and part.operator == "and":
            waiting += [part.right, part.left]
        else:
            parts.append(part)
    return parts


def is_deeper(node: ast.Expression, limit: int) -> bool:
    """Whether the expression has more than that many levels; a long chain, halved, has few."""
    waiting: list[tuple[ast.Expression, int]] = [(node, 1)]
    while waiting:
        item, level = waiting.pop()
        if level > limit:
            return True
        if isinstance(item, ast.Constant):
            continue
        chain = flat_chain(item)
        if len(chain) >= LONG:
            below = level + len(chain).bit_length()
            waiting += [(part, below) for part in (chain[0].left, *(link.right for link in chain))]
            continue
        below = level + (1 if isinstance(item, ast.Binary | ast.Unary | ast.Member) else 2)
        parts = parts_of(item)
        if parts and below > limit:
            return True
        waiting += [(part, below) for part in parts if not isinstance(part, ast.Constant)]
    return False


def parts_of(node: ast.Expression) -> tuple[ast.Expression, ...]:
    """The direct parts of an expression."""
    match node:
        case ast.Binary(left=left, right=right):
            return (left, right)
        case ast.Unary(operand=operand):
            return (operand,)
        case ast.Member(receiver=receiver):
            return (receiver,)
        case ast.Call(receiver=receiver, arguments=arguments):
            return arguments if receiver is None else (receiver, *arguments)
        case ast.TypeCall(arguments=arguments) | ast.SequenceLiteral(items=arguments):
            return arguments
        case ast.Index(receiver=receiver, index=index, more=more):
            return (receiver, index, *more)
        case ast.DictionaryLiteral(items=items):
            return tuple(part for pair in items for part in pair)
        case _:
            return ()


# The left side of `:=`: a variable, a member of an event or of a location, an element.


def assigned_target(node: ast.Expression, inference: Inference) -> Expression | None:
    """The target of an assignment; None if there is a mistake, which is reported."""
    target = inference.value(node)
    is_self = isinstance(node, ast.NameUse) and node.name.text == "self"
    if target is None or (isinstance(target, LocalOf | MemberOf | IndexOf) and not is_self):
        return target
    what = _described(target, node.span.text)
    return inference.report(QueryError.of(Mistake.NOT_ASSIGNABLE, node.span, what=what))


def _described(target: Expression, name: str) -> str:
    """What cannot be assigned to, as a message calls it."""
    match target:
        case KeyOf():
            return f"'{name}' is a key: it"
        case ParameterOf():
            return f"'{name}' is a parameter of the query: it"
        case SelectOf():
            return f"'{name}' is a value of `select`: it"
        case EventOf():
            return f"'{name}' may be unset: it"
        case LocalOf():
            return f"'{name}' is the event itself: it"
        case Literal():
            return "a constant"
        case _:
            return "the result of a call or an operator"
