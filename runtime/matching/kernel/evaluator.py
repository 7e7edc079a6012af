"""What a condition's program comes to: the steps of `runtime.matching.kernel.program`, one candidate at a time.

Takes a program, its operands as columns and the positions of the events that are bound; gives the value on top of a stack.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.columns.expressions import divide, remainder
from runtime.compiled import inlined
from runtime.matching.kernel.program import STACK


class Conditions(NamedTuple):
    """A program with its operands as columns, as the kernel takes it. Operands are by (operand, position).

    `integer_mask[operand]` is the row of `integer_valid` that says where the operand has a value, -1 if everywhere;
    `is_complete`: all operands have one everywhere.
    """

    code: NDArray[np.int32]
    ends: NDArray[np.int64]
    integers: NDArray[np.int64]
    floats: NDArray[np.float64]
    integer_columns: NDArray[np.int64]
    integer_valid: NDArray[np.bool_]
    integer_mask: NDArray[np.int32]
    float_columns: NDArray[np.float64]
    float_valid: NDArray[np.bool_]
    float_mask: NDArray[np.int32]
    is_complete: bool


class Stacks(NamedTuple):
    """Room for a program to work in: STACK + 1 entries each."""

    whole: NDArray[np.int64]
    real: NDArray[np.float64]


def new_stacks() -> Stacks:
    """Room for any program."""
    return Stacks(np.empty(STACK + 1, np.int64), np.empty(STACK + 1, np.float64))


@inlined
def compares(conditions: Conditions, operation: int, left: int, here: int, right: int, there: int) -> bool:
    """Whether a comparison of the operand `left` at position `here` with `right` at `there` is true."""
    good = conditions.is_complete or _has_both(conditions, operation, left, here, right, there)
    if good and operation >= 40:
        x, y = conditions.float_columns[left, here], conditions.float_columns[right, there]
        if operation == 42:
            good = x < y
        elif operation == 43:
            good = x <= y
        elif operation == 40:
            good = x == y
        else:
            good = x != y
    elif good:
        a, b = conditions.integer_columns[left, here], conditions.integer_columns[right, there]
        if operation == 32:
            good = a < b
        elif operation == 33:
            good = a <= b
        elif operation == 30:
            good = a == b
        else:
            good = a != b
    return good


@inlined
def _has_both(conditions: Conditions, operation: int, left: int, here: int, right: int, there: int) -> bool:
    """Whether both operands of a comparison have a value."""
    if operation >= 40:
        mask, other = conditions.float_mask[left], conditions.float_mask[right]
        good = mask < 0 or conditions.float_valid[mask, here]
        good = good and (other < 0 or conditions.float_valid[other, there])
    else:
        mask, other = conditions.integer_mask[left], conditions.integer_mask[right]
        good = mask < 0 or conditions.integer_valid[mask, here]
        good = good and (other < 0 or conditions.integer_valid[other, there])
    return good


@inlined
def holds(conditions: Conditions, condition: int, bound: NDArray[np.int64], stacks: Stacks) -> bool:
    """Whether an expression is true of the events at the positions `bound`, by term; without a value it is false."""
    return has_value(conditions, condition, bound, stacks) and stacks.whole[0] != 0


@inlined
def has_value(conditions: Conditions, condition: int, bound: NDArray[np.int64], stacks: Stacks) -> bool:
    """Evaluates an expression over the events at the positions `bound`, by term; leaves its value on top of a stack.

    An operand without a value, a division of integers by zero or a float that is no integer: there is none.
    """
    code, whole, real = conditions.code, stacks.whole, stacks.real
    at, last = conditions.ends[condition], conditions.ends[condition + 1]
    i = f = -1
    while at < last:
        step = code[at, 0]
        if step == 1:
            operand, position = code[at, 1], bound[code[at, 2]]
            mask = conditions.float_mask[operand]
            if mask >= 0 and not conditions.float_valid[mask, position]:
                return False
            f += 1
            real[f] = conditions.float_columns[operand, position]
        elif step == 0:
            operand, position = code[at, 1], bound[code[at, 2]]
            mask = conditions.integer_mask[operand]
            if mask >= 0 and not conditions.integer_valid[mask, position]:
                return False
            i += 1
            whole[i] = conditions.integer_columns[operand, position]
        elif step == 2:
            i += 1
            whole[i] = conditions.integers[code[at, 1]]
        elif step == 3:
            f += 1
            real[f] = conditions.floats[code[at, 1]]
        elif step < 20:
            i -= 1
            a, b = whole[i], whole[i + 1]
            if step == 10:
                whole[i] = a + b
            elif step == 11:
                whole[i] = a - b
            elif step == 12:
                whole[i] = a * b
            elif b == 0:
                return False
            elif step == 13:
                whole[i] = divide(a, b)
            else:
                whole[i] = remainder(a, b)
        elif step < 30:
            f -= 1
            x, y = real[f], real[f + 1]
            if step == 20:
                real[f] = x + y
            elif step == 21:
                real[f] = x - y
            elif step == 22:
                real[f] = x * y
            elif step == 23:
                real[f] = x / y
            else:
                real[f] = np.fmod(x, y)
        elif step < 40:
            i -= 1
            a, b = whole[i], whole[i + 1]
            if step == 30:
                whole[i] = a == b
            elif step == 31:
                whole[i] = a != b
            elif step == 32:
                whole[i] = a < b
            else:
                whole[i] = a <= b
        elif step < 50:
            f -= 2
            x, y = real[f + 1], real[f + 2]
            i += 1
            if step == 40:
                whole[i] = x == y
            elif step == 41:
                whole[i] = x != y
            elif step == 42:
                whole[i] = x < y
            else:
                whole[i] = x <= y
        elif step == 50:
            whole[i] = 1 - whole[i]
        elif step == 51:
            whole[i] = -whole[i]
        elif step == 52:
            real[f] = -real[f]
        elif step == 53:
            f += 1
            real[f] = np.float64(whole[i])
            i -= 1
        elif step == 54:
            if not (real[f] >= -9223372036854775808.0 and real[f] < 9223372036854775808.0):
                return False
            i += 1
            whole[i] = np.int64(real[f])
            f -= 1
        elif step == 60:
            if whole[i] == 0:
                at += code[at, 1]
        elif step == 61:
            if whole[i] != 0:
                at += code[at, 1]
        else:
            i -= 1
        at += 1
    return True
