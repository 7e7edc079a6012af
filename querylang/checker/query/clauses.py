"""Check the clauses after a pattern: `where`, `within`, `without`, `between`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import assert_never

from querylang.checker.expressions.inference import Inference
from querylang.checker.expressions.inference import parts_of as expressions_in
from querylang.checker.names.scope import Scope
from querylang.checker.query.durations import Constants
from querylang.checker.query.inputs import CheckedInputs
from querylang.checker.query.patterns import CheckedPattern
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import Binary, EventOf, Expression
from querylang.plan.model import Between, Condition, Where, Within, Without
from querylang.plan.text import duration_text
from querylang.plan.value_types import Type
from querylang.source import Span
from querylang.syntax import ast


@dataclass(frozen=True, slots=True)
class Clauses:
    """Checks the clauses of one query. `scope`: the scope of a `where`."""

    pattern: CheckedPattern
    inputs: CheckedInputs
    constants: Constants
    scope: Scope
    _ranges: set[frozenset[str] | None] = field(default_factory=set)

    def conditions(self, clauses: tuple[ast.Clause, ...]) -> tuple[Condition, ...]:
        """The conditions in text order."""
        found: list[Condition] = []
        for clause in clauses:
            match clause:
                case ast.Where(condition=node):
                    found += self._where(node)
                case ast.Within():
                    found += self._within(clause)
                case ast.Without():
                    found += self._without(clause)
                case ast.Select() | ast.Having() | ast.Broken():
                    pass
                case _:
                    assert_never(clause)
        return tuple(found)

    def _where(self, node: ast.Expression) -> Iterator[Condition]:
        """One condition per part between the outer `and`s.

        All are ignored if one of the names is unset.
        """
        names = list(names_in(node))
        self._refuse_both_sides(names)
        indexes = {self.pattern.index_of(name.text) for name in names}
        mentions = tuple(sorted(index for index in indexes if index is not None))
        for condition in Inference(self.scope, self.constants.namespace).conditions(node):
            yield Where(condition, mentions)

    def _within(self, node: ast.Within) -> Iterator[Condition]:
        duration = self.constants.duration(node.duration, "`within`")
        between = self._between(node.between)
        span = None if node.between is None else frozenset(name.text for name in node.between.names)
        if span in self._ranges:
            self._report(Mistake.TWO_WITHIN, node.span)
        self._ranges.add(span)
        if duration is not None:
            self._warn_of_idle(node, duration)
            yield Within(duration, between)

    def _without(self, node: ast.Without) -> Iterator[Condition]:
        index, schema = self.inputs.find(node.event)
        event = None if schema is None else EventOf(schema.type, len(self.pattern.terms))
        scope = self.scope.with_names({node.name.text: event})
        condition: Expression | None = None
        if node.where is not None:
            written = node.where.condition
            names = list(names_in(written))
            self._refuse_both_sides(names)
            condition = _all(Inference(scope, self.constants.namespace).conditions(written))
            if node.name.text not in {name.text for name in names}:
                self._warn(Mistake.IDLE_WHERE, node.where.span, name=node.name.text)
        between = self._between(node.between)
        if index is not None:
            self._warn_of_short_window(index, between)
            yield Without(index, node.name.text, condition, between)

    def _between(self, node: ast.Between | None) -> Between | None:
        """The range; names that do not belong there are reported and left out."""
        if node is None:
            return None
        waits = self.pattern.wait_names
        terms: list[int] = []
        named: set[str] = set()
        for name in node.names:
            index = self.pattern.index_of(name.text)
            if name.text in named:
                self._report(Mistake.BETWEEN_TWICE, name.span, name=name.text)
            elif index is not None:
                terms.append(index)
            elif name.text not in waits:
                self._report_unknown(name)
            named.add(name.text)
        if len(node.names) < 2:
            self._report(Mistake.BETWEEN_COUNT, node.span)
        leading, trailing = (
            wait is not None and wait.name in named for wait in (self.pattern.leading, self.pattern.trailing)
        )
        return Between(tuple(sorted(terms)), leading, trailing)

    def _report_unknown(self, name: ast.Name) -> None:
        if self.scope.forbidden.get(name.text) is Mistake.WITHOUT_NAME:
            self._report(Mistake.BETWEEN_WITHOUT, name.span, name=name.text)
        elif self.scope.is_whole:
            near = [*(term.name.text for term in self.pattern.terms), *self.pattern.wait_names]
            mistake = QueryError.of(Mistake.UNKNOWN_NAME, name.span, name=name.text)
            self.constants.diagnostics.add(mistake.suggesting(name.text, near))

    def _refuse_both_sides(self, names: list[ast.Name]) -> None:
        """Report two names of which one is always unset."""
        used = {name.text: name for name in reversed(names)}
        terms = [term for term in self.pattern.terms if term.sides and term.name.text in used]
        for one, other in combinations(terms, 2):
            if one.is_opposite(other):
                first, second = sorted((used[one.name.text], used[other.name.text]), key=lambda name: name.span.start)
                self._report(Mistake.BOTH_SIDES, second.span, name=first.text, other=second.text)
                return

    def _warn_of_idle(self, node: ast.Within, duration: int | Expression) -> None:
        """Warn of a `within` that the windows of the inputs always fulfil."""
        if node.between is not None and set(self.pattern.wait_names) & {name.text for name in node.between.names}:
            return
        kept = [self.inputs.items[term.input].input.within for term in self.pattern.terms if term.input is not None]
        known = [length for length in kept if isinstance(length, int)]
        if isinstance(duration, int) and known and len(known) == len(kept) and max(known) < duration:
            self._warn(Mistake.IDLE_WITHIN, node.span, kept=duration_text(max(known)))

    def _warn_of_short_window(self, index: int, between: Between | None) -> None:
        """Warn of a leading wait that looks further back than the events are kept."""
        leading, item = self.pattern.leading, self.inputs.items[index].input
        if leading is None or not (between is None or between.leading):
            return
        if isinstance(leading.duration, int) and isinstance(item.within, int) and item.within < leading.duration:
            facts = {"wait": duration_text(leading.duration), "within": duration_text(item.within)}
            self._warn(Mistake.SHORT_WINDOW, self.pattern.waits[0].span, event=item.event, **facts)

    def _report(self, mistake: Mistake, span: Span, **facts: str) -> None:
        self.constants.diagnostics.report(mistake, span, **facts)

    def _warn(self, mistake: Mistake, span: Span, **facts: str) -> None:
        self.constants.diagnostics.warn(mistake, span, **facts)


def names_in(node: ast.Expression) -> Iterator[ast.Name]:
    """The names that an expression uses as values, in text order."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.NameUse):
            yield part.name
        waiting += reversed(expressions_in(part))


def _all(conditions: list[Expression]) -> Expression | None:
    """The conditions joined by `and`; None if there are no conditions."""
    joined: Expression | None = None
    for condition in conditions:
        joined = condition if joined is None else Binary(Type.BOOLEAN, "and", joined, condition)
    return joined
