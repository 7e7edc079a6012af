"""The fast matcher: one compiled search for every query, driven by the automaton and the conditions' program as tables.

Takes ordered events as columns; operands of conditions are computed as columns first, then each new event starts a depth-first
search backwards in time that prefers newer events: the first accepting path is the winner by the *recent* policy.
No partial matches are kept; windows, `within` and conditions, checked as early as they can be decided, cut the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.automaton import ACCEPT, Automaton
from querylang.expression import Expression, Type, terms_of
from querylang.plan import QueryPlan
from runtime.compiled import inlined, kernel
from runtime.controls import NEVER
from runtime.expressions import Column, evaluate
from runtime.kernel_program import STACK, Conditions, KernelProgram, Stacks, build_program, holds
from runtime.arrow import one_chunk
from runtime.matcher import Found, Ordered
from runtime.windows import WindowColumns, window_columns

Integers = NDArray[np.int64]

MEMORY = 1 << 26
"""The largest memory of failed searches, in entries of eight bytes."""


class _AutomatonColumns(NamedTuple):
    """The transitions of state s are `first[s]` to `first[s + 1]`; what they bind and check stands in lists with ends alike.

    `need[s]`: how many events it takes at least from state s to the end. `alone[s]`, `memory[s]`: what a failure from state s
    says about other tries for the same latest event (`_independence`).
    """

    first: Integers
    input: Integers
    target: Integers
    bind_first: Integers
    binds: Integers
    check_first: Integers
    checks: Integers
    need: Integers
    alone: NDArray[np.bool_]
    memory: Integers


def _automaton_columns(query: QueryPlan) -> _AutomatonColumns:
    automaton = query.automaton
    alone, memory = _independence(query)
    transitions = [transition for state in automaton.states for transition in state.transitions]
    return _AutomatonColumns(
        first=_ends([len(state.transitions) for state in automaton.states]),
        input=np.array([transition.input for transition in transitions], np.int64),
        target=np.array([transition.target for transition in transitions], np.int64),
        bind_first=_ends([len(transition.binds) for transition in transitions]),
        binds=np.array([term for transition in transitions for term in transition.binds], np.int64),
        check_first=_ends([len(transition.checks) for transition in transitions]),
        checks=np.array([check for transition in transitions for check in transition.checks] or [0], np.int64),
        need=_needs(automaton),
        alone=alone,
        memory=memory,
    )


def _needs(automaton: Automaton) -> Integers:
    """The length of the shortest way from each state to the end; states only lead to later ones."""
    needs = [0] * len(automaton.states)
    for index in reversed(range(len(needs))):
        targets = [item.target for item in automaton.states[index].transitions]
        needs[index] = 1 + min(0 if target == ACCEPT else needs[target] for target in targets)
    return np.array(needs, np.int64)


def _independence(query: QueryPlan) -> tuple[NDArray[np.bool_], Integers]:
    """What a failure from a state means for other tries with the same latest event, so that none is made twice.

    Alone: nothing that is checked from here on asks for an event bound before. Failing from a position, the search fails from
    every older one. Else with a row (by state, -1: none) in a memory by position: only the event bound last is asked for, as by a
    condition on a pair of neighbours; failing from a position, it fails from there. A pattern of n terms over a window of w events
    then costs n * w steps, or n * w * w, and not w to the n. The first two states are never tried twice.
    """
    states, conditions = query.automaton.states, query.conditions
    before: list[set[int]] = [set() for _ in states]  # terms bound when a state is entered
    last: list[set[int] | None] = [None for _ in states]  # by the transition that enters it; none where they differ
    asked = [
        {term for item in state.transitions for check in item.checks for term in terms_of(conditions[check])}
        for state in states
    ]
    for index, state in enumerate(states):
        for item in state.transitions:
            if item.target != ACCEPT:
                before[item.target] |= before[index] | set(item.binds)
                known = last[item.target]
                last[item.target] = set(item.binds) if known is None or known == set(item.binds) else set()
    for index in reversed(range(len(states))):
        for item in states[index].transitions:
            if item.target != ACCEPT:
                asked[index] |= asked[item.target]
    repeated = range(2, len(states))
    alone = np.array([index in repeated and not asked[index] & before[index] for index in range(len(states))])
    paired = [
        index in repeated and not alone[index] and asked[index] & before[index] <= (last[index] or set())
        for index in range(len(states))
    ]
    return alone, np.where(paired, np.cumsum(paired) - 1, -1).astype(np.int64)


def _ends(lengths: Sequence[int]) -> Integers:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


class _Events(NamedTuple):
    """Ordered events by position: see `Ordered`."""

    start: Integers
    fresh: Integers
    input: NDArray[np.int16]
    time: Integers


class KernelMatcher:
    """A matcher for one query; raises NotForKernel if a condition needs the reference matcher."""

    def __init__(self, query: QueryPlan) -> None:
        self._program: KernelProgram = build_program(query.conditions)
        self._automaton = _automaton_columns(query)
        self._windows: WindowColumns = window_columns(query)
        self._within = NEVER if query.within is None else query.within
        self._terms = len(query.terms)

    def match(self, events: Ordered) -> Found:
        """One compiled search over all keys."""
        program, automaton = self._program, self._automaton
        row = events.row
        ordered = _Events(events.start, events.fresh, events.input[row], events.time[row])
        starts = np.zeros(len(self._windows.within), np.bool_)
        starts[automaton.input[: automaton.first[1]]] = True
        fresh = int(starts[ordered.input].sum())
        floats = _operands([evaluate(operand, events.table) for operand in program.float_operands], row, np.float64)
        integers, constants = self._integers(events)
        code = Conditions(program.code, program.ends, constants, program.floats, *integers, *floats)
        latest, members = np.empty(fresh, np.int64), np.empty((fresh, self._terms), np.int64)
        found = _search(ordered, automaton, self._windows, self._within, code, latest, members)
        return Found(latest[:found], members[:found])

    def _integers(self, events: Ordered) -> tuple[_Operands, Integers]:
        """Integer, boolean and string operands; strings, the constants too, as ranks over all that occur here."""
        program = self._program
        columns = [evaluate(operand, events.table) for operand in program.integer_operands]
        constants = program.integers
        if program.strings or any(operand.type is Type.STRING for operand in program.integer_operands):
            columns, constants = _ranked(program.integer_operands, columns, program.strings, constants)
        return _operands(columns, events.row, np.int64), constants


_Operands = tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.int32]]
"""Values by (operand, position); masks; and for each operand its row in the masks, -1 where it has a value everywhere."""


def _operands(columns: Sequence[Column], row: NDArray[np.int32], kind: type) -> _Operands:
    values: NDArray[Any] = np.empty((max(1, len(columns)), len(row)), kind)
    valid = [column.valid[row] for column in columns if column.valid is not None]
    mask = np.full(max(1, len(columns)), -1, np.int32)
    masked = 0
    for index, column in enumerate(columns):
        values[index] = column.values[row]
        if column.valid is not None:
            mask[index] = masked
            masked += 1
    return values, np.array(valid) if valid else np.ones((1, 1), np.bool_), mask


def _ranked(
    expressions: Sequence[Expression],
    columns: Sequence[Column],
    strings: Sequence[tuple[int, str]],
    constants: Integers,
) -> tuple[list[Column], Integers]:
    """Strings replaced by their rank in code point order among all strings of these columns and constants."""
    texts = [index for index, expression in enumerate(expressions) if expression.type is Type.STRING]
    parts = [one_chunk(columns[index].values) for index in texts]
    parts.append(pa.array([value for _, value in strings], pa.string()))
    encoded = pa.concat_arrays(parts).fill_null("").dictionary_encode()
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    ranks = rank[encoded.indices.to_numpy()]
    result, at = list(columns), 0
    for index, part in zip(texts, parts, strict=False):
        result[index] = Column(ranks[at : at + len(part)], columns[index].valid)
        at += len(part)
    constants = constants.copy()
    for offset, (place, _) in enumerate(strings):
        constants[place] = ranks[at + offset]
    return result, constants


@kernel
def _search(
    events: _Events,
    automaton: _AutomatonColumns,
    windows: WindowColumns,
    pattern_within: int,
    conditions: Conditions,
    latest: Integers,
    members: Integers,
) -> int:
    """Fills `latest` and `members`; gives how many matches there are."""
    inputs, terms = len(windows.within), members.shape[1]
    input_of, time, first, target = events.input, events.time, automaton.first, automaton.target
    bound = np.zeros(terms, np.int64)
    stacks = Stacks(np.empty(STACK + 1, np.int64), np.empty(STACK + 1, np.float64))
    state, at, choice = np.empty(terms + 1, np.int64), np.empty(terms + 1, np.int64), np.empty(terms + 1, np.int64)
    entry = np.empty(terms + 1, np.int64)
    oldest, inside = np.empty(inputs, np.int64), np.empty(inputs, np.int64)
    dead, dead_for = np.zeros(len(automaton.need), np.int64), np.full(len(automaton.need), -1, np.int64)
    failed = _memory(events, automaton.memory)
    found = 0
    for key in range(len(events.start) - 1):
        begin, fresh = events.start[key], events.fresh[key]
        if fresh == events.start[key + 1]:
            continue
        oldest[:] = begin
        inside[:] = 0
        for event in range(begin, events.start[key + 1]):
            floor = _slide(events, windows, event, oldest, inside)
            if event < fresh:
                continue
            horizon = time[event] - pattern_within
            # depth 0 consumes this event; deeper levels look at older positions
            depth = 0
            state[0] = 0
            at[0] = event
            choice[0] = first[0]
            while depth >= 0:
                position, transition, here = at[depth], choice[depth], state[depth]
                opening, stop, memory = first[here], first[here + 1], automaton.memory[here]
                lowest = event if depth == 0 else floor + automaton.need[here] - 1
                taken = False
                while position >= lowest and time[position] > horizon:
                    kind = input_of[position]
                    if depth == 0 or position >= oldest[kind]:
                        while transition < stop:
                            if automaton.input[transition] == kind:
                                taken = _consume(automaton, conditions, transition, position, bound, stacks)
                                if taken:
                                    break
                            transition += 1
                        if taken:
                            break
                        transition = opening
                    position -= 1
                if not taken:
                    if automaton.alone[here]:
                        dead[here], dead_for[here] = entry[depth], event
                    elif memory >= 0 and len(failed) > 0:
                        failed[memory, entry[depth] - begin] = event
                    depth -= 1
                elif target[transition] < 0:
                    latest[found] = event
                    for term in range(terms):
                        members[found, term] = bound[term]
                    found += 1
                    break
                else:
                    at[depth] = position
                    choice[depth] = transition + 1
                    after = target[transition]
                    memory = automaton.memory[after]
                    if automaton.alone[after] and dead_for[after] == event and position <= dead[after]:
                        continue
                    if memory >= 0 and len(failed) > 0 and failed[memory, position - begin] == event:
                        continue
                    depth += 1
                    state[depth] = after
                    entry[depth] = position
                    at[depth] = position - 1
                    choice[depth] = first[after]
    return found


@kernel
def _memory(events: _Events, rows: Integers) -> Integers:
    """By memory row and position within the key: the latest event for which the search has failed from there.

    Without rows where it would take more than MEMORY entries.
    """
    widest = 1
    for key in range(len(events.start) - 1):
        widest = max(widest, events.start[key + 1] - events.start[key])
    count = rows.max() + 1
    return np.full((count if count * widest <= MEMORY else 0, widest), -1, np.int64)


@inlined
def _slide(events: _Events, windows: WindowColumns, event: int, oldest: Integers, inside: Integers) -> int:
    """Moves the windows on as `event` is added: `oldest` position in each input's window, `inside` how many; gives the oldest of all."""
    floor = event
    for item in range(len(oldest)):
        if windows.remembered[item]:
            low = oldest[item]
            if events.input[event] == item:
                inside[item] += 1
            edge = events.time[event] - windows.within[item]
            while low < event and events.time[low] <= edge:
                inside[item] -= events.input[low] == item
                low += 1
            while inside[item] > windows.retain[item]:
                inside[item] -= events.input[low] == item
                low += 1
            oldest[item] = low
            floor = min(floor, low)
    return floor


@inlined
def _consume(
    automaton: _AutomatonColumns,
    conditions: Conditions,
    transition: int,
    position: int,
    bound: Integers,
    stacks: Stacks,
) -> bool:
    """Binds the event at `position` to the transition's names; whether the conditions that this decides hold."""
    for index in range(automaton.bind_first[transition], automaton.bind_first[transition + 1]):
        bound[automaton.binds[index]] = position
    good = True
    for index in range(automaton.check_first[transition], automaton.check_first[transition + 1]):
        if good:
            good = holds(conditions, automaton.checks[index], bound, stacks)
    return good
