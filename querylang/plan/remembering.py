"""What a kernel stores of states that its search has been in, so that it searches nothing twice.

A search that has failed in a state, or has found its best completion, need not be repeated where
the events on which the state's future depends are the same (`querylang.plan.questions`). The
kernels store less: `dead_end_rules` and `memory_rules` say what, and why that is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from querylang.dataclass import dataclass
from querylang.plan import questions
from querylang.plan.expression import terms_of
from querylang.plan.model import ACCEPT, Automaton, Condition, QueryPlan, Where, Within, Without

# Which failures of the search are dead ends, so that nothing is searched twice.
#
# Why nothing is lost. A state fails if no choice of older events completes the candidate. Which
# choices there are depends on the position from which it searches. Whether they pass depends on the
# events bound before that the conditions from here on read. Terms that are bound to the latest
# event on every path are left aside: they have the same event in the whole search. So a state that
# failed from a position fails from every older one, as it has a subset of the choices, as long as
# the events read are the same ones.
#
# A later search of the same key has another latest event, and windows that have moved on. A window
# only loses what was in it, and from an older position newer events are never chosen. So the dead
# end lasts, unless a condition reads the latest event. A `without` is another exception: the event
# that blocked a candidate may have left its window before the candidate did. With `find every` the
# limit of the whole pattern is counted from older events too, so it moves back.
#
# A pattern of n terms over a window of w events then costs n * w steps, or n * w * w, not w to the
# n.


@dataclass(frozen=True, slots=True)
class DeadEndRule:
    """What the dead ends of a state depend on.

    terms: on the events of these; of terms that always share an event, one is enough
    is_lasting: later searches of the key may use them
    """

    terms: tuple[int, ...]
    is_lasting: bool


def dead_end_rules(query: QueryPlan) -> list[DeadEndRule | None]:
    """By state; None: none are recorded, as the search would never use them."""
    states = query.automaton.states
    bound = _bound(query.automaton)
    pending, again = questions.pending_of(query.automaton), _entered_again(query.automaton)
    is_limit_moving_back = query.every is not None and query.within is not None
    rules: list[DeadEndRule | None] = [None for _ in states]
    for index in range(1, len(states)):
        read = {term for check in pending[index] for term in _terms_read(query, query.conditions[check])}
        # Terms that another name's event may be bound to, and those that the transition bound that
        # enters the state: these are one event.
        varying = read & bound.before[index] - bound.latest[index]
        terms = sorted(varying)[:1] if varying <= bound.last[index] else sorted(varying)
        has_without = any(isinstance(query.conditions[check], Without) for check in pending[index])
        is_lasting = not (read & bound.latest[index] or has_without or is_limit_moving_back)
        # Within one search, all choices of the events bound before are different.
        is_met_again = index in again and (len(terms) <= 1 or varying < bound.before[index] - bound.latest[index])
        if is_lasting or is_met_again:
            rules[index] = DeadEndRule(tuple(terms), is_lasting)
    return rules


def rows_of(rules: Sequence[DeadEndRule | None]) -> list[int]:
    """By state, the number of its dead ends, those that depend on one event at most first."""
    direct = [number for number, rule in enumerate(rules) if rule is not None and len(rule.terms) <= 1]
    hashed = [number for number, rule in enumerate(rules) if rule is not None and len(rule.terms) > 1]
    order = [*direct, *hashed]
    return [order.index(number) if rule is not None else -1 for number, rule in enumerate(rules)]


def _terms_read(query: QueryPlan, condition: Condition) -> set[int]:
    """The terms whose events a check reads.

    A range without names needs none of its own: it ends at the latest event and at the one bound
    last.
    """
    match condition:
        case Where(condition=expression):
            return set(terms_of(expression))
        case Within(between=between):
            if between is None:
                return set()
            return set(range(len(query.terms))) if between.leading else set(between.terms)
        case Without(input=number, condition=expression, between=between):
            of_input = {index for index, term in enumerate(query.terms) if term.input == number}
            named = set() if between is None else set(between.terms)
            leading = set(range(len(query.terms))) if is_leading(condition, query) else set()
            return of_input | named | leading | (set() if expression is None else set(terms_of(expression)))
    raise AssertionError("a condition is of one of three kinds")


def is_leading(condition: Condition, query: QueryPlan) -> bool:
    """Whether the range of a condition begins with the leading wait."""
    if not isinstance(condition, Within | Without) or query.leading is None:
        return False
    if condition.between is None:
        return isinstance(condition, Without)
    return condition.between.leading


# What the search of a query with additions stores.
#
# Each of the events on which a state's future depends (`pasts`) is one of these:
#
# - the latest event, on every path: it is the same in the whole search;
# - the event bound last, on every path: it is known where the state is entered;
# - another one, which is part of a key.
#
# The oldest event of a run counts only where a condition may read it before the run grows.
#
# A state that depends on nothing but the latest event, and takes other events than the one directly
# before, fails after every older event than one after which it failed: what it may choose only
# becomes less. So one event is enough, unless events that block may be members instead. What does
# not even depend on the latest event lasts for later searches of the key: windows only become less.
#
# A state that a run leads back to, and that reads the run's oldest event at the end only, tries the
# same older events after each event of the run. So where it fails after one of these, it has failed
# after all older ones that the run may take instead.


class PartKind(IntEnum):
    """What of a term a memory depends on."""

    EVENT = 0  # the only event, or the newest one
    OLDEST = 1
    COUNT = 2
    RUN = 3  # all its events


@dataclass(frozen=True, slots=True)
class MemoryRule:
    """How a state's results are stored.

    parts: what they depend on besides the event bound last
    is_falling: a failure holds if an older event is bound last, too
    is_lasting: a failure holds for later searches of the key
    is_alike: where a run leads back to it, a failure after one event holds after all older ones
        that the run may take instead
    """

    parts: tuple[tuple[PartKind, int], ...]
    is_falling: bool
    is_lasting: bool
    is_alike: bool = False


def memory_rules(query: QueryPlan) -> list[MemoryRule | None]:
    """By state; None: nothing is stored."""
    bound = _bound(query.automaton)
    pending, again = questions.pending_of(query.automaton), _entered_again(query.automaton)
    oldest = _OldestRead(query)
    rules: list[MemoryRule | None] = []
    for number, past in enumerate(questions.pasts(query)):
        if past.is_all or number not in again:
            rules.append(None)
            continue
        last, latest = bound.last[number], bound.latest[number]
        needed = [
            (kind, term)
            for kind, term in _needed(query, past)
            if term in bound.before[number] and (kind is not PartKind.OLDEST or term in oldest.by_state[number])
        ]
        reads_last = any(_is_last(kind, term, last, query) for kind, term in needed)
        reads_latest = any(_is_latest(kind, term, latest) for kind, term in needed)
        parts = tuple(
            (kind, term)
            for kind, term in needed
            if not _is_last(kind, term, last, query) and not _is_latest(kind, term, latest)
        )
        follows = any(transition.follows for transition in query.automaton.states[number].transitions)
        checks = [query.conditions[check] for check in pending[number]]
        withouts = [check for check in checks if isinstance(check, Without)]
        reads_members = any(_may_be_member(check, query, bound.before[number]) for check in withouts)
        # A search that may be ended must store just what the reference matcher does.
        is_exact = questions.is_of_choices(past, query.terms)
        rules.append(
            MemoryRule(
                parts,
                is_falling=not (follows or reads_last or reads_members or is_exact),
                is_lasting=not (reads_latest or withouts or is_exact),
                is_alike=not (withouts or is_exact) and oldest.is_alike(number, past, bound.last[number]),
            )
        )
    return rules


class _OldestRead:
    """By state, the runs whose oldest event a condition may read before another event is bound."""

    def __init__(self, query: QueryPlan) -> None:
        self._query, self._states = query, query.automaton.states
        self._needs = questions.Needs(query)
        self._at_ends = [self._at_end(number) for number in range(len(self._states))]
        self.by_state = [set(at_end) for at_end in self._at_ends]
        size = -1
        while size != (size := sum(map(len, self.by_state))):
            for number in reversed(range(len(self._states))):
                self.by_state[number] |= self._on_the_way(number, None)

    def is_alike(self, number: int, past: questions.Past, last: frozenset[int]) -> bool:
        """`MemoryRule.is_alike`, in a query without `without`."""
        loops = [item for item in self._states[number].transitions if item.target == number]
        if len(loops) != 1 or loops[0].follows:
            return False
        run = set(loops[0].binds)
        is_first = bool(run & {*past.newest, *past.ends}) and not run <= last
        return not (is_first or run & {*past.whole, *past.counted} or run & self._on_the_way(number, number))

    def _at_end(self, number: int) -> set[int]:
        """What conditions read where the candidate ends."""
        return {term for check in self._states[number].accepts or () for term in self._oldest_of(check, number)}

    def _on_the_way(self, number: int, left_out: int | None) -> set[int]:
        """What conditions read on transitions and behind them, unless these lead to `left_out`."""
        found = set[int]()
        for item in self._states[number].transitions:
            for check in item.checks:
                read = self._oldest_of(check, number)
                found |= read if self._reads_before(check) else read - set(item.binds)
            if item.target not in (ACCEPT, left_out):
                found |= self.by_state[item.target] - set(item.binds)
        return found

    def _oldest_of(self, check: int, number: int) -> set[int]:
        need = self._needs.of(check, number)
        return set(range(len(self._query.terms))) if need.is_all else {*need.oldest, *need.ends}

    def _reads_before(self, check: int) -> bool:
        """Whether a condition reads the event bound before that which is being bound."""
        condition, question = self._query.conditions[check], self._needs.questions[check]
        return isinstance(condition, Without) or (question is not None and bool(question.prevs))


def _may_be_member(condition: Without, query: QueryPlan, before: frozenset[int]) -> bool:
    """Whether events of a `without` over the whole pattern may be among those bound before.

    Such an event blocks a path on which it is not bound, and no other one. After an older event,
    more of them may be bound.
    """
    return condition.between is None and any(query.terms[term].input == condition.input for term in before)


def _needed(query: QueryPlan, past: questions.Past) -> Iterator[tuple[PartKind, int]]:
    for term in past.whole:
        yield (PartKind.EVENT if query.terms[term].group is None else PartKind.RUN), term
    for term in past.ends:
        yield PartKind.EVENT, term
        if query.terms[term].group is not None:
            yield PartKind.OLDEST, term
    for term in past.newest:
        yield PartKind.EVENT, term
    for term in past.oldest:
        yield (PartKind.EVENT if query.terms[term].group is None else PartKind.OLDEST), term
    for term in past.counted:
        yield PartKind.COUNT, term


def _is_last(kind: PartKind, term: int, last: frozenset[int], query: QueryPlan) -> bool:
    """Whether it is the event bound last."""
    is_run = query.terms[term].group is not None
    return term in last and (kind is PartKind.OLDEST or (kind is PartKind.EVENT and not is_run))


def _is_latest(kind: PartKind, term: int, latest: frozenset[int]) -> bool:
    return kind is PartKind.EVENT and term in latest


# What both sets of rules ask of an automaton. A state of a query with repeats may lead back to
# itself.


class _Bound(NamedTuple):
    """Sets of terms, by state.

    before: those that may be bound when it is entered
    last: of these, the ones bound by every transition that enters it
    latest: those bound to the latest event on every path
    """

    before: list[frozenset[int]]
    last: list[frozenset[int]]
    latest: list[frozenset[int]]


def _bound(automaton: Automaton) -> _Bound:
    states = automaton.states
    entries = [
        (number, transition.target, frozenset(transition.binds))
        for number, state in enumerate(states)
        for transition in state.transitions
        if transition.target != ACCEPT
    ]
    every = frozenset(term for _, _, binds in entries for term in binds)
    before = [frozenset[int]() for _ in states]
    last, latest = [every for _ in states], [every for _ in states]
    for _, target, binds in entries:
        last[target] &= binds
    is_changing = True
    while is_changing:
        is_changing = False
        for number, target, binds in entries:
            more = before[target] | before[number] | binds
            fewer = latest[target] & (latest[number] if number else binds)
            is_changing = is_changing or (more, fewer) != (before[target], latest[target])
            before[target], latest[target] = more, fewer
    return _Bound(before, last, latest)


def _entered_again(automaton: Automaton) -> set[int]:
    """The states that a search may enter twice after the same event.

    A state that is entered from one state only, with the event directly before, is entered as often
    as that one; the first one is entered once for each event.
    """
    entries = [
        (number, transition) for number, state in enumerate(automaton.states) for transition in state.transitions
    ]
    once, size = {0}, 0
    while size < len(once):
        size = len(once)
        for target in range(1, len(automaton.states)):
            sources = [(number, transition) for number, transition in entries if transition.target == target]
            if len(sources) == 1 and sources[0][0] in once and (sources[0][0] == 0 or sources[0][1].follows):
                once.add(target)
    return set(range(len(automaton.states))) - once


# What a search over repeats that finds nothing may cost.


MOST_BOUND = 100_000
"""So many events at most are bound where failures cannot be stored; then a search is ended."""


@dataclass(frozen=True, slots=True)
class SearchCost:
    """How the steps of one new event grow, at most.

    is_ended: with the choices of the events of a run, so a search is ended after `MOST_BOUND`
    power: else with this power of the events in the windows
    """

    is_ended: bool
    power: int

    @property
    def power_text(self) -> str:
        """For people."""
        return {1: "number", 2: "square", 3: "cube"}.get(self.power, f"{self.power}th power")


def search_cost(query: QueryPlan) -> SearchCost:
    """That of the dearest state of a query with repeats.

    A state is searched from once for each value of what its failures depend on, and then tries the
    older events. All later searches share what lasts.
    """
    powers = [0]
    for state, rule in zip(query.automaton.states, memory_rules(query), strict=True):
        if rule is not None:
            tries = not (rule.is_alike or all(transition.follows for transition in state.transitions))
            powers.append(len(rule.parts) + (not rule.is_falling) + tries - rule.is_lasting)
    return SearchCost(any(questions.counted_states(query)), max(powers))
