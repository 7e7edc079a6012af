"""Check `select`, `having`, `after match skip` and `at most`: what matches give, and how often."""

from __future__ import annotations

from collections.abc import Iterable

from querylang.checker.checked import Diagnostics
from querylang.checker.expressions.inference import Inference
from querylang.checker.query.durations import Constants
from querylang.checker.query.patterns import CheckedPattern
from querylang.checker.scope import Scope
from querylang.dataclass import dataclass, field, replace
from querylang.errors import Mistake
from querylang.plan.expression import SIMPLE, Expression, Kind, SelectOf, Type, type_of, walk
from querylang.plan.model import Every, MatchLimit, Select, Skip
from querylang.plan.text import MATCH_COLUMNS, SUPPRESSED
from querylang.syntax import ast


@dataclass(frozen=True, slots=True)
class CheckedSelects:
    """What each match selects.

    `names`: what the names mean in the block; `values`: behind the clauses. None: the value has a
    mistake.
    """

    plan: tuple[Select, ...] = ()
    names: dict[str, Expression | None] = field(default_factory=dict)
    values: dict[str, Expression | None] = field(default_factory=dict)


def check_selects(find: ast.Find, pattern: CheckedPattern, scope: Scope, constants: Constants) -> CheckedSelects:
    """The `select` clauses of a query without `every`; each may use those before it.

    `scope`: the scope of a `where`, but for runs.
    """
    open_scope = scope.forbidding(select_names(find).keys() - scope.names.keys(), Mistake.SELECTED_LATER)
    values: dict[str, Expression | None] = {}
    # There may be thousands of clauses: the scope grows with them, and is not copied for each.
    known = dict(open_scope.names)
    own_scope, columns = replace(open_scope, names=known), _columns(find)
    plan: list[Select] = []
    names: dict[str, Expression | None] = {}
    for clause in find.clauses:
        if not isinstance(clause, ast.Select):
            continue
        name = clause.name.text
        value = Inference(own_scope, constants.namespace).value(clause.value)
        if name in values:
            constants.diagnostics.report(Mistake.DUPLICATE_SELECT, clause.name.span, name=name)
            continue
        if name.casefold() in columns:
            constants.diagnostics.report(Mistake.SELECT_IS_COLUMN, clause.name.span, name=name)
        if name in scope.names:  # of the pattern, a parameter or a key: that was reported
            continue
        values[name], known[name], names[name] = value, value, None
        if value is not None and value.type is not None:
            names[name] = SelectOf(_type_in_block(value, pattern), len(plan))
            plan.append(Select(name, value))
    return CheckedSelects(tuple(plan), names, values)


def _columns(find: ast.Find) -> frozenset[str]:
    """The names of the columns that each match has."""
    is_limited = any(isinstance(clause, ast.MatchLimit) for clause in find.clauses)
    return MATCH_COLUMNS | {SUPPRESSED} if is_limited else MATCH_COLUMNS


def _type_in_block(value: Expression, pattern: CheckedPattern) -> Type:
    """The type of a selected value in the block: an optional if it may be unset."""
    type_ = type_of(value)
    terms = {term for node in walk(value) if (term := getattr(node, "term", None)) is not None}
    may_be_unset = any(pattern.terms[term].is_optional for term in terms)
    return Type.optional(type_) if may_be_unset and type_.kind is not Kind.OPTIONAL else type_


def check_skip(find: ast.Find, pattern: CheckedPattern, scope: Scope, diagnostics: Diagnostics) -> Skip | None:
    """What `after match skip` says; None: there is none, or it has a mistake, which is reported."""
    found = [clause for clause in find.clauses if isinstance(clause, ast.Skip)]
    for clause in found[1:]:
        diagnostics.report(Mistake.SKIP_TWICE, clause.span)
    if not found:
        return None
    clause = found[0]
    behind = find.clauses[find.clauses.index(clause) + 1 :]
    if not all(isinstance(item, ast.Skip | ast.MatchLimit | ast.Broken) for item in behind):
        diagnostics.report(Mistake.SKIP_PLACE, clause.span)
    if find.is_every:
        diagnostics.report(Mistake.SKIP_EVERY, clause.span)
    if pattern.trailing is not None:
        diagnostics.report(Mistake.SKIP_WAIT, clause.span)
    if clause.name is None:
        return Skip()
    index = pattern.index_of(clause.name.text)
    if index is None:
        _report_unknown(clause.name, pattern, scope, diagnostics)
    elif pattern.terms[index].is_optional or pattern.terms[index].repeat.may_be_empty:
        diagnostics.report(Mistake.SKIP_UNSET, clause.name.span, name=clause.name.text)
    return Skip(clause.to, index)


def _report_unknown(name: ast.Name, pattern: CheckedPattern, scope: Scope, diagnostics: Diagnostics) -> None:
    """A name that is not one of the pattern's events."""
    if name.text in scope.names:  # a parameter or a key
        diagnostics.report(Mistake.UNKNOWN_NAME, name.span, name=name.text)
        return
    mistake = scope.missing(name, near=_names(pattern))
    if mistake is not None:
        diagnostics.add(mistake)


def _names(pattern: CheckedPattern) -> Iterable[str]:
    return (term.name.text for term in pattern.terms)


def check_at_most(find: ast.Find, scope: Scope, constants: Constants) -> MatchLimit | None:
    """What `at most` says; None: there is none, or it has a mistake, which is reported.

    `scope`: the scope of a `select` behind all of them.
    """
    found = [clause for clause in find.clauses if isinstance(clause, ast.MatchLimit)]
    for clause in found[1:]:
        constants.diagnostics.report(Mistake.AT_MOST_TWICE, clause.span)
    if not found:
        return None
    clause = found[0]
    if not isinstance(find.clauses[-1], ast.MatchLimit | ast.Broken):
        constants.diagnostics.report(Mistake.AT_MOST_PLACE, clause.span)
    count = constants.count(clause.count, "the number of `at most`")
    duration = constants.duration(clause.duration, "the time of `at most`")
    inference = Inference(scope, constants.namespace)
    values: list[Expression] = []
    for node in clause.values:
        value = inference.value(node)
        if value is None or value.type is None:
            continue
        if value.type not in SIMPLE:
            constants.diagnostics.report(Mistake.AT_MOST_KIND, node.span, found=str(value.type))
        elif value in values:
            constants.diagnostics.report(Mistake.AT_MOST_SAME, node.span)
        else:
            values.append(value)
    return None if count is None or duration is None else MatchLimit(count, duration, tuple(values))


# The `select` and `having` clauses of a `find every`.


@dataclass(frozen=True, slots=True)
class CheckedEvery:
    """A `find every`. `names`, `values`: as in `CheckedSelects`."""

    plan: Every
    names: dict[str, Expression | None]
    values: dict[str, Expression | None]


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
    return CheckedEvery(Every(tuple(selects.checked), tuple(having)), selects.names, selects.values)


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
