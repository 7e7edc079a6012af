"""Check the left side of `:=`: a variable, a member of an event or of a location, an element."""

from __future__ import annotations

from querylang.checker.expressions.inference import Inference
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
)
from querylang.syntax import ast


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
