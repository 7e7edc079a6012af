"""One expression, block or set of definitions checked, with event types and names around it to speak of."""

from __future__ import annotations

from dataclasses import dataclass

from querylang.checker.blocks import CheckedBlock, check_actions, check_block, signatures
from querylang.checker.catalogue import Catalogue
from querylang.checker.checked import Diagnostics
from querylang.checker.expressions.inference import Inference
from querylang.checker.namespaces import Namespace
from querylang.checker.scope import Scope
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import EventOf, Expression, KeyOf, ParameterOf, Type
from querylang.plan.model import Action
from querylang.source import Source
from querylang.syntax import ast
from querylang.syntax.parser import parse

EVENTS = """
event A {
    constant integer MAX := 7;
    float x; integer n; string s; boolean b; decimal d; location at;
    sequence<float> xs; dictionary<string, integer> counts; optional<float> o; B nested; sequence<B> bs;
    action getTime() returns float { return x; }
    action twice(integer k) returns integer { return k * n; }
    action nothing() { print s; }
}
event B { integer m; action double() returns integer { return m * 2; } }
"""

NAMES: dict[str, Expression | None] = {
    "a": EventOf(Type.event("A"), 0),
    "unset": EventOf(Type.optional(Type.event("A")), 1),
    "k": KeyOf(Type.STRING, 0),
    "p": ParameterOf(Type.FLOAT, "p"),
    "open": None,
}
"""A bound event, one that stands under an `or`, a key, a parameter, and a name of an open type."""

EVERY = Scope(
    {"k": NAMES["k"], "p": NAMES["p"]},
    forbidden={"a": Mistake.EVERY_NAME},
    aggregates=Scope(NAMES, aggregates=Mistake.AGGREGATE_NESTED),
)
"""What `select` and `having` see."""


def infer(text: str, scope: Scope | None = None) -> tuple[Expression | None, list[QueryError]]:
    """The typed expression and its mistakes."""
    query, namespace = _query(f"{EVENTS} query Q {{ inputs {{ A() within 1; }} find A as a where {text} }}")
    assert isinstance(query.find, ast.Find)
    (clause,) = query.find.clauses
    if not isinstance(clause, ast.Where):
        return None, namespace.diagnostics.mistakes
    return Inference(scope or Scope(NAMES), namespace).value(clause.condition), namespace.diagnostics.mistakes


def reported(mistakes: list[QueryError]) -> str:
    """The mistakes as lines `text: code: message`."""
    return "\n".join(f"{mistake.span.text}: {mistake.code}: {mistake.message}" for mistake in mistakes)


@dataclass(frozen=True)
class CheckedText:
    """A block and the query's actions, checked."""

    block: CheckedBlock
    actions: tuple[Action, ...]
    reported: str


def check(block: str, actions: str = "") -> CheckedText:
    """A block of a `find`, with actions of the query."""
    text = f"{EVENTS} query Q {{ inputs {{ A() within 1; }} find A as a {{ {block} }} {actions} }}"
    query, namespace = _query(text)
    assert isinstance(query.find, ast.Find)
    assert query.find.block is not None
    known = signatures(query.actions, namespace)
    checked = check_block(query.find.block, Scope(NAMES, actions=known), namespace)
    outer = Scope({name: NAMES[name] for name in "kp"}, actions=known)
    return CheckedText(
        checked, check_actions(query.actions, known, outer, namespace), reported(namespace.diagnostics.mistakes)
    )


def _query(text: str) -> tuple[ast.Query, Namespace]:
    file, mistakes = parse(Source("probe.query", text))
    catalogue = Catalogue({}, is_final=True)
    catalogue.add(file)
    mistakes += catalogue.complete()
    return file.queries[0], catalogue.namespace(file, Diagnostics(mistakes), is_strict=True)
