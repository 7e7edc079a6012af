"""A query as tables of numbers, for the compiled search: its automaton, its conditions, what a failure teaches.

Takes the plan; gives arrays of records, one a state, a transition, a condition. Everything here is made once a query,
nothing is compiled for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.plan.automaton import ACCEPT, Automaton, Transition
from querylang.plan.expression import terms_of
from querylang.plan.model import Condition, QueryPlan, Where, Within, Without, known
from runtime.instants import NEVER
from runtime.matching.kernel.lookahead import patience
from runtime.matching.kernel.program import KernelProgram, comparison

Integers = NDArray[np.int64]
Records = NDArray[Any]

MOST_LINKS = 8
"""Events are linked to the one before of so many inputs at most; of others the search walks from event to event."""


def _record(*names: str) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in names])


STATE = _record("first", "stop", "input", "link", "need", "memory", "asks", "ahead", "patience")
"""A state's transitions are `first` to before `stop`. `input`: the only one that it takes, -1: several, and `link`: that input's
row in `AutomatonTables.links`, -1: none. `need`: how many events it takes at least from here to the end. `memory`: its row in the
memory of failures, -1: none, and `asks`: the term on whose event a failure depends, -1: on none (`independence`). `ahead`: the
program by which `runtime.matching.kernel.lookahead` looks ahead after `patience` events, -1: none."""

TRANSITION = _record(
    "input", "target", "equals", "term", "first_bind", "stop_bind", "first_check", "first_slow", "stop_check"
)
"""Binds and checks are a part of the lists of `AutomatonTables`. `equals`: where the transitions end that take the same event for
as many names: which of those is best shows at the end only."""

CONDITION = _record(
    *("kind", "program", "length", "input", "first_term", "stop_term", "is_leading", "counted"),
    *("operation", "left", "left_term", "right", "right_term"),
)
"""`kind`: a `Check`. `program`: of a `where`, or of a `without`'s own `where` (-1: none). `length`: of a `within`, microseconds.
`input`: of a `without`. The terms of its range are a part of `ConditionTables.terms`; `is_leading`: the range begins with the leading
wait. `counted`: the row of counts of a `without` whose own condition is about its event alone, -1: all events in the
range are looked at. `operation` and the rest: what a comparison of two operands compares."""


class AutomatonTables(NamedTuple):
    """`states` and `transitions` are records (`STATE`, `TRANSITION`), `binds` are terms, `checks` conditions (`CONDITION`), each
    transition's own.

    `links`: the inputs of which events are linked; `is_first`: by input, whether the first state takes it.
    """

    states: Records
    transitions: Records
    binds: Integers
    checks: Records
    links: Integers
    is_first: NDArray[np.bool_]


class Check(IntEnum):
    """What a condition is."""

    WHERE = 0
    WITHIN = 1
    WITHOUT = 2
    COMPARISON = 3


class ConditionTables(NamedTuple):
    """`conditions` are records (`CONDITION`), `terms` the lists of their ranges."""

    conditions: Records
    terms: Integers


def automaton_tables(query: QueryPlan, conditions: Records, program: KernelProgram) -> AutomatonTables:
    """The automaton. Whole `within`s are left out of its checks: the search goes no further back than they allow."""
    states = query.automaton.states
    transitions = [item for state in states for item in state.transitions]
    checks = [[check for check in item.checks if not is_whole(query.conditions[check])] for item in transitions]
    quick = [sum(_is_quick(conditions, check) for check in item) for item in checks]
    checks = [sorted(item, key=lambda check: not _is_quick(conditions, check)) for item in checks]
    takes = [{item.input for item in state.transitions} for state in states]
    only = [min(inputs) if len(inputs) == 1 else -1 for inputs in takes]
    links = sorted({item for item in only[0 if query.every else 1 :] if item >= 0})[:MOST_LINKS]
    memory, asks = independence(query)
    ahead = [
        _ahead(conditions[list(state.transitions[0].checks)], program)
        if len(state.transitions) == 1 and item in links
        else -1
        for state, item in zip(states, only, strict=True)
    ]
    ends = ends_of([len(state.transitions) for state in states])
    bind_ends, check_ends = ends_of([len(item.binds) for item in transitions]), ends_of([len(item) for item in checks])
    return AutomatonTables(
        states=records(
            STATE,
            first=ends[:-1],
            stop=ends[1:],
            input=only,
            link=[links.index(item) if item in links else -1 for item in only],
            need=_needs(query.automaton),
            memory=memory,
            asks=asks,
            ahead=ahead,
            patience=[NEVER if number < 0 else patience(program, number) for number in ahead],
        ),
        transitions=records(
            TRANSITION,
            input=[item.input for item in transitions],
            target=[item.target for item in transitions],
            equals=list(_equals(query.automaton)),
            term=[item.binds[0] for item in transitions],
            first_bind=bind_ends[:-1] + 1,
            stop_bind=bind_ends[1:],
            first_check=check_ends[:-1],
            first_slow=check_ends[:-1] + np.array(quick, np.int64),
            stop_check=check_ends[1:],
        ),
        binds=np.array([term for item in transitions for term in item.binds], np.int64),
        checks=conditions[[check for item in checks for check in item]],
        links=np.array(links, np.int64),
        is_first=np.array([index in takes[0] for index in range(len(query.inputs))]),
    )


def _is_quick(conditions: Records, index: int) -> bool:
    """Whether a condition is asked before all others of a transition."""
    return bool(conditions[index]["kind"] == Check.COMPARISON)


def _ahead(checks: Records, program: KernelProgram) -> int:
    """The program of the first condition that is asked of many events at once."""
    kinds = (Check.WHERE, Check.COMPARISON)
    found = [
        int(item["program"]) for item in checks if item["kind"] in kinds and patience(program, item["program"]) < NEVER
    ]
    return found[0] if found else -1


def condition_tables(
    query: QueryPlan, programs: Sequence[int], counted: Sequence[int], program: KernelProgram
) -> ConditionTables:
    """The conditions; `programs`: the number of each one's expression, -1 for none; `counted` as in the records."""
    everything = tuple(range(len(query.terms)))
    ranges = [
        everything if isinstance(item, Where) or item.between is None else item.between.terms
        for item in query.conditions
    ]
    ends = ends_of([len(terms) for terms in ranges])
    kinds = [_kind(item) for item in query.conditions]
    compared = [None if number < 0 else comparison(program, number) for number in programs]
    kinds = [
        Check.COMPARISON if kind == Check.WHERE and item is not None else kind
        for kind, item in zip(kinds, compared, strict=True)
    ]
    table = records(
        CONDITION,
        kind=kinds,
        program=programs,
        length=[known(item.duration) if isinstance(item, Within) else NEVER for item in query.conditions],
        input=[item.input if isinstance(item, Without) else -1 for item in query.conditions],
        first_term=ends[:-1],
        stop_term=ends[1:],
        is_leading=[_is_leading(item, query) for item in query.conditions],
        counted=counted,
        operation=[item.operation if item else -1 for item in compared],
        left=[item.left if item else 0 for item in compared],
        left_term=[item.left_term if item else 0 for item in compared],
        right=[item.right if item else 0 for item in compared],
        right_term=[item.right_term if item else 0 for item in compared],
    )
    return ConditionTables(table, np.array([term for terms in ranges for term in terms], np.int64))


def records(dtype: np.dtype[Any], **columns: Sequence[int] | Integers) -> Records:
    """Records of these columns, which are all that the type has."""
    assert dtype.names is not None, "a record has names"
    assert set(dtype.names) == set(columns), "each of its names is a column"
    table: Records = np.zeros(len(columns[dtype.names[0]]), dtype)
    for name, column in columns.items():
        table[name] = column
    return table


def is_whole(condition: Condition) -> bool:
    """Whether it is a `within` over the whole pattern."""
    return isinstance(condition, Within) and condition.between is None


def is_ambiguous(query: QueryPlan) -> bool:
    """Whether some event may serve different names, equally many, at one place of the search."""
    return any(end > number + 1 for number, end in enumerate(_equals(query.automaton)))


def _kind(condition: Condition) -> int:
    match condition:
        case Where():
            return Check.WHERE
        case Within():
            return Check.WITHIN
        case Without():
            return Check.WITHOUT


def _is_leading(condition: Condition, query: QueryPlan) -> bool:
    if isinstance(condition, Where) or query.leading is None:
        return False
    if condition.between is None:
        return isinstance(condition, Without)
    return condition.between.leading


def _equals(automaton: Automaton) -> Iterator[int]:
    """By transition, where those end that are as good as it, so far."""
    first = 0
    for state in automaton.states:
        for place, item in enumerate(state.transitions):
            end = place
            while end < len(state.transitions) and _rank(state.transitions[end]) == _rank(item):
                end += 1
            yield first + end
        first += len(state.transitions)


def _rank(item: Transition) -> tuple[int, int]:
    return item.input, len(item.binds)


def _needs(automaton: Automaton) -> list[int]:
    """The length of the shortest way from each state to the end; states only lead to later ones."""
    needs = [0] * len(automaton.states)
    for index in reversed(range(len(needs))):
        targets = [item.target for item in automaton.states[index].transitions]
        needs[index] = 1 + min(0 if target == ACCEPT else needs[target] for target in targets)
    return needs


def independence(query: QueryPlan) -> tuple[list[int], list[int]]:
    """What a failure from a state means for other tries with the same latest event, so that none is made twice.

    By state, its row in the memory (-1: none) and the term that a failure depends on. Where nothing that is checked from here
    on asks for an event bound before, the latest of all left aside (that one is the same for all tries), it depends on none (-1):
    failing from a position, the search fails from every older one. Where one such event is asked for, the same is true
    of tries with that event; the event bound last, as by a condition on neighbours, is one. A pattern of n terms over
    a window of w events then costs n * w steps, or n * w * w, and not w to the n. What depends on more is not remembered; states
    that are entered in one way only need no memory.
    """
    states = query.automaton.states
    before: list[set[int]] = [set() for _ in states]  # terms bound when a state is entered
    last: list[set[int] | None] = [None for _ in states]  # by the transition that enters it; none where they differ
    fixed: list[set[int] | None] = [None for _ in states]  # to the latest event, on every way to it
    asked = [
        {term for item in state.transitions for check in item.checks for term in _asks(query, query.conditions[check])}
        for state in states
    ]
    for index, state in enumerate(states):
        for item in state.transitions:
            if item.target != ACCEPT:
                before[item.target] |= before[index] | set(item.binds)
                known_fixed, ours = fixed[item.target], set(item.binds) if index == 0 else fixed[index] or set()
                fixed[item.target] = ours if known_fixed is None else known_fixed & ours
                known_last = last[item.target]
                last[item.target] = set(item.binds) if known_last is None or known_last == set(item.binds) else set()
    for index in reversed(range(len(states))):
        for item in states[index].transitions:
            if item.target != ACCEPT:
                asked[index] |= asked[item.target]
    repeated = _repeated(query.automaton)
    memory, asks = [-1] * len(states), [-1] * len(states)
    for index in sorted(repeated):
        varying = asked[index] & before[index] - (fixed[index] or set())
        if len(varying) <= 1 or varying <= (last[index] or set()):
            memory[index], asks[index] = max(memory) + 1, min(varying, default=-1)
    return memory, asks


def _repeated(automaton: Automaton) -> set[int]:
    """The states that a search for one latest event may enter more than once."""
    ways = [(index, item.target) for index, state in enumerate(automaton.states) for item in state.transitions]
    from_start = [target for index, target in ways if index == 0]
    once = {target for target in from_start if [to for _, to in ways].count(target) == 1}
    return set(range(1, len(automaton.states))) - once


def _asks(query: QueryPlan, condition: Condition) -> set[int]:
    """The terms whose events a check looks at; a range without names ends at the latest event and at the one bound last."""
    match condition:
        case Where(condition=expression):
            return set(terms_of(expression))
        case Within(between=between):
            if between is None:
                return set()
            return set(range(len(query.terms))) if between.leading else set(between.terms)
        case Without(input=taken, condition=expression, between=between):
            own = {index for index, term in enumerate(query.terms) if term.input == taken}
            named = set() if between is None else set(between.terms)
            leading = set(range(len(query.terms))) if _is_leading(condition, query) else set()
            return own | named | leading | (set() if expression is None else set(terms_of(expression)))
    raise AssertionError("a condition is of one of three kinds")


def ends_of(lengths: Sequence[int]) -> Integers:
    """Where each of so many lists one behind the other begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def followed_windows(query: QueryPlan, remembered: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """By input, whether its window is followed event by event: all are where events are counted, else those in which a `without`
    looks; of the others only the time of an event is looked at. Empty: none is. `remembered`: as in `runtime.matching.windows`."""
    inputs = range(len(query.inputs))
    if any(remembered[index] and query.inputs[index].retain is not None for index in inputs):
        return remembered
    looked_at = {item.input for item in query.conditions if isinstance(item, Without)}
    return np.array([index in looked_at for index in inputs] if looked_at else [], np.bool_)
