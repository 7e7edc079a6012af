"""Check one query: each part in its own module, and here which part sees which names.

A part with a mistake is left out and the rest is still checked, without mistakes that only follow
from the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from querylang.checker.diagnostics import Diagnostics
from querylang.checker.names.namespaces import Namespace
from querylang.checker.names.repeats import Repeats, Run
from querylang.checker.names.schema import ActionSignature
from querylang.checker.names.scope import Scope
from querylang.checker.query import automaton_builder
from querylang.checker.query.clauses import Clauses
from querylang.checker.query.durations import Constants
from querylang.checker.query.find_every import check_every, select_names
from querylang.checker.query.inputs import CheckedInputs, check_inputs
from querylang.checker.query.lint import warn_of_unused
from querylang.checker.query.never import warn_of_no_match
from querylang.checker.query.parameters import check_metadata, check_parameters
from querylang.checker.query.pattern_tree import Sequence, may_be_empty, pattern_text
from querylang.checker.query.patterns import CheckedPattern, check_pattern, parts_of
from querylang.checker.query.predecessors import Predecessors
from querylang.checker.query.selects import CheckedSelects, check_selects, check_skip
from querylang.checker.statements.actions import check_actions, signatures
from querylang.checker.statements.blocks import CheckedBlock, check_block
from querylang.errors import Mistake
from querylang.plan.expression import Expression
from querylang.plan.model import Automaton, Condition, Parameter, QueryPlan
from querylang.source import Span
from querylang.syntax import ast


def check_query(query: ast.Query, name: str, namespace: Namespace) -> QueryPlan | None:
    """One query under its name; None if it has a mistake, which is reported."""
    section = namespace.diagnostics.section()
    find = query.find if isinstance(query.find, ast.Find) else None
    clauses = () if find is None else find.clauses
    parameters, values = _parameters(query, namespace)
    constants = Constants(namespace, values, _has_all_parameters(query), _pattern_names(find))
    inputs = _inputs(query, constants)
    pattern = CheckedPattern() if find is None else check_pattern(find.pattern, inputs, constants)
    scopes = _Scopes(find, constants, inputs, pattern, signatures(query.actions, namespace))
    _refuse_clashes(scopes, namespace.diagnostics)
    conditions = Clauses(pattern, inputs, constants, scopes.where).conditions(clauses)
    every = None if find is None else check_every(find, pattern, scopes.where, constants)
    selects = CheckedSelects()
    if find is not None and not find.is_every:
        selects = check_selects(find, pattern, scopes.select, constants)
    skip = None if find is None else check_skip(find, pattern, scopes.where, namespace.diagnostics)
    if find is not None:
        _check_repeats(find, pattern, namespace.diagnostics)
    block = CheckedBlock((), 0)
    if find is not None and find.block is not None:
        names = selects.names if every is None else every.names
        block = check_block(find.block, scopes.block(names, is_every=every is not None), namespace)
    actions = check_actions(query.actions, scopes.signatures, scopes.actions, namespace)
    metadata = _metadata(query, namespace)
    if not section.is_clean or find is None or pattern.tree is None or not pattern.has_all_inputs:
        return None
    decided_late = automaton_builder.decided_late(conditions, has_trailing=pattern.trailing is not None)
    automaton = _automaton(pattern, conditions, decided_late, find.pattern.span, namespace.diagnostics)
    if automaton is None:
        return None
    plan = QueryPlan(
        name=name,
        keys=inputs.keys,
        inputs=inputs.plan_inputs,
        terms=pattern.terms_of_all if find.is_all else pattern.plan_terms,
        automaton=automaton,
        conditions=conditions,
        block=block.statements,
        slots=block.slots,
        actions=actions,
        leading=pattern.leading,
        trailing=pattern.trailing,
        decided_late=decided_late,
        every=None if every is None else every.plan,
        parameters=parameters,
        metadata=metadata,
        selects=selects.plan,
        skip=skip,
        finds_all=find.is_all,
        pattern=pattern_text(pattern.tree, pattern.plan_terms, inputs.plan_inputs),
        nulls_fail=False,
    )
    warn_of_unused(query, plan, namespace.diagnostics)
    warn_of_no_match(find, plan, namespace.diagnostics)
    return plan


def _check_repeats(find: ast.Find, pattern: CheckedPattern, diagnostics: Diagnostics) -> None:
    """Refuse repeats under `find every`, and warn of a last step that may be empty."""
    if find.is_every:
        for part in parts_of(find.pattern):
            if isinstance(part, ast.PatternRepeat):
                diagnostics.report(Mistake.REPEAT_EVERY, part.span)
                return
    if find.is_all:
        _warn_of_all_runs(find, diagnostics)
    if isinstance(pattern.tree, Sequence) and may_be_empty(pattern.tree.parts[-1]):
        last = list(parts_of(find.pattern))[-1]
        diagnostics.warn(Mistake.LAST_EMPTY, last.span)


def _warn_of_all_runs(find: ast.Find, diagnostics: Diagnostics) -> None:
    """Under `find all` each part of an open run is a match."""
    for part in parts_of(find.pattern):
        if isinstance(part, ast.PatternRepeat) and part.most is None and not part.is_consecutive:
            diagnostics.warn(Mistake.ALL_RUNS, part.span)


def _automaton(
    pattern: CheckedPattern,
    conditions: tuple[Condition, ...],
    decided_late: tuple[int, ...],
    span: Span,
    diagnostics: Diagnostics,
) -> Automaton | None:
    """The automaton; None if it is too large, which is reported at `span`."""
    assert pattern.tree is not None, "the pattern has been checked"
    has_leading = pattern.leading is not None
    try:
        return automaton_builder.build(
            pattern.tree, pattern.plan_terms, conditions, decided_late, has_leading=has_leading
        )
    except automaton_builder.TooLargeError:
        diagnostics.report(Mistake.PATTERN_TOO_LARGE, span)
        return None


@dataclass(frozen=True, slots=True)
class _Scopes:
    """Which names each part of a query sees. `find` None: it is missing or could not be parsed."""

    find: ast.Find | None
    constants: Constants
    inputs: CheckedInputs
    pattern: CheckedPattern
    signatures: Mapping[str, ActionSignature]

    @property
    def where(self) -> Scope:
        """The scope of conditions, with the names of the pattern."""
        selected = {} if self.find is None else select_names(self.find)
        forbidden = {**self._forbidden, **dict.fromkeys(selected, Mistake.SELECT_NAME)}
        scope = self._scope({**self._everywhere, **self.pattern.events()}, forbidden, Mistake.UNKNOWN_NAME)
        return replace(scope, repeats=self._repeats(is_block=False))

    @property
    def select(self) -> Scope:
        """The scope of `select` without `every`: as in a condition, but a run is all events."""
        names = self.pattern.events(with_optionals=True)
        runs = {term.name.text: names[term.name.text] for term in self.pattern.terms if term.repeat.is_run}
        return replace(self.where.with_names(runs), repeats=self._repeats(is_block=True))

    def _repeats(self, *, is_block: bool) -> Repeats | None:
        """What folds mean; None under `find every`, whose aggregates have their names."""
        if self.find is None or self.find.is_every:
            return None
        runs = {
            term.name.text: Run(term.name.text, index, term.repeat.group, term.repeat.may_be_empty or bool(term.sides))
            for index, term in enumerate(self.pattern.terms)
            if term.repeat.group is not None
        }
        names = tuple(None if term.schema is None else term.schema.name for term in self.pattern.terms)
        before = Predecessors(self.pattern).before
        return Repeats(runs, self.pattern.events(), is_block, not is_block, before, names)

    def block(self, selected: Mapping[str, Expression | None], *, is_every: bool) -> Scope:
        """The scope of the block: selected names, and without `every` those of the pattern."""
        forbidden = self._forbidden
        names = {**self._everywhere, **selected}
        if is_every:
            forbidden = {**forbidden, **dict.fromkeys(self.pattern.events(), Mistake.EVERY_NAME)}
        else:
            names |= self.pattern.events(with_optionals=True)
        scope = self._scope(names, forbidden, Mistake.UNKNOWN_HERE)
        scope = replace(scope, repeats=self._repeats(is_block=True))
        if self.find is not None and any(isinstance(clause, ast.Broken) for clause in self.find.clauses):
            scope = replace(scope, is_whole=False)
        return scope

    @property
    def actions(self) -> Scope:
        """The scope of the query's actions; they get events only as arguments."""
        forbidden = dict.fromkeys(self.pattern.events(), Mistake.ACTION_NAME)
        return self._scope(self._everywhere, forbidden, Mistake.UNKNOWN_HERE)

    @property
    def without_names(self) -> dict[str, ast.Name]:
        """The names of the `without` clauses, each at its first place."""
        names: dict[str, ast.Name] = {}
        for clause in () if self.find is None else self.find.clauses:
            if isinstance(clause, ast.Without):
                names.setdefault(clause.name.text, clause.name)
        return names

    @property
    def _everywhere(self) -> dict[str, Expression | None]:
        """The names that everything after the inputs sees: parameters and keys."""
        return {**self.inputs.key_names, **self.constants.parameters}

    @property
    def _forbidden(self) -> dict[str, Mistake]:
        """In a `find`: names of waits and of `without`s, usable only in certain clauses."""
        forbidden = dict.fromkeys(self.without_names, Mistake.WITHOUT_NAME)
        return {**forbidden, **dict.fromkeys(self.pattern.wait_names, Mistake.WAIT_NAME)}

    def _scope(
        self, names: Mapping[str, Expression | None], forbidden: Mapping[str, Mistake], unknown: Mistake
    ) -> Scope:
        is_whole = self.constants.is_whole and self.inputs.is_whole and self.pattern.is_whole
        return Scope(names, forbidden, self.signatures, unknown=unknown, is_whole=is_whole)


def _refuse_clashes(scopes: _Scopes, diagnostics: Diagnostics) -> None:
    """Report names of the pattern that are in use already; several `without`s may share one."""
    seen: set[str] = set()

    def refuse(name: ast.Name, what: str) -> None:
        if name.text in seen:
            diagnostics.report(Mistake.DUPLICATE_NAME, name.span, name=name.text)
        elif name.text in scopes.constants.parameters:
            diagnostics.report(Mistake.NAME_IS_PARAMETER, name.span, name=name.text, what=what)
        elif name.text in scopes.inputs.key_names:
            diagnostics.report(Mistake.NAME_IS_KEY, name.span, name=name.text, what=what)

    waits = [wait.name for wait in scopes.pattern.waits if wait.name is not None]
    terms = [term.name for term in scopes.pattern.terms]
    for name in sorted([*terms, *waits], key=lambda name: name.span.start):
        refuse(name, "the pattern")
        seen.add(name.text)
    for name in scopes.without_names.values():
        refuse(name, "the `without`")
    seen.update(scopes.without_names)
    if scopes.find is not None:
        for name in select_names(scopes.find).values():
            refuse(name, "the `select`")


def _inputs(query: ast.Query, constants: Constants) -> CheckedInputs:
    section = query.inputs
    return check_inputs(section, constants) if isinstance(section, ast.Inputs) else CheckedInputs(constants.namespace)


def _parameters(
    query: ast.Query, namespace: Namespace
) -> tuple[tuple[Parameter, ...], Mapping[str, Expression | None]]:
    section = query.parameters
    return check_parameters(section, namespace) if isinstance(section, ast.Parameters) else ((), {})


def _metadata(query: ast.Query, namespace: Namespace) -> tuple[tuple[str, str], ...]:
    section = query.metadata
    return check_metadata(section, namespace.diagnostics) if isinstance(section, ast.Metadata) else ()


def _pattern_names(find: ast.Find | None) -> frozenset[str]:
    """The names of events and waits, before the pattern is checked."""
    parts = () if find is None else parts_of(find.pattern)
    named = (part for part in parts if isinstance(part, ast.PatternTerm | ast.PatternWait))
    return frozenset(part.name.text for part in named if part.name is not None)


def _has_all_parameters(query: ast.Query) -> bool:
    """Whether each parameter could be parsed."""
    match query.parameters:
        case ast.Parameters(items=items):
            return not any(isinstance(item, ast.Broken) for item in items)
        case section:
            return section is None
