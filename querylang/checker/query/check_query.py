"""Check one query: each part in its own module, and here which part sees which names.

A part with a mistake is left out and the rest is still checked, without mistakes that only follow
from the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from querylang.checker.names.namespaces import Namespace
from querylang.checker.names.schema import ActionSignature
from querylang.checker.names.scope import Scope
from querylang.checker.query import automaton_builder
from querylang.checker.query.clauses import Clauses
from querylang.checker.query.durations import Constants
from querylang.checker.query.find_every import CheckedEvery, check_every, select_names
from querylang.checker.query.inputs import CheckedInputs, check_inputs
from querylang.checker.query.lint import warn_of_unused
from querylang.checker.query.parameters import check_metadata, check_parameters
from querylang.checker.query.pattern_tree import Pattern, pattern_text
from querylang.checker.query.patterns import CheckedPattern, check_pattern, parts_of
from querylang.checker.statements.actions import check_actions, signatures
from querylang.checker.statements.blocks import CheckedBlock, check_block
from querylang.errors import Mistake
from querylang.plan.automaton import Automaton
from querylang.plan.expression import Expression
from querylang.plan.model import Condition, Parameter, QueryPlan
from querylang.syntax import ast


def check_query(query: ast.Query, name: str, namespace: Namespace) -> QueryPlan | None:
    """One query under its name; None if it has a mistake, which is reported."""
    plan = _Checking(query, namespace).plan(name)
    if plan is not None:
        warn_of_unused(query, plan, namespace.diagnostics)
    return plan


class _Checking:
    """The parts of one query in the order in which they are checked.

    Each sees the names of those before.
    """

    def __init__(self, query: ast.Query, namespace: Namespace) -> None:
        self.query = query
        self.namespace = namespace
        self.section = namespace.diagnostics.section()
        self.find = query.find if isinstance(query.find, ast.Find) else None
        self.clauses = () if self.find is None else self.find.clauses
        self.parameters, names = _parameters(query, namespace)
        self.constants = Constants(namespace, names, _has_all_parameters(query), _pattern_names(self.find))
        self.inputs = CheckedInputs(namespace)
        if isinstance(query.inputs, ast.Inputs):
            self.inputs = check_inputs(query.inputs, self.constants)
        self.pattern = CheckedPattern()
        if self.find is not None:
            self.pattern = check_pattern(self.find.pattern, self.inputs, self.constants)
        self.actions: Mapping[str, ActionSignature] = signatures(query.actions, namespace)

    def plan(self, name: str) -> QueryPlan | None:
        """The whole query; None if it has a mistake, or a part that could not be parsed."""
        self._refuse_clashes()
        scope = self._where_scope()
        clauses = Clauses(self.pattern, self.inputs, self.constants, scope)
        conditions = clauses.conditions(self.clauses)
        every = None if self.find is None else check_every(self.find, self.pattern, scope, self.constants)
        block = self._block(every)
        actions = check_actions(self.query.actions, self.actions, self._action_scope(), self.namespace)
        metadata = _metadata(self.query, self.namespace)
        pattern, terms = self.pattern.tree, self.pattern.plan_terms
        if not self.section.is_clean or pattern is None or len(terms) < len(self.pattern.terms):
            return None
        late = automaton_builder.decided_late(conditions, has_trailing=self.pattern.trailing is not None)
        automaton = self._automaton(pattern, conditions, late)
        if automaton is None:
            return None
        inputs = tuple(item.input for item in self.inputs.items)
        return QueryPlan(
            name=name,
            keys=self.inputs.keys,
            inputs=inputs,
            terms=terms,
            automaton=automaton,
            conditions=conditions,
            block=block.statements,
            slots=block.slots,
            actions=actions,
            leading=self.pattern.leading,
            trailing=self.pattern.trailing,
            decided_late=late,
            every=None if every is None else every.plan,
            parameters=self.parameters,
            metadata=metadata,
            pattern=pattern_text(pattern, terms, inputs),
        )

    def _automaton(
        self, pattern: Pattern, conditions: tuple[Condition, ...], decided_late: tuple[int, ...]
    ) -> Automaton | None:
        """The automaton; None if it is too large, which is reported."""
        has_leading = self.pattern.leading is not None
        try:
            return automaton_builder.build(
                pattern, self.pattern.plan_terms, conditions, decided_late, has_leading=has_leading
            )
        except automaton_builder.TooLargeError:
            assert self.find is not None, "a query with a pattern has a `find`"
            self.namespace.diagnostics.report(Mistake.PATTERN_TOO_LARGE, self.find.pattern.span)
            return None

    # Scopes

    def _query_names(self) -> dict[str, Expression | None]:
        """The names that everything after the inputs sees: parameters and keys."""
        return {**self.inputs.key_names, **self.constants.parameters}

    def _forbidden(self) -> dict[str, Mistake]:
        """In a `find`: names of waits and of `without`s, usable only in certain clauses."""
        forbidden = dict.fromkeys(self._without_names(), Mistake.WITHOUT_NAME)
        return {**forbidden, **dict.fromkeys(self.pattern.wait_names, Mistake.WAIT_NAME)}

    def _scope(
        self, names: Mapping[str, Expression | None], forbidden: Mapping[str, Mistake], unknown: Mistake
    ) -> Scope:
        is_whole = self.constants.is_whole and self.inputs.is_whole and self.pattern.is_whole
        return Scope(names, forbidden, self.actions, unknown=unknown, is_whole=is_whole)

    def _where_scope(self) -> Scope:
        """The scope of conditions, with the names of the pattern."""
        selected = {} if self.find is None else select_names(self.find)
        forbidden = {**self._forbidden(), **dict.fromkeys(selected, Mistake.SELECT_NAME)}
        return self._scope({**self._query_names(), **self.pattern.events()}, forbidden, Mistake.UNKNOWN_NAME)

    def _block(self, every: CheckedEvery | None) -> CheckedBlock:
        """The block; it sees the pattern's names, or with `every` the selected names."""
        if self.find is None or self.find.block is None:
            return CheckedBlock((), 0)
        forbidden = self._forbidden()
        if every is None:
            names = {**self._query_names(), **self.pattern.events(with_optionals=True)}
        else:
            forbidden = {**forbidden, **dict.fromkeys(self.pattern.events(), Mistake.EVERY_NAME)}
            names = {**self._query_names(), **every.names}
        scope = self._scope(names, forbidden, Mistake.UNKNOWN_HERE)
        if any(isinstance(clause, ast.Broken) for clause in self.clauses):
            scope = replace(scope, is_whole=False)
        return check_block(self.find.block, scope, self.namespace)

    def _action_scope(self) -> Scope:
        """The scope of the query's actions; they get events only as arguments."""
        forbidden = dict.fromkeys(self.pattern.events(), Mistake.ACTION_NAME)
        return self._scope(self._query_names(), forbidden, Mistake.UNKNOWN_HERE)

    def _without_names(self) -> dict[str, ast.Name]:
        names: dict[str, ast.Name] = {}
        for clause in self.clauses:
            if isinstance(clause, ast.Without):
                names.setdefault(clause.name.text, clause.name)
        return names

    # Duplicate names

    def _refuse_clashes(self) -> None:
        """Report names of the pattern that are in use already; several `without`s may share one."""
        waits = [wait.name for wait in self.pattern.waits if wait.name is not None]
        names = sorted([*(term.name for term in self.pattern.terms), *waits], key=lambda name: name.span.start)
        seen: set[str] = set()
        for name in names:
            self._refuse_clash(name, seen, "the pattern")
            seen.add(name.text)
        for name in self._without_names().values():
            self._refuse_clash(name, seen, "the `without`")
        seen.update(self._without_names())
        if self.find is not None and self.find.is_every:
            for name in select_names(self.find).values():
                self._refuse_clash(name, seen, "the `select`")

    def _refuse_clash(self, name: ast.Name, seen: set[str], what: str) -> None:
        diagnostics = self.namespace.diagnostics
        if name.text in seen:
            diagnostics.report(Mistake.DUPLICATE_NAME, name.span, name=name.text)
        elif name.text in self.constants.parameters:
            diagnostics.report(Mistake.NAME_IS_PARAMETER, name.span, name=name.text, what=what)
        elif name.text in self.inputs.key_names:
            diagnostics.report(Mistake.NAME_IS_KEY, name.span, name=name.text, what=what)


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
