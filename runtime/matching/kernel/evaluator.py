"""Evaluate a condition's program (`runtime.matching.kernel.program`) for one candidate.

`runtime.matching.kernel.lookahead` interprets the same programs for many candidates at once.

A program that meets no null is run once. At the first value that is missing, or the first function,
it is run again by `_state_with_nulls`, which knows all operations, and of each value on the stacks
whether it is null.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.columns.expressions import divide, remainder
from runtime.compiling.compiled import borrowing, inlined
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
from runtime.matching.kernel.program import CALL, STACK, Operation

FAILED, NULL, KNOWN = -1, 0, 1
"""What an operand or a program is worth for one candidate: no value, a null, or a value."""


class LoadedProgram(NamedTuple):
    """A `KernelProgram` with the columns of its operands.

    code, ends, integer_constants, float_constants: as in `KernelProgram`, strings replaced by their
        ranks
    integer_columns, float_columns: values by (operand, position)
    integer_mask, float_mask: by operand, its row in the table of states; -1: it has a value at
        every position
    integer_state, float_state: by (row, position), KNOWN, NULL or FAILED
    is_complete: no operand has a mask
    stack_integers, stack_floats: what it works on, STACK + 1 entries each. Behind its entries the
        first one has as many states of them, then as many of the entries of the other
    """

    code: NDArray[np.int32]
    ends: NDArray[np.int64]
    integer_constants: NDArray[np.int64]
    float_constants: NDArray[np.float64]
    integer_columns: NDArray[np.int64]
    integer_state: NDArray[np.int8]
    integer_mask: NDArray[np.int32]
    float_columns: NDArray[np.float64]
    float_state: NDArray[np.int8]
    float_mask: NDArray[np.int32]
    is_complete: bool
    stack_integers: NDArray[np.int64]
    stack_floats: NDArray[np.float64]


def new_stacks() -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The stacks of any program."""
    return np.empty(3 * (STACK + 1), np.int64), np.empty(STACK + 1, np.float64)


@inlined
def comparison_holds(program: LoadedProgram, operation: int, left: int, here: int, right: int, there: int) -> bool:
    """Whether operand `left` at position `here` compares so with operand `right` at `there`, or is
    true.

    False if one has no value.
    """
    result = program.is_complete or _both_have_values(program, operation, left, here, right, there)
    if result and operation >= Operation.EQUAL_F:
        x, y = program.float_columns[left, here], program.float_columns[right, there]
        if operation == Operation.LESS_F:
            result = x < y
        elif operation == Operation.LESS_EQUAL_F:
            result = x <= y
        elif operation == Operation.EQUAL_F:
            result = x == y
        else:
            result = x != y
    elif result:
        a, b = program.integer_columns[left, here], program.integer_columns[right, there]
        if operation == Operation.LESS_I:
            result = a < b
        elif operation == Operation.LESS_EQUAL_I:
            result = a <= b
        elif operation == Operation.EQUAL_I:
            result = a == b
        elif operation == Operation.DIFFERENT_I:
            result = a != b
        else:
            result = a != 0
    return result


@inlined
def _both_have_values(program: LoadedProgram, operation: int, left: int, here: int, right: int, there: int) -> bool:
    """Whether both operands of a comparison have a value."""
    if operation >= Operation.EQUAL_F:
        mask, other = program.float_mask[left], program.float_mask[right]
        result = mask < 0 or program.float_state[mask, here] == KNOWN
        result = result and (other < 0 or program.float_state[other, there] == KNOWN)
    else:
        mask, other = program.integer_mask[left], program.integer_mask[right]
        result = mask < 0 or program.integer_state[mask, here] == KNOWN
        result = result and (other < 0 or program.integer_state[other, there] == KNOWN)
    return result


@inlined
def holds(program: LoadedProgram, number: int, bindings: NDArray[np.int64]) -> bool:
    """Whether a condition is true for these bindings; without a value it is not."""
    return state_of(program, number, bindings, KNOWN) == KNOWN and program.stack_integers[0] != 0


@inlined
def state_of(program: LoadedProgram, number: int, bindings: NDArray[np.int64], constants: int) -> int:
    """Whether a program has a value for these bindings; leaves the value at the bottom of a stack.

    It fails if an operand has failed, an integer is divided by zero, or a float does not fit an
    integer.

    constants: the least state of its constants
    """
    # The call is behind the loop: within, it would cost each instruction more.
    result = constants
    if result == KNOWN:
        result = _state_without_nulls(program, number, bindings)
    if result == NULL:
        result = _state_with_nulls(program, number, bindings)
    return result


@inlined
def state_of_operand(program: LoadedProgram, operand: int, is_float: bool, position: int) -> int:
    """The same of a program that only pushes an operand, at this position."""
    result = KNOWN
    if is_float:
        mask = program.float_mask[operand]
        if mask >= 0:
            result = int(program.float_state[mask, position])
        program.stack_floats[0] = program.float_columns[operand, position]
    else:
        mask = program.integer_mask[operand]
        if mask >= 0:
            result = int(program.integer_state[mask, position])
        program.stack_integers[0] = program.integer_columns[operand, position]
    return result


@inlined
def _state_without_nulls(program: LoadedProgram, number: int, bindings: NDArray[np.int64]) -> int:
    """KNOWN or FAILED; NULL: `_state_with_nulls` has to say.

    An operand has no value, or the program calls functions or actions, which would make this loop
    slower for all others.
    """
    code, integers, floats = program.code, program.stack_integers, program.stack_floats
    at, stop = program.ends[number], program.ends[number + 1]
    # Invariant: i and f are the tops of the two stacks, -1 for an empty one; what is below them is
    # what the instructions before `at` have left. What `and` or `or` need not evaluate is skipped.
    i = f = -1
    while at < stop:
        operation = code[at, 0]
        # The most frequent operations come first; the others are found by kind, then one by one.
        if operation == Operation.PUSH_F:
            operand, position = code[at, 1], bindings[code[at, 2]]
            mask = program.float_mask[operand]
            if mask >= 0 and program.float_state[mask, position] != KNOWN:
                return NULL
            f += 1
            floats[f] = program.float_columns[operand, position]
        elif operation == Operation.PUSH_I:
            operand, position = code[at, 1], bindings[code[at, 2]]
            mask = program.integer_mask[operand]
            if mask >= 0 and program.integer_state[mask, position] != KNOWN:
                return NULL
            i += 1
            integers[i] = program.integer_columns[operand, position]
        elif operation == Operation.CONSTANT_I:
            i += 1
            integers[i] = program.integer_constants[code[at, 1]]
        elif operation == Operation.CONSTANT_F:
            f += 1
            floats[f] = program.float_constants[code[at, 1]]
        # Integer arithmetic: it wraps around, and division by zero has no value.
        elif operation <= Operation.REMAINDER_I:
            i -= 1
            a, b = integers[i], integers[i + 1]
            if operation == Operation.ADD_I:
                integers[i] = a + b
            elif operation == Operation.SUBTRACT_I:
                integers[i] = a - b
            elif operation == Operation.MULTIPLY_I:
                integers[i] = a * b
            elif b == 0:
                return FAILED
            elif operation == Operation.DIVIDE_I:
                integers[i] = divide(a, b)
            else:
                integers[i] = remainder(a, b)
        # Float arithmetic as IEEE 754 has it: division by zero gives an infinity or NaN.
        elif operation <= Operation.REMAINDER_F:
            f -= 1
            x, y = floats[f], floats[f + 1]
            if operation == Operation.ADD_F:
                floats[f] = x + y
            elif operation == Operation.SUBTRACT_F:
                floats[f] = x - y
            elif operation == Operation.MULTIPLY_F:
                floats[f] = x * y
            elif operation == Operation.DIVIDE_F:
                floats[f] = x / y
            else:
                floats[f] = np.fmod(x, y)
        # Comparisons: those of floats take two values off one stack and put one on the other.
        elif operation <= Operation.LESS_EQUAL_I:
            i -= 1
            a, b = integers[i], integers[i + 1]
            if operation == Operation.EQUAL_I:
                integers[i] = a == b
            elif operation == Operation.DIFFERENT_I:
                integers[i] = a != b
            elif operation == Operation.LESS_I:
                integers[i] = a < b
            else:
                integers[i] = a <= b
        elif operation <= Operation.LESS_EQUAL_F:
            f -= 2
            x, y = floats[f + 1], floats[f + 2]
            i += 1
            if operation == Operation.EQUAL_F:
                integers[i] = x == y
            elif operation == Operation.DIFFERENT_F:
                integers[i] = x != y
            elif operation == Operation.LESS_F:
                integers[i] = x < y
            else:
                integers[i] = x <= y
        # One value in, one value out.
        elif operation == Operation.NOT:
            integers[i] = 1 - integers[i]
        elif operation == Operation.NEGATE_I:
            integers[i] = -integers[i]
        elif operation == Operation.NEGATE_F:
            floats[f] = -floats[f]
        elif operation == Operation.TO_FLOAT:
            f += 1
            floats[f] = np.float64(integers[i])
            i -= 1
        elif operation == Operation.TO_INTEGER:
            if not (floats[f] >= LEAST_INTEGER and floats[f] < ABOVE_INTEGERS):
                return FAILED
            i += 1
            integers[i] = np.int64(floats[f])
            f -= 1
        # `and`, `or`: the left value stays as the result if it decides; else it is the right one.
        elif operation == Operation.SKIP_IF_FALSE:
            if integers[i] == 0:
                at += code[at, 1]
        elif operation == Operation.SKIP_IF_TRUE:
            if integers[i] != 0:
                at += code[at, 1]
        elif operation <= Operation.OR:
            i -= 1
            integers[i] = integers[i + 1]
        else:
            return NULL
        at += 1
    return KNOWN


@borrowing
def _state_with_nulls(program: LoadedProgram, number: int, bindings: NDArray[np.int64]) -> int:
    """The same for all programs: every instruction also says whether its result is null."""
    code, integers, floats = program.code, program.stack_integers, program.stack_floats
    at, stop = program.ends[number], program.ends[number + 1]
    own, others = STACK + 1, 2 * (STACK + 1)
    # Invariant: as in `_state_without_nulls`, and integers[own + i] and integers[others + f] are
    # KNOWN or NULL. What is null has some number on its stack: it is calculated with like any
    # other, and cannot fail.
    i = f = -1
    while at < stop:
        operation, state = code[at, 0], KNOWN
        if operation <= Operation.CONSTANT_F:
            if operation == Operation.PUSH_F or operation == Operation.CONSTANT_F:  # noqa: PLR1714
                f += 1
            else:
                i += 1
            if operation == Operation.PUSH_F:
                operand, position = code[at, 1], bindings[code[at, 2]]
                floats[f] = program.float_columns[operand, position]
                if program.float_mask[operand] >= 0:
                    state = int(program.float_state[program.float_mask[operand], position])
            elif operation == Operation.PUSH_I:
                operand, position = code[at, 1], bindings[code[at, 2]]
                integers[i] = program.integer_columns[operand, position]
                if program.integer_mask[operand] >= 0:
                    state = int(program.integer_state[program.integer_mask[operand], position])
            else:
                if operation == Operation.CONSTANT_F:
                    floats[f] = program.float_constants[code[at, 1]]
                else:
                    integers[i] = program.integer_constants[code[at, 1]]
                if code[at, 2] > 0:
                    state = int(program.integer_constants[code[at, 2] - 1])
            if state == FAILED:
                return FAILED
            if operation == Operation.PUSH_F or operation == Operation.CONSTANT_F:  # noqa: PLR1714
                integers[others + f] = state
            else:
                integers[own + i] = state
        # Two values of one kind: a null makes the result null.
        elif operation <= Operation.REMAINDER_I:
            i -= 1
            a, b = integers[i], integers[i + 1]
            integers[own + i] = min(integers[own + i], integers[own + i + 1])
            if operation == Operation.ADD_I:
                integers[i] = a + b
            elif operation == Operation.SUBTRACT_I:
                integers[i] = a - b
            elif operation == Operation.MULTIPLY_I:
                integers[i] = a * b
            elif integers[own + i] == NULL:
                integers[i] = 0
            elif b == 0:
                return FAILED
            elif operation == Operation.DIVIDE_I:
                integers[i] = divide(a, b)
            else:
                integers[i] = remainder(a, b)
        elif operation <= Operation.REMAINDER_F:
            f -= 1
            x, y = floats[f], floats[f + 1]
            integers[others + f] = min(integers[others + f], integers[others + f + 1])
            if operation == Operation.ADD_F:
                floats[f] = x + y
            elif operation == Operation.SUBTRACT_F:
                floats[f] = x - y
            elif operation == Operation.MULTIPLY_F:
                floats[f] = x * y
            elif operation == Operation.DIVIDE_F:
                floats[f] = x / y
            else:
                floats[f] = np.fmod(x, y)
        elif operation <= Operation.LESS_EQUAL_I:
            i -= 1
            a, b = integers[i], integers[i + 1]
            integers[own + i] = min(integers[own + i], integers[own + i + 1])
            if operation == Operation.EQUAL_I:
                integers[i] = a == b
            elif operation == Operation.DIFFERENT_I:
                integers[i] = a != b
            elif operation == Operation.LESS_I:
                integers[i] = a < b
            else:
                integers[i] = a <= b
        elif operation <= Operation.LESS_EQUAL_F:
            f -= 2
            x, y = floats[f + 1], floats[f + 2]
            i += 1
            integers[own + i] = min(integers[others + f + 1], integers[others + f + 2])
            if operation == Operation.EQUAL_F:
                integers[i] = x == y
            elif operation == Operation.DIFFERENT_F:
                integers[i] = x != y
            elif operation == Operation.LESS_F:
                integers[i] = x < y
            else:
                integers[i] = x <= y
        # One value in, one value out: a null stays null.
        elif operation == Operation.NOT:
            integers[i] = 1 - integers[i]
        elif operation == Operation.NEGATE_I:
            integers[i] = -integers[i]
        elif operation == Operation.NEGATE_F:
            floats[f] = -floats[f]
        elif operation == Operation.TO_FLOAT:
            f += 1
            floats[f] = np.float64(integers[i])
            integers[others + f] = integers[own + i]
            i -= 1
        elif operation == Operation.TO_INTEGER:
            i += 1
            integers[own + i] = integers[others + f]
            integers[i] = 0
            if integers[own + i] == KNOWN:
                if not (floats[f] >= LEAST_INTEGER and floats[f] < ABOVE_INTEGERS):
                    return FAILED
                integers[i] = np.int64(floats[f])
            f -= 1
        # `and`, `or`: a null does not decide. Where the left side does not, the right one may; else
        # the result is null if one of them is.
        elif operation == Operation.SKIP_IF_FALSE:
            if integers[own + i] == KNOWN and integers[i] == 0:
                at += code[at, 1]
        elif operation == Operation.SKIP_IF_TRUE:
            if integers[own + i] == KNOWN and integers[i] != 0:
                at += code[at, 1]
        elif operation <= Operation.OR:
            i -= 1
            decides = (integers[i + 1] != 0) == (operation == Operation.OR)
            integers[i] = integers[i + 1]
            if not (decides and integers[own + i + 1] == KNOWN):
                integers[own + i] = min(integers[own + i], integers[own + i + 1])
            else:
                integers[own + i] = KNOWN
        # Functions: of a null nothing is computed.
        elif operation == Operation.OF_FLOAT:
            floats[f] = of_float(code[at, 1], floats[f])
        elif operation == Operation.OF_FLOATS:
            f -= 1
            floats[f] = of_floats(code[at, 1], floats[f], floats[f + 1])
            integers[others + f] = min(integers[others + f], integers[others + f + 1])
        elif operation == Operation.OF_INTEGER:
            integers[i] = of_integer(code[at, 1], integers[i])
        elif operation == Operation.OF_INTEGERS:
            i -= 1
            integers[own + i] = min(integers[own + i], integers[own + i + 1])
            if integers[own + i] == KNOWN:
                if not have_value(code[at, 1], integers[i], integers[i + 1]):
                    return FAILED
                integers[i] = of_integers(code[at, 1], integers[i], integers[i + 1])
        elif operation == Operation.ROUNDED:
            i += 1
            integers[own + i] = integers[others + f]
            integers[i] = 0
            if integers[own + i] == KNOWN:
                if not has_integer(code[at, 1], floats[f]):
                    return FAILED
                integers[i] = to_integer(code[at, 1], floats[f])
            f -= 1
        elif operation == Operation.BIT_EQUALS:
            f -= 2
            i += 1
            integers[own + i] = min(integers[others + f + 1], integers[others + f + 2])
            integers[i] = bit_equals(floats[f + 1], floats[f + 2])
        # Actions: a variable is never null, and an action that is given a null gives one.
        elif operation == Operation.LOCAL_I:
            i += 1
            integers[i], integers[own + i] = integers[code[at, 1]], KNOWN
        elif operation == Operation.LOCAL_F:
            f += 1
            floats[f], integers[others + f] = floats[code[at, 1]], KNOWN
        elif operation == Operation.SET_I:
            if integers[own + i] == NULL:
                return FAILED
            integers[code[at, 1]] = integers[i]
            i -= 1
        elif operation == Operation.SET_F:
            if integers[others + f] == NULL:
                return FAILED
            floats[code[at, 1]] = floats[f]
            f -= 1
        elif operation == Operation.JUMP:
            at += code[at, 1]
        elif operation == Operation.JUMP_UNLESS:
            if integers[own + i] == NULL or integers[i] == 0:
                at += code[at, 1]
            i -= 1
        elif operation == Operation.RETURN_I:
            state = integers[own + i]
            integers[code[at, 1]] = integers[i]
            i, f = code[at, 1], code[at, 2] - 1
            integers[own + i] = state
        elif operation == Operation.RETURN_F:
            state = integers[others + f]
            floats[code[at, 1]] = floats[f]
            f, i = code[at, 1], code[at, 2] - 1
            integers[others + f] = state
        else:
            given = code[at, 1]
            first_i, first_f = i - given % CALL + 1, f - given // CALL % CALL + 1
            for entry in range(first_i, i + 1):
                state = min(state, integers[own + entry])
            for entry in range(first_f, f + 1):
                state = min(state, integers[others + entry])
            if state == NULL:
                i, f = first_i - 1, first_f - 1
                if given >= CALL * CALL:
                    f += 1
                    floats[f], integers[others + f] = 0.0, NULL
                else:
                    i += 1
                    integers[i], integers[own + i] = 0, NULL
                at += code[at, 2]
        at += 1
    return integers[own] if i == 0 else integers[others]
