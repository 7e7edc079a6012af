"""What the search stores of a state that it has been in, so that it does not search it twice.

`runtime.matching.remembering` says on which events, of those bound so far, a state's future
depends. Here each of them is one of these:

- the latest event, on every path: it is the same in the whole search;
- the event bound last, on every path: the place where the state is entered says it;
- another one, which is part of a key.

A state that depends on nothing but the latest event, and takes other events than the one directly
before, fails from every older place than one from which it failed: what it may choose only becomes
less. So one place is enough, unless events that block may be members instead. What does not even
depend on the latest event lasts for later searches of the key: windows only lose what was in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from querylang.plan.model import ACCEPT, Automaton, QueryPlan, Without
from runtime.matching.remembering import Past, is_of_choices, pasts
from runtime.matching.run_kernel.tables import PartKind


@dataclass(frozen=True, slots=True)
class MemoryRule:
    """How a state's results are stored.

    parts: what they depend on besides the place of the event bound last
    is_falling: a failure holds for every older place too
    is_lasting: a failure holds for later searches of the key
    """

    parts: tuple[tuple[PartKind, int], ...]
    is_falling: bool
    is_lasting: bool


def memory_rules(query: QueryPlan) -> list[MemoryRule | None]:
    """By state; None: nothing is stored."""
    before, last, fixed = _bound_before(query.automaton)
    pending, again = _pending(query.automaton), _entered_again(query.automaton)
    rules: list[MemoryRule | None] = []
    for number, past in enumerate(pasts(query)):
        if past.is_all or number not in again:
            rules.append(None)
            continue
        found = [item for item in _needed(query, past) if item[1] in before[number]]
        parts = tuple(
            (kind, term)
            for kind, term in found
            if not _is_place(kind, term, last[number], query) and not _is_latest(kind, term, fixed[number])
        )
        reads_place = any(_is_place(kind, term, last[number], query) for kind, term in found)
        reads_latest = any(_is_latest(kind, term, fixed[number]) for kind, term in found)
        follows = any(item.follows for item in query.automaton.states[number].transitions)
        withouts = [item for check in pending[number] if isinstance(item := query.conditions[check], Without)]
        reads_members = any(_may_be_member(item, query, before[number]) for item in withouts)
        # A search that may be ended must store just what the reference matcher does.
        is_exact = is_of_choices(past, query.terms)
        rules.append(
            MemoryRule(
                parts,
                is_falling=not (follows or reads_place or reads_members or is_exact),
                is_lasting=not (parts or reads_latest or withouts or is_exact),
            )
        )
    return rules


def _may_be_member(condition: Without, query: QueryPlan, before: frozenset[int]) -> bool:
    """Whether events of a `without` over the whole pattern may be among those bound before.

    Such an event blocks a path on which it is not bound, and no other one. From an older place on,
    more of them may be bound.
    """
    return condition.between is None and any(query.terms[term].input == condition.input for term in before)


def _needed(query: QueryPlan, past: Past) -> Iterator[tuple[PartKind, int]]:
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


def _is_place(kind: PartKind, term: int, last: frozenset[int], query: QueryPlan) -> bool:
    """Whether it is the event bound last, which the place says."""
    is_run = query.terms[term].group is not None
    return term in last and (kind is PartKind.OLDEST or (kind is PartKind.EVENT and not is_run))


def _is_latest(kind: PartKind, term: int, fixed: frozenset[int]) -> bool:
    return kind is PartKind.EVENT and term in fixed


def _bound_before(automaton: Automaton) -> tuple[list[frozenset[int]], list[frozenset[int]], list[frozenset[int]]]:
    """Three sets of terms, by state.

    - The terms that may be bound when it is entered.
    - Of these, the ones bound by every transition that enters it.
    - The ones bound to the latest event on every path.
    """
    states = automaton.states
    entries = [
        (index, item.target, frozenset(item.binds))
        for index, state in enumerate(states)
        for item in state.transitions
        if item.target != ACCEPT
    ]
    every = frozenset(term for _, _, binds in entries for term in binds)
    before, last = [frozenset[int]() for _ in states], [every for _ in states]
    fixed = [every for _ in states]
    for _, target, binds in entries:
        last[target] &= binds
    is_changing = True
    while is_changing:
        is_changing = False
        for index, target, binds in entries:
            more, fewer = before[target] | before[index] | binds, fixed[target] & (fixed[index] if index else binds)
            is_changing = is_changing or (more, fewer) != (before[target], fixed[target])
            before[target], fixed[target] = more, fewer
    return before, last, fixed


def _entered_again(automaton: Automaton) -> set[int]:
    """The states that searches may enter twice after the same event.

    A state that is entered from one state only, with the event directly before, is entered as often
    as that one; the first one is entered once for each event.
    """
    entries = [(index, item) for index, state in enumerate(automaton.states) for item in state.transitions]
    once, size = {0}, 0
    while size < len(once):
        size = len(once)
        for target in range(1, len(automaton.states)):
            sources = [(index, item) for index, item in entries if item.target == target]
            if len(sources) == 1 and sources[0][0] in once and (sources[0][0] == 0 or sources[0][1].follows):
                once.add(target)
    return set(range(len(automaton.states))) - once


def _pending(automaton: Automaton) -> list[set[int]]:
    """By state, the conditions that it checks, or states after it."""
    states = automaton.states
    found = [
        {check for item in state.transitions for check in item.checks} | {*(state.accepts or ())} for state in states
    ]
    size = -1
    while size != (size := sum(map(len, found))):
        for index, state in enumerate(states):
            for item in state.transitions:
                if item.target != ACCEPT:
                    found[index] |= found[item.target]
    return found
