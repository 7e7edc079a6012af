"""Decide which transitions of an automaton check a condition, and which ends.

A condition is checked as soon as it can be evaluated, and whenever its range grows. A range is
checked as far as its names are bound: if a part fails, the whole fails. A condition that names an
`or` term is checked only once that term is bound, so never if it stays unset.

A condition about each event of a run is checked whenever one of its names is bound, for what is new
then. A condition with a fold is checked when the runs are complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from querylang.plan.expression import Expression, terms_of
from querylang.plan.model import Between, Condition, Gap, Term, Where, Within, Without, mentioned_terms
from querylang.plan.questions import question_of


@dataclass(frozen=True, slots=True)
class Progress:
    """What a transition does.

    - `before`, `after`: the terms that are bound.
    - `binds`: the terms that it binds. `last`: those that the transition before it has bound.
    - `open_before`, `open_after`: the terms that may still be bound.
    - `is_first`: it binds the latest event; `is_last`: it completes the candidate.
    """

    before: frozenset[int]
    after: frozenset[int]
    binds: frozenset[int]
    last: frozenset[int]
    open_before: frozenset[int]
    open_after: frozenset[int]
    is_first: bool
    is_last: bool


@dataclass(frozen=True, slots=True)
class _Placed:
    """A condition with what decides when it is checked.

    - `needed`: the terms that must be bound before.
    - `prevs`: the terms whose event before is asked for.
    - `is_about_each`: of each event of a run, or of an event before; without folds.
    - `is_whole`: it can be evaluated only when all its runs are complete.
    - `points`: for each wait between steps that it names, the terms that are before the wait.
    """

    index: int
    condition: Condition
    needed: frozenset[int]
    prevs: frozenset[int]
    is_about_each: bool
    is_whole: bool
    points: tuple[frozenset[int], ...] = ()

    def is_known(self, bound: frozenset[int]) -> bool:
        """Whether the points are known. The latest event before a wait is the first to be bound."""
        return all(point & bound for point in self.points)


class Placement:
    """The conditions of a query, without those that are decided when the trailing wait ends."""

    def __init__(
        self,
        terms: tuple[Term, ...],
        conditions: tuple[Condition, ...],
        decided_late: tuple[int, ...],
        *,
        has_leading: bool,
    ) -> None:
        self._has_leading = has_leading
        self._placed = [
            _placed(index, condition, terms, conditions)
            for index, condition in enumerate(conditions)
            if index not in decided_late
        ]

    def checks(self, progress: Progress) -> tuple[int, ...]:
        """The conditions to check on a transition."""
        return tuple(item.index for item in self._placed if self._is_checked(item, progress))

    def at_end(self, bound: frozenset[int], is_open: frozenset[int]) -> tuple[int, ...]:
        """The conditions to check where the candidate ends without a further event.

        `is_open`: the terms that could still be bound.
        """
        found = []
        for item in self._placed:
            if item.is_whole:
                is_checked = not self._is_complete(item, bound, is_open)
            else:
                is_checked = self._reaches_leading(item.condition) and item.needed <= bound and item.is_known(bound)
            if is_checked:
                found.append(item.index)
        return tuple(found)

    @property
    def mentioned(self) -> frozenset[int]:
        """The terms that some condition needs before it can be checked, or that its range names."""
        ranges = [
            item.condition.between.terms
            for item in self._placed
            if isinstance(item.condition, Within | Without) and item.condition.between
        ]
        points = [point for item in self._placed for point in item.points]
        return frozenset().union(*(item.needed for item in self._placed), *ranges, *points)

    @property
    def prevs(self) -> frozenset[int]:
        """The terms whose event before some condition about each asks for."""
        return frozenset().union(*(item.prevs for item in self._placed if item.is_about_each))

    def _is_checked(self, item: _Placed, progress: Progress) -> bool:
        if item.is_whole:
            was_complete = not progress.is_first and self._is_complete(item, progress.before, progress.open_before)
            is_complete = self._is_complete(item, progress.after, progress.open_after)
            return (progress.is_last and not was_complete) or (is_complete and not was_complete)
        if isinstance(item.condition, Gap):
            return bool(progress.binds.intersection(item.condition.before))
        if not (item.needed <= progress.after and item.is_known(progress.after)):
            return False
        if item.is_about_each:
            return bool(progress.binds & item.needed or progress.last & item.prevs)
        is_new = progress.is_first or not (item.needed <= progress.before and item.is_known(progress.before))
        if isinstance(item.condition, Where):
            return is_new
        return self._grows(item.condition, progress, is_new=is_new)

    @staticmethod
    def _is_complete(item: _Placed, bound: frozenset[int], is_open: frozenset[int]) -> bool:
        """Whether all that a condition about whole runs needs is bound, and no run can grow."""
        is_late = isinstance(item.condition, Without) or item.prevs
        return not is_late and item.needed <= bound and not item.needed & is_open

    def _grows(self, condition: Within | Without, progress: Progress, *, is_new: bool) -> bool:
        """Whether the condition's range becomes longer, or known for the first time."""
        between = condition.between
        if between is None:
            return not progress.is_first or (self._reaches_leading(condition) and progress.is_last)
        if between.leading:
            return progress.is_last
        named = frozenset(between.terms)
        return len(named & progress.after) + len(between.middle) > 1 and (is_new or bool(named & progress.binds))

    def _reaches_leading(self, condition: Condition) -> bool:
        """Whether its range begins with the leading wait, whose point is known at the end."""
        match condition:
            case Where() | Gap() | Within(between=None):
                return False
            case Without(between=None):
                return self._has_leading
            case Within(between=between) | Without(between=between):
                return between is not None and between.leading
        assert_never(condition)


def _placed(index: int, condition: Condition, terms: tuple[Term, ...], conditions: tuple[Condition, ...]) -> _Placed:
    question = question_of(condition, terms)
    between = condition.between if isinstance(condition, Within | Without) else None
    waits = [conditions[number] for number in between.middle] if between is not None else []
    return _Placed(
        index,
        condition,
        needed=_needed(condition, condition.condition if isinstance(condition, Where | Without) else None, terms),
        prevs=frozenset() if question is None else question.prevs,
        is_about_each=question is not None and not question.is_whole,
        is_whole=question is not None and question.is_whole,
        points=tuple(frozenset(wait.before) for wait in waits if isinstance(wait, Gap)),
    )


def _needed(condition: Condition, expression: Expression | None, terms: tuple[Term, ...]) -> frozenset[int]:
    """The terms that must be bound before the condition can be checked."""
    mentioned = mentioned_terms(condition, len(terms))
    optional = frozenset(term for term in mentioned if terms[term].is_optional or terms[term].may_be_empty)
    match condition:
        case Where():
            assert expression is not None
            return optional | terms_of(expression)
        case Gap():
            return frozenset()
        case Within(between=between) | Without(condition=None, between=between):
            return optional | _if_leading(between)
        case Without(between=between):
            assert expression is not None
            return optional | _if_leading(between) | (terms_of(expression) - {len(terms)})
    assert_never(condition)


def _if_leading(between: Between | None) -> set[int]:
    """All names of a range that begins with the leading wait, whose start is known last."""
    return set(between.terms) if between is not None and between.leading else set()
