"""Both evaluators, for one candidate and for many at once, know every operation and agree with plain Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from runtime.instants import NEVER
from runtime.interpreter.numbers import integer_power, smaller
from runtime.matching.kernel import lookahead
from runtime.matching.kernel.evaluator import FAILED, KNOWN, NULL, LoadedProgram, new_stacks, state_of
from runtime.matching.kernel.functions import OfFloat, OfFloats, OfInteger, OfIntegers, ToInteger
from runtime.matching.kernel.lookahead import lookahead_after, new_lanes
from runtime.matching.kernel.program import CALL, KernelProgram, Operation

INTEGERS = (0, 1, -1, 7, -7, 3, -3, 2**63 - 1, -(2**63), None)
FLOATS = (0.0, -0.0, 1.5, -1.5, 3.0, 1e308, 9.3e18, -(2.0**63), math.inf, -math.inf, math.nan, None)

Code = list[tuple[Operation, int, int]]
Value = int | float | None

PUSH_INTEGERS = [(Operation.PUSH_I, 0, 0), (Operation.PUSH_I, 1, 1)]
PUSH_FLOATS = [(Operation.PUSH_F, 0, 0), (Operation.PUSH_F, 1, 1)]

NOT_IN_LANES = {
    Operation.SKIP_IF_FALSE: "lanes execute every instruction together, so none can be skipped",
    Operation.SKIP_IF_TRUE: "the same",
    Operation.AND: "it is only what a skip jumps over",
    Operation.OR: "the same",
    Operation.JUMP: "lanes execute every instruction together, so none can jump",
    Operation.JUMP_UNLESS: "the same",
}
"""Operations that looking ahead does not know, and why it never meets them: `lookahead_after` refuses their programs."""


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def quotient(a: int, b: int) -> int | None:
    return None if b == 0 else wrapped(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def modulo(a: int, b: int) -> int | None:
    return None if b == 0 else a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def ratio(x: float, y: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(x) / np.float64(y))


def float_modulo(x: float, y: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.fmod(x, y))


def whole(x: float) -> int | None:
    return math.trunc(x) if -(2.0**63) <= x < 2.0**63 else None


def product(x: float, y: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(x) * np.float64(y))


def power(a: int, b: int) -> int | None:
    return None if a == 0 and b < 0 else integer_power(a, b)


SAMPLES: dict[Operation, tuple[Code, Callable[[Any, Any], Value]]] = {
    Operation.PUSH_I: ([(Operation.PUSH_I, 0, 0)], lambda a, _: a),
    Operation.PUSH_F: ([(Operation.PUSH_F, 1, 1)], lambda _, y: y),
    Operation.CONSTANT_I: ([(Operation.CONSTANT_I, 1, 0)], lambda _a, _b: 42),
    Operation.CONSTANT_F: ([(Operation.CONSTANT_F, 1, 0)], lambda _x, _y: 2.5),
    Operation.ADD_I: (PUSH_INTEGERS, lambda a, b: wrapped(a + b)),
    Operation.SUBTRACT_I: (PUSH_INTEGERS, lambda a, b: wrapped(a - b)),
    Operation.MULTIPLY_I: (PUSH_INTEGERS, lambda a, b: wrapped(a * b)),
    Operation.DIVIDE_I: (PUSH_INTEGERS, quotient),
    Operation.REMAINDER_I: (PUSH_INTEGERS, modulo),
    Operation.ADD_F: (PUSH_FLOATS, lambda x, y: x + y),
    Operation.SUBTRACT_F: (PUSH_FLOATS, lambda x, y: x - y),
    Operation.MULTIPLY_F: (PUSH_FLOATS, product),
    Operation.DIVIDE_F: (PUSH_FLOATS, ratio),
    Operation.REMAINDER_F: (PUSH_FLOATS, float_modulo),
    Operation.EQUAL_I: (PUSH_INTEGERS, lambda a, b: int(a == b)),
    Operation.DIFFERENT_I: (PUSH_INTEGERS, lambda a, b: int(a != b)),
    Operation.LESS_I: (PUSH_INTEGERS, lambda a, b: int(a < b)),
    Operation.LESS_EQUAL_I: (PUSH_INTEGERS, lambda a, b: int(a <= b)),
    Operation.EQUAL_F: (PUSH_FLOATS, lambda x, y: int(x == y)),
    Operation.DIFFERENT_F: (PUSH_FLOATS, lambda x, y: int(x != y)),
    Operation.LESS_F: (PUSH_FLOATS, lambda x, y: int(x < y)),
    Operation.LESS_EQUAL_F: (PUSH_FLOATS, lambda x, y: int(x <= y)),
    Operation.NOT: ([*PUSH_INTEGERS, (Operation.LESS_I, 0, 0)], lambda a, b: int(not a < b)),
    Operation.NEGATE_I: (PUSH_INTEGERS[:1], lambda a, _: wrapped(-a)),
    Operation.NEGATE_F: (PUSH_FLOATS[:1], lambda x, _: -x),
    Operation.TO_FLOAT: (PUSH_INTEGERS[:1], lambda a, _: float(a)),
    Operation.TO_INTEGER: (PUSH_FLOATS[:1], lambda x, _: whole(x)),
    Operation.OF_FLOAT: ([*PUSH_FLOATS[:1], (Operation.OF_FLOAT, OfFloat.ABS, 0)], lambda x, _: abs(x)),
    Operation.OF_FLOATS: ([*PUSH_FLOATS, (Operation.OF_FLOATS, OfFloats.MIN, 0)], smaller),
    Operation.OF_INTEGER: (
        [*PUSH_INTEGERS[:1], (Operation.OF_INTEGER, OfInteger.ABS, 0)],
        lambda a, _: wrapped(abs(a)),
    ),
    Operation.OF_INTEGERS: ([*PUSH_INTEGERS, (Operation.OF_INTEGERS, OfIntegers.POW, 0)], power),
    Operation.ROUNDED: (
        [*PUSH_FLOATS[:1], (Operation.ROUNDED, ToInteger.FLOOR, 0)],
        lambda x, _: whole(x // 1) if math.isfinite(x) else None,
    ),
    Operation.BIT_EQUALS: (PUSH_FLOATS, lambda x, y: int(repr(x) == repr(y))),
    Operation.LOCAL_I: (
        [*PUSH_INTEGERS[:1], (Operation.LOCAL_I, 0, 0), (Operation.ADD_I, 0, 0)],
        lambda a, _: wrapped(a + a),
    ),
    Operation.LOCAL_F: ([*PUSH_FLOATS[:1], (Operation.LOCAL_F, 0, 0), (Operation.ADD_F, 0, 0)], lambda x, _: x + x),
    Operation.SET_I: ([*PUSH_INTEGERS, (Operation.SET_I, 0, 0)], lambda _, b: b),
    Operation.SET_F: ([*PUSH_FLOATS, (Operation.SET_F, 0, 0)], lambda _, y: y),
    Operation.RETURN_I: (
        [*PUSH_INTEGERS, (Operation.NULL_CALL, 2, 1), (Operation.RETURN_I, 0, 0)],
        lambda _, b: b,
    ),
    Operation.RETURN_F: (
        [*PUSH_FLOATS, (Operation.NULL_CALL, 2 * CALL + CALL * CALL, 1), (Operation.RETURN_F, 0, 0)],
        lambda _, y: y,
    ),
    Operation.NULL_CALL: (
        [*PUSH_INTEGERS, (Operation.NULL_CALL, 2, 1), (Operation.ADD_I, 0, 0)],
        lambda a, b: wrapped(a + b),
    ),
    Operation.JUMP: ([*PUSH_INTEGERS[:1], (Operation.JUMP, 1, 0), (Operation.NEGATE_I, 0, 0)], lambda a, _: a),
    Operation.JUMP_UNLESS: (
        [*PUSH_INTEGERS, (Operation.NULL_CALL, 2, 2), (Operation.JUMP_UNLESS, 1, 0), (Operation.NEGATE_I, 0, 0)],
        lambda a, b: wrapped(-a) if b else a,
    ),
}
"""By operation, the instructions before it, and what it makes of the two operands; pushes are their own."""

SKIPS: dict[Operation, Callable[[int, int], int | None]] = {
    Operation.SKIP_IF_FALSE: lambda a, b: 0 if a == 0 else b,
    Operation.SKIP_IF_TRUE: lambda a, b: a if a != 0 else b,
    Operation.AND: lambda a, b: 0 if a == 0 else b,
    Operation.OR: lambda a, b: a if a != 0 else b,
}
"""What `and` and `or` make of two operands, each by its skip and what that jumps over."""
DECIDING = {
    **dict.fromkeys((Operation.SKIP_IF_FALSE, Operation.AND), 0),
    **dict.fromkeys((Operation.SKIP_IF_TRUE, Operation.OR), 1),
}


def code_of(operation: Operation) -> Code:
    if operation in SKIPS:
        is_and = DECIDING[operation] == 0
        skip = Operation.SKIP_IF_FALSE if is_and else Operation.SKIP_IF_TRUE
        return [PUSH_INTEGERS[0], (skip, 2, 0), PUSH_INTEGERS[1], (Operation.AND if is_and else Operation.OR, 0, 0)]
    before, _ = SAMPLES[operation]
    return before if any(item[0] is operation for item in before) else [*before, (operation, 0, 0)]


def is_about_floats(code: Code) -> bool:
    return any(operation in (Operation.PUSH_F, Operation.CONSTANT_F) for operation, _, _ in code)


def samples(code: Code) -> list[tuple[Any, Any]]:
    values: tuple[Any, ...] = FLOATS if is_about_floats(code) else INTEGERS
    if any(operation in SKIPS for operation, _, _ in code):
        values = (0, 1, None)
    return list(itertools.product(values, values))


def expected(operation: Operation, code: Code, x: Any, y: Any) -> Value:
    """None without a value: what an instruction pushes must have one, but for `and` and `or`."""
    if operation in SKIPS:
        if DECIDING[operation] in (x, y):
            return DECIDING[operation]
        return None if None in (x, y) else SKIPS[operation](x, y)
    pushed = [(x, y)[first] for push, first, _ in code if push in (Operation.PUSH_I, Operation.PUSH_F)]
    return None if None in pushed else SAMPLES[operation][1](x, y)


def loaded(code: Code, pairs: list[tuple[Any, Any]]) -> LoadedProgram:
    """The program over two operands; those of pair p are at position p."""
    states = np.array(
        [[KNOWN if value is not None else NULL for value in column] for column in zip(*pairs, strict=True)]
    )
    values = [[0 if value is None else value for value in column] for column in zip(*pairs, strict=True)]
    integers, floats = (np.zeros((2, len(pairs))), values)[:: -1 if not is_about_floats(code) else 1]
    stacks = new_stacks()
    return LoadedProgram(
        code=np.array(code, np.int32),
        ends=np.array([0, len(code)]),
        integer_constants=np.array([0, 42]),
        float_constants=np.array([0.0, 2.5]),
        integer_columns=np.array(integers, np.int64),
        integer_state=states.astype(np.int8),
        integer_mask=np.arange(2, dtype=np.int32),
        float_columns=np.array(floats, np.float64),
        float_state=states.astype(np.int8),
        float_mask=np.arange(2, dtype=np.int32),
        is_complete=False,
        stack_integers=stacks[0],
        stack_floats=stacks[1],
    )


def is_float(operation: Operation) -> bool:
    return (
        operation.name.endswith(("_F", "FLOAT", "FLOATS"))
        and not Operation.EQUAL_F <= operation <= Operation.LESS_EQUAL_F
    )


def test_every_operation_is_known() -> None:
    assert SAMPLES.keys() | SKIPS.keys() == set(Operation)
    assert SKIPS.keys() | {Operation.JUMP, Operation.JUMP_UNLESS} == NOT_IN_LANES.keys()


@pytest.mark.parametrize("operation", Operation, ids=lambda operation: operation.name)
def test_for_one_candidate(operation: Operation) -> None:
    code = code_of(operation)
    pairs = samples(code)
    program = loaded(code, pairs)
    found: list[Value] = []
    for position in range(len(pairs)):
        with np.errstate(all="ignore"):
            state = state_of.plain(program, 0, np.array([position, position]), KNOWN)  # type: ignore[attr-defined]
        value = (program.stack_floats if is_float(operation) else program.stack_integers)[0].item()
        found.append(value if state == KNOWN else None)
    assert list(map(repr, found)) == [repr(expected(operation, code, *pair)) for pair in pairs]


@pytest.mark.parametrize(
    "operation", [item for item in Operation if item not in NOT_IN_LANES], ids=lambda operation: operation.name
)
def test_for_many_candidates_at_once(operation: Operation) -> None:
    """The first operand is that of the event looked for, so of each lane; the second is the same for all lanes."""
    code = code_of(operation)
    pairs = samples(code)
    true = [(Operation.CONSTANT_I, 1, 0)] if is_float(operation) else []  # so that the program is a condition
    program = loaded([*code, *true], pairs)
    size = math.isqrt(len(pairs))
    for bound in range(size):  # pair `size * n + bound` has the second operand of pair `bound`
        lanes = new_lanes(1, len(pairs))
        lanes.position[:size] = bound + size * np.arange(size)
        lanes.is_left[:size] = 1
        with np.errstate(all="ignore"):
            run = lookahead._any_holds.plain  # type: ignore[attr-defined]
            any_holds = run(program, 0, np.array([-1, bound]), lanes, size)
        results = [expected(operation, code, *pairs[position]) for position in lanes.position[:size]]
        is_left = [value is not None and (is_float(operation) or value != 0) for value in results]
        assert any_holds == any(is_left)
        if any_holds:
            assert lanes.is_left[:size].tolist() == [int(item) for item in is_left]
            values = lanes.floats[0] if is_float(operation) else lanes.integers[0]
            known = [(values[lane].item(), value) for lane, value in enumerate(results) if value is not None]
            assert [repr(value) for value, _ in known] == [repr(value) for _, value in known]


@pytest.mark.parametrize("operation", NOT_IN_LANES, ids=lambda operation: operation.name)
def test_programs_that_lanes_cannot_run_are_refused(operation: Operation) -> None:
    code = np.array(code_of(operation), np.int32)
    program = KernelProgram(code, np.array([0, len(code)]), np.zeros(1, np.int64), np.zeros(1), (), (), ())
    assert lookahead_after(program, 0) == NEVER


LOGIC = [operation for operation in DECIDING if operation >= Operation.AND]


@pytest.mark.parametrize("operation", LOGIC, ids=lambda operation: operation.name)
@pytest.mark.parametrize("left", [KNOWN, NULL, FAILED])
def test_what_fails_is_not_a_null(operation: Operation, left: int) -> None:
    """The right side fails: that matters unless the left side decides."""
    code = code_of(operation)
    decides = DECIDING[operation]
    program = loaded(code, [(decides, 0), (1 - decides, 0)])
    program = program._replace(integer_state=np.array([[left, left], [FAILED, FAILED]], np.int8))
    states = [state_of.plain(program, 0, np.array([at, at]), KNOWN) for at in (0, 1)]  # type: ignore[attr-defined]
    assert states == [KNOWN if left == KNOWN else FAILED, FAILED]
