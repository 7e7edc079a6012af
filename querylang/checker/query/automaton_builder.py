"""The automaton of a pattern: states, transitions, and on each transition the conditions to check.

The automaton reads a pattern backwards, from the latest event. A state is a pair: the remainder of
the pattern that is still to be found further back, and the terms that are bound already. A
transition binds the newest event of the remainder; there is one for each set of terms that this
event may be bound to. For `A as a -> (B as b and A as c)`:

    state 0   A binds c → 1,  B binds b → 2
    state 1   B binds b → 3
    state 2   A binds c → 3
    state 3   A binds a → accepted
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import assert_never

from querylang.checker.query.patterns import CheckedPattern
from querylang.checker.query.remainders import Pattern, Remainder, Served, Step, may_end, steps, terms_left
from querylang.dataclass import dataclass, replace
from querylang.plan.expression import Expression, terms_of
from querylang.plan.model import (
    ACCEPT,
    Automaton,
    Between,
    Condition,
    Gap,
    State,
    Term,
    Transition,
    Where,
    Within,
    Without,
    mentioned_terms,
)
from querylang.plan.questions import question_of

MOST_TRANSITIONS = 20_000
"""Limit of an automaton's size; `n` terms of one type joined by `and` need about 3 to the power of
`n`.
"""


class AutomatonTooLargeError(ValueError):
    """A pattern with more than MOST_TRANSITIONS transitions."""


def build(
    pattern: Pattern,
    terms: tuple[Term, ...],
    conditions: tuple[Condition, ...],
    decided_late: tuple[int, ...],
    served: tuple[Served, ...],
    *,
    has_leading: bool,
) -> Automaton:
    """The automaton of a pattern; raises AutomatonTooLargeError.

    - `decided_late`: conditions that no transition checks.
    - `served`: by term.
    - `has_leading`: the pattern begins with a `wait`.
    """
    placement = Placement(terms, conditions, decided_late, has_leading=has_leading)
    prevs = placement.prevs
    # A term that may be unset and that no condition names does not distinguish states.
    relevant = placement.mentioned | {
        index for index, term in enumerate(terms) if not term.is_optional and not term.may_be_empty
    }
    start: tuple[Remainder, frozenset[int], frozenset[int]] = (pattern, frozenset(), frozenset())
    # No transition leads back to the start, which consumes the latest event: a state where the same
    # is left, because an optional run has grown, checks more.
    numbers, reached = dict[tuple[Remainder, frozenset[int], frozenset[int]], int](), [start]
    states, size = list[State](), 0
    while len(states) < len(reached):
        remainder, bound, last = reached[len(states)]
        transitions = []
        for step in _preferred(steps(remainder, served)):
            after = (bound | step.binds) & relevant
            target = ACCEPT
            if step.remainder is not None:
                next_number = len(reached)
                following = (step.remainder, after, step.binds & prevs)
                target = numbers.setdefault(following, next_number)
                if target == next_number:
                    reached.append(following)
            progress = Progress(
                before=bound,
                after=after,
                binds=step.binds,
                last=last,
                open_before=terms_left(remainder),
                open_after=frozenset() if step.remainder is None else terms_left(step.remainder),
                is_first=not states,
                is_last=target == ACCEPT,
            )
            checks = placement.checks(progress)
            first, *others = step.inputs
            binds = tuple(sorted(step.binds))
            transitions.append(Transition(first, binds, checks, target, step.follows, tuple(others)))
        size += len(transitions)
        if size > MOST_TRANSITIONS or len(reached) > MOST_TRANSITIONS:
            raise AutomatonTooLargeError
        accepts = placement.at_end(bound, terms_left(remainder)) if states and may_end(remainder) else None
        states.append(State(tuple(transitions), accepts))
    return _in_order(states)


def decided_late(conditions: tuple[Condition, ...], *, has_trailing: bool) -> tuple[int, ...]:
    """The conditions whose range includes the trailing wait, so that only its end decides them."""
    return tuple(index for index, item in enumerate(conditions) if _reaches_trailing(item, has_trailing=has_trailing))


def _in_order(states: list[State]) -> Automaton:
    """Sort the states so that each leads only to later ones; drop those that cannot reach an end.

    Such a state is a Paired remainder whose sides cannot bind the same events to the end. With open
    repeats there are circles, and the states stay in the order in which they were found.
    """
    entries = Counter(transition.target for state in states for transition in state.transitions)
    order = [0]
    for number in order:
        for transition in states[number].transitions:
            entries[transition.target] -= 1
            if transition.target != ACCEPT and not entries[transition.target]:
                order.append(transition.target)
    if len(order) < len(states):
        order = list(range(len(states)))
    accepting = {ACCEPT, *(number for number in order if states[number].accepts is not None)}
    size = 0
    while len(accepting) > size:
        size = len(accepting)
        for number in reversed(order):
            if any(transition.target in accepting for transition in states[number].transitions):
                accepting.add(number)
    kept = [number for number in order if number in accepting]
    if kept == list(range(len(states))):
        return Automaton(tuple(states))
    place = {number: index for index, number in enumerate(kept)} | {ACCEPT: ACCEPT}
    return Automaton(tuple(_renumbered(states[number], place) for number in kept))


def _renumbered(state: State, index_of: dict[int, int]) -> State:
    left = [transition for transition in state.transitions if transition.target in index_of]
    return State(tuple([replace(item, target=index_of[item.target]) for item in left]), state.accepts)


def _preferred(found: Iterator[Step]) -> list[Step]:
    """More names for one event first: the *recent* policy prefers that to an older second event."""
    each = dict.fromkeys(found)
    return sorted(each, key=lambda step: (step.type, -len(step.binds), sorted(step.binds)))


def _reaches_trailing(condition: Condition, *, has_trailing: bool) -> bool:
    match condition:
        case Where() | Gap():
            return False
        case Within(between=between):
            return between is not None and between.trailing
        case Without(between=None):
            return has_trailing
        case Without(between=between):
            assert between is not None
            return between.trailing
    assert_never(condition)


# Which transitions of an automaton check a condition, and which ends.
#
# A condition is checked as soon as it can be evaluated, and whenever its range grows. A range is
# checked as far as its names are bound: if a part fails, the whole fails. A condition that names an
# `or` term is checked only once that term is bound, so never if it stays unset.
#
# A condition about each event of a run is checked whenever one of its names is bound, for what is
# new then. A condition with a fold, or about the first event of a run, is checked when these runs
# are complete. For the last event of a run, which is bound first, it need not wait.


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
    - `is_whole`: it is asked of whole runs, once. `complete`: those that must be complete.
    - `points`: for each wait between steps that it names, the terms that are before the wait.
    """

    index: int
    condition: Condition
    needed: frozenset[int]
    prevs: frozenset[int]
    is_about_each: bool
    is_whole: bool
    complete: frozenset[int]
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
        """Whether all that a condition about whole runs needs is bound, and what it reads is known.

        The last event of a run is bound before all others of it.
        """
        is_late = isinstance(item.condition, Without) or item.prevs
        return not is_late and item.needed <= bound and not item.complete & is_open

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
    needed = _needed(condition, condition.condition if isinstance(condition, Where | Without) else None, terms)
    return _Placed(
        index,
        condition,
        needed=needed,
        prevs=frozenset() if question is None else question.prevs,
        is_about_each=question is not None and not question.is_whole,
        is_whole=question is not None and question.is_whole,
        complete=needed if question is None else needed - question.only_last,
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


# Which terms can have the event directly before that of another term.


class Predecessors:
    """For one pattern; the automaton is built when it is asked for the first time."""

    def __init__(self, pattern: CheckedPattern) -> None:
        self._pattern = pattern
        self._found: dict[int, frozenset[int]] | None = None

    def before(self, term: int) -> frozenset[int] | None:
        """The terms that can be bound directly before; None: the pattern has a mistake."""
        if self._pattern.tree is None or not self._pattern.has_all_inputs:
            return None
        if self._found is None:
            try:
                self._found = _found(self._pattern)
            except AutomatonTooLargeError:
                return None
        return self._found.get(term, frozenset())


def _found(pattern: CheckedPattern) -> dict[int, frozenset[int]]:
    assert pattern.tree is not None, "who asks has seen that it is there"
    states = build(pattern.tree, pattern.plan_terms, (), (), pattern.served, has_leading=False).states
    found: dict[int, frozenset[int]] = {}
    for state in states:
        for transition in state.transitions:
            if transition.target == ACCEPT:
                continue
            older = frozenset(term for item in states[transition.target].transitions for term in item.binds)
            for term in transition.binds:
                found[term] = found.get(term, frozenset()) | older
    return found
