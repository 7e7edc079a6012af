"""Find the next event for which a condition holds by evaluating it for many events at once.

Each instruction is executed for all events of a block before the next one, so that decoding an
instruction is paid once per block. Looking ahead decides nothing: the search tries the event that
is found like any other. Instructions mean what they mean in `runtime.matching.kernel.evaluator`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.column_types import Integers
from runtime.columns.expressions import divide, remainder
from runtime.compiling.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.evaluator import KNOWN, LoadedProgram
from runtime.matching.kernel.functions import (
    ABOVE_INTEGERS,
    LEAST_INTEGER,
    bit_equals,
    has_integer,
    have_value,
    of_float,
    of_floats,
    of_integer,
    of_integers,
    to_integer,
)
from runtime.matching.kernel.program import STACK, KernelProgram, Operation, instructions

FIRST_LANES = 32
LANES = 128
"""How many events a block holds; the first block is smaller, as the event may be near."""

SHORT_PROGRAM, AFTER_SHORT, AFTER_LONG = 3, 4, 2
"""After how many rejected events to look ahead: AFTER_SHORT with a program of at most SHORT_PROGRAM
instructions, else AFTER_LONG."""


_BRANCHES = frozenset(
    {
        *(Operation.SKIP_IF_FALSE, Operation.SKIP_IF_TRUE, Operation.AND, Operation.OR),
        *(Operation.JUMP, Operation.JUMP_UNLESS),
    }
)
"""Lanes execute every instruction together, so none of these."""


class Lanes(NamedTuple):
    """A block of events, one per lane, and the events of an input that blocks are filled from.

    position: by lane, the event's position
    is_left: by lane, 1 while the event may satisfy the condition, else 0
    integers, floats: stacks by (entry, lane)
    listed: by linked input, the positions of its events in the key at hand, as far as they have
        been listed
    rank: by (linked input, position within the key), how many events of the input come before that
        position
    listed_range: by linked input, where the key begins, up to where it is listed, how many events
        that are
    """

    position: Integers
    is_left: Integers
    integers: Integers
    floats: NDArray[np.float64]
    listed: NDArray[np.int32]
    rank: NDArray[np.int32]
    listed_range: Integers


def new_lanes(linked_inputs: int, longest_key: int) -> Lanes:
    """Lanes for any program, for so many linked inputs and for keys of at most so many events."""
    stack = STACK + 1, LANES
    listed, rank = (np.empty((linked_inputs, longest_key), np.int32) for _ in range(2))
    lanes = np.empty(LANES, np.int64), np.empty(LANES, np.int64), np.empty(stack, np.int64), np.empty(stack)
    return Lanes(*lanes, listed, rank, np.full((linked_inputs, 3), -1, np.int64))


def lookahead_after(program: KernelProgram, number: int) -> int:
    """After how many rejected events a search looks ahead with this program: fewer for a long one.

    NEVER for a program with skips or jumps: lanes execute every instruction together.
    """
    operations = [operation for operation, _, _ in instructions(program, number)]
    if _BRANCHES.intersection(operations):
        return NEVER
    return AFTER_SHORT if len(operations) <= SHORT_PROGRAM else AFTER_LONG


@inlined
def _list_events(lanes: Lanes, input_of: NDArray[np.int16], item: int, row: int, begin: int, event: int) -> None:
    """Lists the events of an input in the key that begins at `begin`, up to position `event`."""
    # The list grows with the events searched, so each event of a key is listed once; another key
    # begins a new list.
    listed_range = lanes.listed_range[row]
    if listed_range[0] != begin:
        listed_range[0], listed_range[1], listed_range[2] = begin, begin, 0
    for position in range(listed_range[1], event + 1):
        lanes.rank[row, position - begin] = listed_range[2]
        # Written for every event, and overwritten by the next one unless this one counts: without a
        # branch.
        lanes.listed[row, listed_range[2]] = position
        listed_range[2] += input_of[position] == item
    listed_range[1] = event + 1


@inlined
def _first_listed(time: Integers, listed: NDArray[np.int32], first: int, stop: int, oldest_time: int) -> int:
    """The first index from `first` on of an event at `oldest_time` or later; else `stop`."""
    # The first one is often young enough already.
    if first < stop and time[listed[first]] < oldest_time:
        while first < stop:
            middle = (first + stop) >> 1
            if time[listed[middle]] >= oldest_time:
                stop = middle
            else:
                first = middle + 1
    return first


class Sought(NamedTuple):
    """What a search looks ahead for, and where.

    item, row: the input and its row among the linked ones
    number, also: the programs of the condition and of another one; -1 = there is no other
    event, begin: positions of the latest event and of the key's first one
    oldest_position, oldest_time: the oldest event that the state may take
    """

    item: int
    row: int
    number: int
    also: int
    event: int
    begin: int
    oldest_position: int
    oldest_time: int


@borrowing
def look_ahead(
    time: Integers,
    superseded: Integers,
    input_of: NDArray[np.int16],
    program: LoadedProgram,
    sought: Sought,
    position: int,
    bindings: Integers,
    lanes: Lanes,
) -> int:
    """The newest event from `position` on, backwards, for which conditions are true; -1 = none.

    time, superseded, input_of: as in `runtime.matching.kernel.workspace.Events`
    bindings: by term; a term that is not bound (-1) is the event that is looked for
    """
    begin, row = sought.begin, sought.row
    if position < sought.oldest_position:
        return -1
    _list_events(lanes, input_of, sought.item, row, begin, sought.event)
    listed, last = lanes.listed[row], lanes.rank[row, position - begin]
    oldest = lanes.rank[row, sought.oldest_position - begin]
    first = _first_listed(time, listed, oldest, last + 1, sought.oldest_time)
    count_at_most = FIRST_LANES
    # Invariant: no listed event newer than the one at index `last` satisfies the conditions.
    while last >= first:
        # Fill the lanes, newest event first: the first lane that is left at the end is the answer.
        count = min(count_at_most, last - first + 1)
        for lane in range(count):
            lanes.position[lane] = listed[last - lane]
        last -= count
        for lane in range(count):
            lanes.is_left[lane] = 1
        # An event that a newer one has superseded by now is in no window: the search would refuse
        # it as well.
        if len(superseded) > 0:
            for lane in range(count):
                lanes.is_left[lane] = superseded[lanes.position[lane]] > sought.event
        number, is_any_left = sought.number, True
        while is_any_left and number >= 0:
            is_any_left = _any_holds(program, number, bindings, lanes, count)
            number = sought.also if number == sought.number else -1
        if is_any_left:
            for lane in range(count):
                if lanes.is_left[lane] != 0:
                    return lanes.position[lane]
        count_at_most = LANES
    return -1


@inlined
def _any_holds(program: LoadedProgram, number: int, bindings: Integers, lanes: Lanes, count: int) -> bool:
    """Evaluates a condition for the first `count` lanes; returns whether it is true for any.

    `is_left` stays 1 for the lanes for which it is true.

    A lane without a value keeps computing with whatever is on its stack: it is not left any more,
    so its result is never read.
    """
    code, integers, floats, is_left, position = (
        program.code,
        lanes.integers,
        lanes.floats,
        lanes.is_left,
        lanes.position,
    )
    # Invariant: i and f are the tops of the two stacks, the same for all lanes, -1 for an empty
    # one.
    i = f = -1
    for at in range(program.ends[number], program.ends[number + 1]):
        operation, argument = code[at, 0], code[at, 1]
        # A term that is bound has one value for all lanes; where it is missing, no lane can hold.
        # The other term is the event of the lane.
        if operation == Operation.PUSH_F:
            f += 1
            mask, bound_position = program.float_mask[argument], bindings[code[at, 2]]
            if bound_position >= 0:
                if mask >= 0 and program.float_state[mask, bound_position] != KNOWN:
                    return False
                for lane in range(count):
                    floats[f, lane] = program.float_columns[argument, bound_position]
            else:
                for lane in range(count):
                    floats[f, lane] = program.float_columns[argument, position[lane]]
                if mask >= 0:
                    for lane in range(count):
                        is_left[lane] &= np.int64(program.float_state[mask, position[lane]] == KNOWN)
        elif operation == Operation.PUSH_I:
            i += 1
            mask, bound_position = program.integer_mask[argument], bindings[code[at, 2]]
            if bound_position >= 0:
                if mask >= 0 and program.integer_state[mask, bound_position] != KNOWN:
                    return False
                for lane in range(count):
                    integers[i, lane] = program.integer_columns[argument, bound_position]
            else:
                for lane in range(count):
                    integers[i, lane] = program.integer_columns[argument, position[lane]]
                if mask >= 0:
                    for lane in range(count):
                        is_left[lane] &= np.int64(program.integer_state[mask, position[lane]] == KNOWN)
        elif operation == Operation.CONSTANT_I:
            i += 1
            for lane in range(count):
                integers[i, lane] = program.integer_constants[argument]
        elif operation == Operation.CONSTANT_F:
            f += 1
            for lane in range(count):
                floats[f, lane] = program.float_constants[argument]
        # Integer arithmetic: it wraps around, and a lane that divides by zero has no value.
        elif operation <= Operation.REMAINDER_I:
            i -= 1
            if operation == Operation.ADD_I:
                for lane in range(count):
                    integers[i, lane] += integers[i + 1, lane]
            elif operation == Operation.SUBTRACT_I:
                for lane in range(count):
                    integers[i, lane] -= integers[i + 1, lane]
            elif operation == Operation.MULTIPLY_I:
                for lane in range(count):
                    integers[i, lane] *= integers[i + 1, lane]
            else:
                for lane in range(count):
                    a, b = integers[i, lane], integers[i + 1, lane]
                    if b == 0:
                        is_left[lane] = 0
                    else:
                        integers[i, lane] = divide(a, b) if operation == Operation.DIVIDE_I else remainder(a, b)
        # Float arithmetic as IEEE 754 has it: division by zero gives an infinity or NaN.
        elif operation <= Operation.REMAINDER_F:
            f -= 1
            if operation == Operation.ADD_F:
                for lane in range(count):
                    floats[f, lane] += floats[f + 1, lane]
            elif operation == Operation.SUBTRACT_F:
                for lane in range(count):
                    floats[f, lane] -= floats[f + 1, lane]
            elif operation == Operation.MULTIPLY_F:
                for lane in range(count):
                    floats[f, lane] *= floats[f + 1, lane]
            elif operation == Operation.DIVIDE_F:
                for lane in range(count):
                    floats[f, lane] /= floats[f + 1, lane]
            else:
                for lane in range(count):
                    floats[f, lane] = np.fmod(floats[f, lane], floats[f + 1, lane])
        # Comparisons: those of floats take two values off one stack and put one on the other.
        elif operation <= Operation.LESS_EQUAL_I:
            i -= 1
            if operation == Operation.EQUAL_I:
                for lane in range(count):
                    integers[i, lane] = integers[i, lane] == integers[i + 1, lane]
            elif operation == Operation.DIFFERENT_I:
                for lane in range(count):
                    integers[i, lane] = integers[i, lane] != integers[i + 1, lane]
            elif operation == Operation.LESS_I:
                for lane in range(count):
                    integers[i, lane] = integers[i, lane] < integers[i + 1, lane]
            else:
                for lane in range(count):
                    integers[i, lane] = integers[i, lane] <= integers[i + 1, lane]
        elif operation <= Operation.LESS_EQUAL_F:
            f -= 2
            i += 1
            if operation == Operation.EQUAL_F:
                for lane in range(count):
                    integers[i, lane] = floats[f + 1, lane] == floats[f + 2, lane]
            elif operation == Operation.DIFFERENT_F:
                for lane in range(count):
                    integers[i, lane] = floats[f + 1, lane] != floats[f + 2, lane]
            elif operation == Operation.LESS_F:
                for lane in range(count):
                    integers[i, lane] = floats[f + 1, lane] < floats[f + 2, lane]
            else:
                for lane in range(count):
                    integers[i, lane] = floats[f + 1, lane] <= floats[f + 2, lane]
        # One value in, one value out.
        elif operation == Operation.NOT:
            for lane in range(count):
                integers[i, lane] = 1 - integers[i, lane]
        elif operation == Operation.NEGATE_I:
            for lane in range(count):
                integers[i, lane] = -integers[i, lane]
        elif operation == Operation.NEGATE_F:
            for lane in range(count):
                floats[f, lane] = -floats[f, lane]
        elif operation == Operation.TO_FLOAT:
            f += 1
            for lane in range(count):
                floats[f, lane] = np.float64(integers[i, lane])
            i -= 1
        # TO_INTEGER: a float that does not fit an integer has no value. Programs with skips are
        # never run here.
        elif operation == Operation.TO_INTEGER:
            i += 1
            for lane in range(count):
                x = floats[f, lane]
                if x >= LEAST_INTEGER and x < ABOVE_INTEGERS:
                    integers[i, lane] = np.int64(x)
                else:
                    is_left[lane] = 0
            f -= 1
        # Functions.
        elif operation == Operation.OF_FLOAT:
            for lane in range(count):
                floats[f, lane] = of_float(argument, floats[f, lane])
        elif operation == Operation.OF_FLOATS:
            f -= 1
            for lane in range(count):
                floats[f, lane] = of_floats(argument, floats[f, lane], floats[f + 1, lane])
        elif operation == Operation.OF_INTEGER:
            for lane in range(count):
                integers[i, lane] = of_integer(argument, integers[i, lane])
        elif operation == Operation.OF_INTEGERS:
            i -= 1
            for lane in range(count):
                a, b = integers[i, lane], integers[i + 1, lane]
                if have_value(argument, a, b):
                    integers[i, lane] = of_integers(argument, a, b)
                else:
                    is_left[lane] = 0
        elif operation == Operation.ROUNDED:
            i += 1
            for lane in range(count):
                if has_integer(argument, floats[f, lane]):
                    integers[i, lane] = to_integer(argument, floats[f, lane])
                else:
                    is_left[lane] = 0
            f -= 1
        elif operation == Operation.BIT_EQUALS:
            f -= 2
            i += 1
            for lane in range(count):
                integers[i, lane] = bit_equals(floats[f + 1, lane], floats[f + 2, lane])
        # Actions. A lane with a null is not left, so NULL_CALL has nothing to do.
        elif operation == Operation.LOCAL_I:
            i += 1
            for lane in range(count):
                integers[i, lane] = integers[argument, lane]
        elif operation == Operation.LOCAL_F:
            f += 1
            for lane in range(count):
                floats[f, lane] = floats[argument, lane]
        elif operation == Operation.SET_I or operation == Operation.RETURN_I:  # noqa: PLR1714
            for lane in range(count):
                integers[argument, lane] = integers[i, lane]
            i -= 1
            if operation == Operation.RETURN_I:
                i, f = argument, code[at, 2] - 1
        elif operation == Operation.SET_F or operation == Operation.RETURN_F:  # noqa: PLR1714
            for lane in range(count):
                floats[argument, lane] = floats[f, lane]
            f -= 1
            if operation == Operation.RETURN_F:
                f, i = argument, code[at, 2] - 1
    # What is left at the bottom of the stack is the condition's value.
    found = 0
    for lane in range(count):
        is_left[lane] &= np.int64(integers[0, lane] != 0)
        found += is_left[lane]
    return found > 0
