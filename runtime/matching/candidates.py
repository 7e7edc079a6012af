"""Candidates in plain Python: what conditions about runs say, and the matches of a `find all`.

The rules of conditions about runs are in `docs/matching.md`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import combinations, product
from typing import Any, Protocol

from querylang.plan.model import Term
from querylang.plan.questions import Question
from runtime.interpreter import Context, EvaluationError, Event, evaluate
from runtime.matching.interface import Bindings

# Ask a condition about runs of a candidate, by the rules of `docs/matching.md`.


class Verdict(Enum):
    """What a condition says of a candidate."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_ASKED = "it is about something that is not there"


class HasValue(Protocol):
    """An event of the key."""

    @property
    def value(self) -> Event:
        """The event as a value."""


Iteration = dict[int, int]
"""By run that a condition is about, the position of one event."""


class AskedCandidate:
    """One candidate, or what is bound of it.

    extra: by term, the position of an event that is not the candidate's, as of a `without`
    """

    def __init__(
        self,
        events: Sequence[HasValue],
        terms: Sequence[Term],
        bindings: Bindings,
        context: Context,
        extra: Mapping[int, int] | None = None,
    ) -> None:
        self._events = events
        self._terms = terms
        self._bindings = bindings
        self._context = context
        self._extra = extra or {}
        self._members = sorted({position for run in bindings.values() for position in run})

    def verdict(self, question: Question) -> Verdict:
        """What a condition says of the whole candidate."""
        if not self._is_asked(question):
            return Verdict.NOT_ASKED
        if question.runs and not self._bindings.get(question.runs[0]):
            return Verdict.HOLDS
        return self._of_all(question, self._iterations(question))

    def _is_asked(self, question: Question) -> bool:
        """Whether all is there that a condition is about."""
        if any(is_unset(self._terms, term, self._bindings) for term in question.mentions):
            return False
        if any(not self._bindings.get(end.term) for end in question.ends):
            return False
        return all(self._before(self._bindings[term][0]) is not None for term in question.prevs & question.plain)

    def permits(self, question: Question, *, newest_only: bool) -> bool:
        """Whether a condition about each event may hold, as far as the candidate is known.

        newest_only: the others were asked before
        """
        if any(self._before(self._bindings[term][0]) is None for term in question.prevs & question.plain):
            return True
        iterations = list(self._iterations(question))
        chosen = iterations[-2:] if newest_only else iterations
        return self._of_all(question, iter(chosen)) is not Verdict.FAILS

    def _iterations(self, question: Question) -> Iterator[Iteration]:
        """The newest first; of runs of one group in pairs, as far as these are complete."""
        if not question.runs:
            yield {}
            return
        for positions in zip(*(self._bindings[term] for term in question.runs), strict=False):
            yield dict(zip(question.runs, positions, strict=True))

    def _of_all(self, question: Question, iterations: Iterator[Iteration]) -> Verdict:
        verdict = Verdict.NOT_ASKED
        for iteration in iterations:
            found = self._of_one(question, iteration)
            if found is Verdict.FAILS:
                return found
            verdict = Verdict.HOLDS if found is Verdict.HOLDS else verdict
        return verdict

    def _of_one(self, question: Question, iteration: Iteration) -> Verdict:
        """What the condition says with one event for each name."""
        context = self._context_of(question, iteration)
        if context is None:
            return Verdict.NOT_ASKED
        try:
            for fold in question.folds:
                evaluate(fold, context)
            return Verdict.HOLDS if evaluate(question.expression, context) else Verdict.FAILS
        except EvaluationError:
            return Verdict.FAILS

    def answers(self, question: Question) -> Iterator[tuple[Iteration, Context, bool]]:
        """What a condition sees of each event of its runs, the newest first, where it is asked.

        And whether it fails there.
        """
        is_bound = all(self._bindings.get(term) for term in (*question.runs, *question.plain))
        if not is_bound or not self._is_asked(question):
            return
        for iteration in self._iterations(question):
            context = self._context_of(question, iteration)
            if context is not None:
                yield iteration, context, self._of_one(question, iteration) is Verdict.FAILS

    def _context_of(self, question: Question, iteration: Iteration) -> Context | None:
        """What the condition sees with one event for each name; None = something is not there."""
        at = {term: self._bindings[term][0] for term in question.plain if term in self._bindings}
        at |= iteration
        before = {term: self._before(at[term]) for term in question.prevs}
        if None in before.values():
            return None
        values = {term: self._events[position].value for term, position in (at | dict(self._extra)).items()}
        return replace(
            self._context,
            events=values,
            before={term: self._events[position].value for term, position in before.items() if position is not None},
            runs={
                term: [self._events[position].value for position in reversed(self._bindings.get(term, ()))]
                for term in question.folded
            },
        )

    def _before(self, position: int) -> int | None:
        """The candidate's event directly before this one."""
        place = bisect_left(self._members, position)
        return self._members[place - 1] if place else None


def is_unset(terms: Sequence[Term], term: int, bindings: Bindings) -> bool:
    """Whether a name is unset; a run of no event is not, if its side of an `or` is taken."""
    if not terms[term].is_optional or bindings.get(term):
        return False
    return not any(bindings.get(other) for other in terms[term].side)


# `find all`: which candidates of one event are its matches.

MOST_MATCHES = 10_000
"""For one event; of more candidates the most recent ones are matches."""

TOO_MANY = f"more than {MOST_MATCHES:,} matches with one event: only the most recent {MOST_MATCHES:,} are given"
"""The text of the `error` row."""

Candidate = Mapping[int, Any]
Recency = Callable[[Candidate], Any]


def matches_of(
    candidates: Iterable[Candidate], terms: Sequence[Term], recency: Recency, *, are_ordered: bool
) -> tuple[list[Candidate], bool]:
    """The matches among the candidates, oldest first; and whether there were too many.

    are_ordered: the most recent candidates come first, so no more than are given need be searched

    Sides of an `or` that bind the same events are one match, with the names of both. The search
    finds that one before the ones with the names of one side only.
    """
    found = list[Candidate]()
    covered = set[frozenset[tuple[int, Any]]]()
    has_more = False
    for bindings in candidates:
        if frozenset(bindings.items()) in covered:
            continue
        covered.update(_of_fewer_sides(bindings, terms))
        found.append(bindings)
        if are_ordered and len(found) > MOST_MATCHES:
            return found[MOST_MATCHES - 1 :: -1], True
        if len(found) > 4 * MOST_MATCHES:
            found, has_more = sorted(found, key=recency)[-MOST_MATCHES:], True
    found.sort(key=recency)
    return found[-MOST_MATCHES:], has_more or len(found) > MOST_MATCHES


def _of_fewer_sides(bindings: Candidate, terms: Sequence[Term]) -> Iterator[frozenset[tuple[int, Any]]]:
    """The same candidate without the names of some sides of an `or`; at least one side is left."""
    sides: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for term in bindings:
        for number, side in terms[term].sides:
            sides[number][side].add(term)
    choices = [list(_left_out([*by_side.values()])) for by_side in sides.values() if len(by_side) > 1]
    for chosen in product(*choices):
        left_out = set[int]().union(*chosen)
        if left_out:
            yield frozenset((term, bound) for term, bound in bindings.items() if term not in left_out)


def _left_out(sides: Sequence[set[int]]) -> Iterator[set[int]]:
    """The terms of each choice of sides but all of them."""
    for count in range(len(sides)):
        for chosen in combinations(sides, count):
            yield set[int]().union(*chosen)
