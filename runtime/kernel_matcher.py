"""The fast matcher: one compiled search for every query, driven by the automaton and the conditions' program as tables.

Takes ordered events as columns; operands of conditions are computed as columns first, then each new event starts a depth-first
search backwards in time that prefers newer events: the first accepting path is the winner by the *recent* policy.
No partial matches are kept; windows, `within` and conditions, checked as early as they can be decided, cut the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.automaton import Automaton
from querylang.expression import Expression, Type
from querylang.plan import QueryPlan
from runtime.compiled import kernel
from runtime.controls import NEVER
from runtime.expressions import Column, evaluate
from runtime.kernel_program import STACK, KernelProgram, build_program, holds
from runtime.keys import one_chunk
from runtime.matcher import Found, Ordered
from runtime.windows import WindowColumns, window_columns

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _AutomatonColumns:
    """`transitions of state s: first[s] to first[s + 1]`; what they bind and check stand in lists with ends alike."""

    first: Integers
    input: Integers
    target: Integers
    bind_first: Integers
    binds: Integers
    check_first: Integers
    checks: Integers


def _automaton_columns(automaton: Automaton) -> _AutomatonColumns:
    transitions = [transition for state in automaton.states for transition in state.transitions]
    return _AutomatonColumns(
        first=_ends([len(state.transitions) for state in automaton.states]),
        input=np.array([transition.input for transition in transitions], np.int64),
        target=np.array([transition.target for transition in transitions], np.int64),
        bind_first=_ends([len(transition.binds) for transition in transitions]),
        binds=np.array([term for transition in transitions for term in transition.binds], np.int64),
        check_first=_ends([len(transition.checks) for transition in transitions]),
        checks=np.array([check for transition in transitions for check in transition.checks] or [0], np.int64),
    )


def _ends(lengths: Sequence[int]) -> Integers:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Operands:
    """Columns by position; `mask[operand]` is its row in `valid`, -1 where it has a value everywhere."""

    values: NDArray[np.int64] | NDArray[np.float64]
    valid: NDArray[np.bool_]
    mask: NDArray[np.int32]


class KernelMatcher:
    """A matcher for one query; raises NotForKernel if a condition needs the reference matcher."""

    def __init__(self, query: QueryPlan) -> None:
        self._program: KernelProgram = build_program(query.conditions)
        self._automaton = _automaton_columns(query.automaton)
        self._windows: WindowColumns = window_columns(query)
        self._within = NEVER if query.within is None else query.within
        self._terms = len(query.terms)

    def match(self, events: Ordered) -> Found:
        """One compiled search over all keys."""
        program, automaton, windows = self._program, self._automaton, self._windows
        row = events.row
        input_of, time = events.input[row], events.time[row]
        starts = np.zeros(len(windows.within), np.bool_)
        starts[automaton.input[: automaton.first[1]]] = True
        fresh = int(starts[input_of].sum())
        constants = program.integers
        reals = _operands([evaluate(operand, events.table) for operand in program.float_operands], row, np.float64)
        wholes, constants = self._integers(events, constants)
        latest, members = np.empty(fresh, np.int64), np.empty((fresh, self._terms), np.int64)
        found = _search(
            events.start, events.fresh, input_of, time,
            automaton.first, automaton.input, automaton.target, automaton.bind_first, automaton.binds,
            automaton.check_first, automaton.checks,
            windows.within, windows.retain, windows.remembered, self._within,
            program.code, program.ends, constants, program.floats,
            wholes.values, reals.values, wholes.valid, reals.valid, wholes.mask, reals.mask,
            latest, members,
        )  # fmt: skip
        return Found(latest[:found], members[:found])

    def _integers(self, events: Ordered, constants: Integers) -> tuple[_Operands, Integers]:
        """Integer, boolean and string operands; strings, the constants too, as ranks over all that occur here."""
        expressions = self._program.integer_operands
        columns = [evaluate(operand, events.table) for operand in expressions]
        if any(operand.type is Type.STRING for operand in expressions):
            columns, constants = _ranked(expressions, columns, self._program.strings, constants)
        return _operands(columns, events.row, np.int64), constants


def _operands(columns: Sequence[Column], row: NDArray[np.int32], kind: type) -> _Operands:
    values = np.empty((max(1, len(columns)), len(row)), kind)
    valid = [column.valid[row] for column in columns if column.valid is not None]
    mask = np.full(max(1, len(columns)), -1, np.int32)
    masked = 0
    for index, column in enumerate(columns):
        values[index] = column.values[row]
        if column.valid is not None:
            mask[index] = masked
            masked += 1
    return _Operands(values, np.array(valid) if valid else np.ones((1, 1), np.bool_), mask)


def _ranked(
    expressions: Sequence[Expression], columns: Sequence[Column], strings: Sequence[tuple[int, str]], constants: Integers
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
    key_start: Integers,
    key_fresh: Integers,
    input_of: NDArray[np.int16],
    time: Integers,
    first: Integers,
    transition_input: Integers,
    target: Integers,
    bind_first: Integers,
    binds: Integers,
    check_first: Integers,
    checks: Integers,
    within: Integers,
    retain: Integers,
    remembered: NDArray[np.bool_],
    pattern_within: int,
    code: NDArray[np.int32],
    ends: Integers,
    integers: Integers,
    floats: NDArray[np.float64],
    integer_columns: Integers,
    float_columns: NDArray[np.float64],
    integer_valid: NDArray[np.bool_],
    float_valid: NDArray[np.bool_],
    integer_mask: NDArray[np.int32],
    float_mask: NDArray[np.int32],
    latest: Integers,
    members: Integers,
) -> int:
    """Fills `latest` and `members`; gives how many matches there are."""
    inputs, terms = len(within), members.shape[1]
    bound = np.zeros(terms, np.int64)
    whole, real = np.empty(STACK + 1, np.int64), np.empty(STACK + 1, np.float64)
    state, at, choice = np.empty(terms + 1, np.int64), np.empty(terms + 1, np.int64), np.empty(terms + 1, np.int64)
    oldest, inside = np.empty(inputs, np.int64), np.empty(inputs, np.int64)
    found = 0
    for key in range(len(key_start) - 1):
        begin = key_start[key]
        if key_fresh[key] == key_start[key + 1]:
            continue
        oldest[:] = begin
        inside[:] = 0
        for event in range(begin, key_start[key + 1]):
            # the windows: the oldest position of each input's window as this event is added
            moment, own = time[event], input_of[event]
            floor = event
            for item in range(inputs):
                if not remembered[item]:
                    continue
                low = oldest[item]
                if own == item:
                    inside[item] += 1
                edge = moment - within[item]
                while low < event and time[low] <= edge:
                    inside[item] -= input_of[low] == item
                    low += 1
                while inside[item] > retain[item]:
                    inside[item] -= input_of[low] == item
                    low += 1
                oldest[item] = low
                floor = min(floor, low)
            if event < key_fresh[key]:
                continue
            horizon = moment - pattern_within
            # depth 0 consumes this event; deeper levels look at older positions
            depth = 0
            state[0] = 0
            at[0] = event
            choice[0] = first[0]
            while depth >= 0:
                position, transition, here = at[depth], choice[depth], state[depth]
                opening, stop = first[here], first[here + 1]
                lowest = event if depth == 0 else floor
                taken = False
                while position >= lowest and time[position] > horizon:
                    kind = input_of[position]
                    if depth == 0 or position >= oldest[kind]:
                        while transition < stop:
                            if transition_input[transition] == kind:
                                for index in range(bind_first[transition], bind_first[transition + 1]):
                                    bound[binds[index]] = position
                                taken = True
                                for index in range(check_first[transition], check_first[transition + 1]):
                                    check = checks[index]
                                    if not holds(
                                        code, ends[check], ends[check + 1], integers, floats, integer_columns,
                                        float_columns, integer_valid, float_valid, integer_mask, float_mask, bound,
                                        whole, real,
                                    ):  # fmt: skip
                                        taken = False
                                        break
                                if taken:
                                    break
                            transition += 1
                        if taken:
                            break
                        transition = opening
                    position -= 1
                if not taken:
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
                    depth += 1
                    state[depth] = target[transition]
                    at[depth] = position - 1
                    choice[depth] = first[state[depth]]
    return found
