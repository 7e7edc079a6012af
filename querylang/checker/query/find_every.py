"""Check the `select` and `having` clauses of a `find every`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from querylang.checker.expressions.inference import Inference
from querylang.checker.names.scope import Scope
from querylang.checker.query.durations import Constants
from querylang.checker.query.patterns import CheckedPattern
from querylang.errors import Mistake
from querylang.plan.expression import Expression, SelectOf
from querylang.plan.model import Every, Select
from querylang.syntax import ast


@dataclass(frozen=True, slots=True)
class CheckedEvery:
    """A `find every`. `names`: what its `select` names mean; None: the value has a mistake."""

    plan: Every
    names: dict[str, Expression | None]


def check_every(find: ast.Find, pattern: CheckedPattern, scope: Scope, constants: Constants) -> CheckedEvery | None:
    """The selects and conditions; None for another `find`, which must not have `having`.

    `scope`: the scope of a `where`.
    """
    clauses = [clause for clause in find.clauses if isinstance(clause, ast.Select | ast.Having)]
    if not find.is_every:
        for clause in clauses:
            if isinstance(clause, ast.Having):
                constants.diagnostics.report(Mistake.EVERY_MISSING, clause.span, clause="having")
        return None
    if not clauses and not any(isinstance(clause, ast.Broken) for clause in find.clauses):
        constants.diagnostics.report(Mistake.EVERY_ALONE, find.span)
    if pattern.trailing is not None:
        constants.diagnostics.report(Mistake.EVERY_WAIT, pattern.waits[-1].span)
    outer = outside_aggregates(scope, pattern)
    selects = _Selects(outer.forbidding(select_names(find), Mistake.SELECTED_LATER), constants)
    for clause in clauses:
        if isinstance(clause, ast.Select):
            selects.add(clause)
    inference = Inference(outer.with_names(selects.names), constants.namespace)
    having = [
        condition
        for clause in clauses
        if isinstance(clause, ast.Having)
        for condition in inference.conditions(clause.condition)
    ]
    return CheckedEvery(Every(tuple(selects.checked), tuple(having)), selects.names)


def outside_aggregates(scope: Scope, pattern: CheckedPattern) -> Scope:
    """The scope of `select` and `having`: names of the pattern only within aggregates."""
    inner = replace(scope, aggregates=Mistake.AGGREGATE_NESTED)
    outer = scope.forbidding(pattern.events(), Mistake.OUTSIDE_AGGREGATE)
    return replace(outer, aggregates=inner, unknown=Mistake.UNKNOWN_HERE)


def select_names(find: ast.Find) -> dict[str, ast.Name]:
    """The names of the `select` clauses, each at its first place."""
    names: dict[str, ast.Name] = {}
    for clause in find.clauses:
        if isinstance(clause, ast.Select):
            names.setdefault(clause.name.text, clause.name)
    return names


@dataclass(slots=True)
class _Selects:
    """The `select` clauses in order; each may use those before it."""

    scope: Scope
    constants: Constants
    checked: list[Select] = field(default_factory=list)
    names: dict[str, Expression | None] = field(default_factory=dict)
    values: dict[str, Expression | None] = field(default_factory=dict)

    def add(self, clause: ast.Select) -> None:
        """Add the next clause."""
        name = clause.name.text
        value = Inference(self.scope.with_names(self.values), self.constants.namespace).value(clause.value)
        if name in self.values:
            self.constants.diagnostics.report(Mistake.DUPLICATE_SELECT, clause.name.span, name=name)
            return
        self.values[name] = value
        self.names[name] = None
        if value is not None and value.type is not None:
            self.names[name] = SelectOf(value.type, len(self.checked))
            self.checked.append(Select(name, value))
