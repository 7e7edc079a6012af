"""Check folds, `sum(a.v)` over the events of a run, and `prev(a).v`, the event before.

Both look like calls of actions. An action of the query with such a name has precedence.
"""

from __future__ import annotations

from dataclasses import replace

from querylang.checker.expressions.inference_context import Inferring, type_of, wrong_count
from querylang.checker.names.repeats import ENDS, FOLDS, PREV, Repeats, Run
from querylang.errors import Mistake, QueryError, listed
from querylang.plan.expression import EndOf, EventOf, Expression, Fold, Kind, PrevOf, Type, terms_of
from querylang.plan.library import aggregate_result
from querylang.syntax import ast

_WITHOUT_VALUE = ("avg", "min", "max")
"""Those that have no value over no event."""


def is_fold(inferring: Inferring, node: ast.Call) -> bool:
    """Whether a call is a fold: its name is one, and the pattern has repeated names."""
    repeats = inferring.scope.repeats
    return repeats is not None and bool(repeats.runs) and node.receiver is None and node.name.text in FOLDS


def fold(inferring: Inferring, node: ast.Call) -> Expression | None:
    """Check a fold and its argument, in which a repeated name means one of its events."""
    repeats, name = inferring.scope.repeats, node.name
    assert repeats is not None, "who asks has seen that it is a fold"
    if len(node.arguments) != 1:
        return inferring.report(wrong_count(name.span, name.text, 1, 1, len(node.arguments)))
    argument = node.arguments[0]
    if name.text in ENDS or name.text == "count":
        return _of_run(inferring, repeats, name, argument)
    scope = inferring.scope
    inner = replace(
        scope.with_names(repeats.single),
        repeats=replace(repeats, runs={}, is_prev_usable=False),
        aggregates=Mistake.FOLD_NESTED,
    )
    value = inferring.within(inner).typed(argument)
    if value is None:
        return None
    runs = [run for run in repeats.runs.values() if run.term in terms_of(value)]
    if not runs:
        return inferring.report(QueryError.of(Mistake.FOLD_NO_RUN, node.span, name=name.text))
    if len({run.group for run in runs}) > 1:
        return inferring.report(_two_runs(node, runs))
    type_ = type_of(value)
    result = aggregate_result(name.text, [type_]) if type_ in (Type.INTEGER, Type.FLOAT, Type.DECIMAL) else None
    if result is None:
        return inferring.report(QueryError.of(Mistake.AGGREGATE_TYPES, node.span, name=name.text, found=str(type_)))
    is_optional = repeats.is_block and name.text in _WITHOUT_VALUE and any(run.may_be_empty for run in runs)
    terms = tuple(sorted(run.term for run in runs))
    return Fold(Type.optional(result) if is_optional else result, name.text, value, terms)


def _two_runs(node: ast.Call, runs: list[Run]) -> QueryError:
    names = listed(f"'{run.name}'" for run in runs)
    return QueryError.of(Mistake.FOLD_TWO_RUNS, node.span, name=node.name.text, names=names)


def _of_run(inferring: Inferring, repeats: Repeats, name: ast.Name, argument: ast.Expression) -> Expression | None:
    """Check `count(a)`, `first(a)` and `last(a)`, which take the name of a run."""
    run = repeats.runs.get(argument.name.text) if isinstance(argument, ast.NameUse) else None
    if run is None:
        member = argument.name.text if isinstance(argument, ast.Member) else "field"
        hint = f"write `{name.text}(a).{member}`" if name.text in ENDS else None
        mistake = QueryError.of(Mistake.FOLD_NAME, argument.span, name=name.text)
        return inferring.report(mistake.with_hint(hint))
    event = repeats.single[run.name]
    if event is None:
        return None
    if name.text == "count":
        return Fold(Type.INTEGER, "count", event, (run.term,))
    type_ = type_of(event)
    is_optional = repeats.is_block and run.may_be_empty
    return EndOf(Type.optional(type_) if is_optional else type_, name.text, run.term)


def is_prev(inferring: Inferring, node: ast.Expression | None) -> bool:
    """Whether an expression is `prev(a)`, the event before."""
    if not isinstance(node, ast.Call) or node.receiver is not None or node.name.text != PREV:
        return False
    scope = inferring.scope
    is_other = PREV in scope.actions or bool(inferring.namespace.candidates(PREV))
    return scope.repeats is not None and not is_other


def prev_member(inferring: Inferring, node: ast.Call, member: ast.Name, *, is_called: bool) -> Expression | None:
    """Check `prev(a).v`, or `prev(a).getTime()` if `is_called`."""
    repeats = inferring.scope.repeats
    assert repeats is not None, "who asks has seen that it is `prev`"
    if not repeats.is_prev_usable:
        return inferring.report(QueryError.of(Mistake.PREV_PLACE, node.name.span))
    event = _prev_of(inferring, repeats, node)
    if event is None:
        return None
    if is_called:
        if member.text != "getTime":
            return inferring.report(QueryError.of(Mistake.PREV_ALONE, node.span))
        return PrevOf(Type.FLOAT, event.term, "")
    own = inferring.namespace.of(event.type)
    before = repeats.before(event.term)
    if before is None:
        return None
    names = sorted({name for term in before if (name := repeats.event_names[term]) is not None}) or [own.name]
    schemas = [inferring.namespace.of(Type.event(name)) for name in names]
    types = [schema.type_of(member.text) for schema in schemas]
    found = {type_ for type_ in types if type_ is not None}
    if any(type_ is None and schema.may_have(member.text) for type_, schema in zip(types, schemas, strict=True)):
        return None
    if None in types or len(found) > 1:
        shown = listed(
            f"'{schema.name}' has {'no such field' if type_ is None else str(type_)}"
            for schema, type_ in zip(schemas, types, strict=True)
        )
        return inferring.report(QueryError.of(Mistake.PREV_TYPES, member.span, name=member.text, found=shown))
    return PrevOf(found.pop(), event.term, member.text)


def _prev_of(inferring: Inferring, repeats: Repeats, node: ast.Call) -> EventOf | None:
    """The name of the pattern in `prev(...)`; None: a mistake was reported."""
    if len(node.arguments) != 1:
        inferring.report(wrong_count(node.name.span, PREV, 1, 1, len(node.arguments)))
        return None
    argument = node.arguments[0]
    is_name = isinstance(argument, ast.NameUse) and argument.name.text in repeats.single
    event = inferring.typed(argument)
    if not is_name:
        if event is not None or not isinstance(argument, ast.NameUse):
            inferring.report(QueryError.of(Mistake.PREV_NAME, argument.span))
        return None
    return event if isinstance(event, EventOf) and event.type.kind is Kind.EVENT else None
