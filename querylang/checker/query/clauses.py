"""Check the clauses after a pattern: `where`, `within`, `without`, `between`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import assert_never

from querylang.checker.expressions.inference import Inference, conjuncts
from querylang.checker.expressions.inference import parts_of as expressions_in
from querylang.checker.query.durations import Constants
from querylang.checker.query.inputs import CheckedInputs
from querylang.checker.query.patterns import NO_REPEAT, CheckedPattern
from querylang.checker.scope import PREV, Scope
from querylang.dataclass import dataclass, field
from querylang.errors import Mistake, QueryError, listed
from querylang.plan.constants import SECOND
from querylang.plan.expression import (
    Binary,
    Call,
    EndOf,
    EventOf,
    Expression,
    Fold,
    Literal,
    PrevOf,
    Type,
    each_terms_of,
    terms_of,
    type_of,
    walk,
)
from querylang.plan.model import Between, Condition, Duration, Gap, Where, Within, Without
from querylang.plan.text import duration_text
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
        conditions: list[Condition] = [gap for gap, _ in self.pattern.gaps]
        self._warn_of_gone()
        for clause in clauses:
            match clause:
                case ast.Where(condition=node):
                    conditions += self._where(node)
                case ast.Within():
                    conditions += self._within(clause)
                case ast.Without():
                    conditions += self._without(clause)
                case ast.Select() | ast.Having() | ast.Skip() | ast.MatchLimit() | ast.Broken():
                    pass
                case _:
                    assert_never(clause)
        return tuple(conditions)

    def _where(self, node: ast.Expression) -> Iterator[Condition]:
        """One condition per part between the outer `and`s.

        All are ignored if one of the names is unset.
        """
        inference = Inference(self.scope, self.constants.namespace)
        parts = [(part, inference.conditions(part)) for part in conjuncts(node)]
        conditions_of_parts = [(part, condition) for part, conditions in parts for condition in conditions]
        if not any(self._is_addition(condition) for _, condition in conditions_of_parts):
            self._refuse_both_sides(list(names_in(node)))
            mentions = self._mentions(node)
            for _, condition in conditions_of_parts:
                yield Where(condition, mentions)
            return
        for part, condition in conditions_of_parts:
            self._refuse_both_sides(list(names_in(part)))
            self._check_runs(node_span(part), condition)
            yield Where(condition, self._mentions(part))

    def _mentions(self, node: ast.Expression) -> tuple[int, ...]:
        """The terms that an expression names."""
        indexes = {self.pattern.index_of(name.text) for name in names_in(node)}
        return tuple(sorted(index for index in indexes if index is not None))

    def _is_addition(self, condition: Expression) -> bool:
        """Whether a condition uses repeats, folds or `prev`: then each part is asked on its own."""
        terms = self.pattern.terms
        if any(isinstance(node, PrevOf | EndOf | Fold) for node in walk(condition)):
            return True
        return any(terms[term].repeat is not NO_REPEAT for term in terms_of(condition) if term < len(terms))

    def _check_runs(self, span: Span, condition: Expression) -> None:
        """Refuse conditions about each event of two runs, warn of a `prev` that does not exist."""
        terms = self.pattern.terms
        each = [terms[index] for index in sorted(each_terms_of(condition)) if index < len(terms)]
        runs = {term.repeat.group: term.name.text for term in each if term.repeat.is_run}
        if len(runs) > 1:
            names = listed(f"'{name}'" for name in runs.values())
            self._report(Mistake.TWO_RUNS, span, names=names, hint=f"`max({list(runs.values())[-1]}.field)`")
        repeats = self.scope.repeats
        for item in walk(condition):
            if isinstance(item, PrevOf) and repeats is not None and repeats.before(item.term) == frozenset():
                self._warn(Mistake.PREV_NEVER, span, name=terms[item.term].name.text)

    def _within(self, node: ast.Within) -> Iterator[Condition]:
        duration = self.constants.duration(node.duration, "`within`")
        neighbours = _neighbours(node.between)
        between = None if neighbours is not None else self._between(node.between)
        span = None if node.between is None else frozenset(name.text for name in node.between.names)
        if span in self._ranges:
            self._report(Mistake.TWO_WITHIN, node.span)
        self._ranges.add(span)
        if duration is None:
            return
        self._warn_of_idle(node, duration)
        if neighbours is None:
            yield Within(duration, between)
        else:
            yield from self._within_neighbours(node.span, neighbours, duration)

    def _within_neighbours(self, span: Span, name: ast.Name, duration: Duration) -> Iterator[Condition]:
        """`within d between (prev(a) a)` is `where a.getTime() - prev(a).getTime() < d`."""
        index, repeats = self.pattern.index_of(name.text), self.scope.repeats
        if index is None:
            if name.text in self.pattern.wait_names:
                self._report(Mistake.PREV_NAME, name.span)
            else:
                self._report_unknown(name)
            return
        event = None if repeats is None else repeats.single.get(name.text)
        if event is None:
            return
        since = Binary(Type.FLOAT, "-", Call(Type.FLOAT, "getTime", event), PrevOf(Type.FLOAT, index, ""))
        condition = Binary(Type.BOOLEAN, "<", since, _in_seconds(duration))
        self._check_runs(span, condition)
        yield Where(condition, (index,))

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
            if condition is not None:
                self._check_runs(node_span(written), condition)
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
            if isinstance(name, ast.Previous):
                self._report(Mistake.BETWEEN_PREV, name.span)
                return None
            index = self.pattern.index_of(name.text)
            if name.text in named:
                self._report(Mistake.BETWEEN_TWICE, name.span, name=name.text)
            elif index is not None:
                terms.append(index)
            elif name.text not in waits:
                self._report_unknown(name)
            named.add(name.text)
        if len(node.names) < 2:
            self._report_count(node)
        leading, trailing = (
            wait is not None and wait.name in named for wait in (self.pattern.leading, self.pattern.trailing)
        )
        middle = tuple(number for number, (gap, _) in enumerate(self.pattern.gaps) if gap.name in named)
        return Between(tuple(sorted(terms)), leading, trailing, middle)

    def _report_count(self, node: ast.Between) -> None:
        """Too few names; of a run the time that it takes is meant."""
        mistake = QueryError.of(Mistake.BETWEEN_COUNT, node.span)
        repeats = self.scope.repeats
        runs = [name.text for name in node.names if repeats is not None and name.text in repeats.runs]
        hint = (
            f"the time that a run takes is `last({runs[0]}).getTime() - first({runs[0]}).getTime()`" if runs else None
        )
        self.constants.diagnostics.add(mistake.with_hint(hint))

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
        """Warn of a wait that looks further back than the events are kept."""
        for number in () if between is None else between.middle:
            self._warn_of_kept(Mistake.SHORT_AFTER_WAIT, *self.pattern.gaps[number], index)
        leading, item = self.pattern.leading, self.inputs.items[index].input
        if leading is None or not (between is None or between.leading):
            return
        if isinstance(leading.duration, int) and isinstance(item.within, int) and item.within < leading.duration:
            facts = {"wait": duration_text(leading.duration), "within": duration_text(item.within)}
            self._warn(Mistake.SHORT_WINDOW, self.pattern.waits[0].span, event=item.name, **facts)

    def _warn_of_gone(self) -> None:
        """Warn of a wait between steps after which an event before it has left its window."""
        for gap, node in self.pattern.gaps:
            for term in gap.before:
                named = self.pattern.terms[term]
                if named.input is not None and not named.is_optional:
                    self._warn_of_kept(Mistake.NEVER_AFTER_WAIT, gap, node, named.input)

    def _warn_of_kept(self, mistake: Mistake, gap: Gap, node: ast.PatternWait, index: int) -> None:
        """Warn if the events of an input are not kept for longer than a wait takes."""
        item = self.inputs.items[index].input
        if isinstance(gap.duration, int) and isinstance(item.within, int) and item.within <= gap.duration:
            facts = {"wait": duration_text(gap.duration), "within": duration_text(item.within)}
            self._warn(mistake, node.span, event=item.name, **facts)

    def _report(self, mistake: Mistake, span: Span, **facts: str) -> None:
        self.constants.diagnostics.report(mistake, span, **facts)

    def _warn(self, mistake: Mistake, span: Span, **facts: str) -> None:
        self.constants.diagnostics.warn(mistake, span, **facts)


def _neighbours(node: ast.Between | None) -> ast.Name | None:
    """The name of `between (prev(a) a)`; None: it is another range."""
    match None if node is None else node.names:
        case (ast.Previous(word=word, name=name), ast.Name() as own) | (
            ast.Name() as own,
            ast.Previous(word=word, name=name),
        ):
            return name if word.text == PREV and name.text == own.text else None
        case _:
            return None


def _in_seconds(duration: Duration) -> Expression:
    if isinstance(duration, int):
        return Literal(Type.FLOAT, duration / SECOND)
    return duration if type_of(duration) == Type.FLOAT else Call(Type.FLOAT, "toFloat", duration)


def node_span(node: ast.Expression) -> Span:
    """The place of an expression."""
    span: Span = node.span
    return span


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
