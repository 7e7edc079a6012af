"""Functions and actions over several events: the kernel gives what the reference matcher gives, bit for bit."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import querylang
from querylang.parameters import bind
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.instants import NO_TIME
from runtime.interpreter.numbers import FLOAT_METHODS, INTEGER_METHODS, INTEGER_OPERATORS
from runtime.interpreter.values import EvaluationError
from runtime.matching.choose import slow_queries
from runtime.matching.kernel import functions
from runtime.matching.kernel.functions import OfFloat, OfFloats, OfInteger, OfIntegers, ToInteger

DICE = random.Random(5)
LAST_FINITE = (709.782712893384, 710.4758600739439)
"""Of `exp`; of `sinh` and `cosh`."""
POSITIVE = (
    *(0.0, 0.5, 1.0, 1.5, 2.5, 0.49999999999999994, math.nextafter(1, 2), math.nextafter(1, 0)),
    *(5e-324, 1e308, 2.0**63, math.inf, 4503599627370497.5),
    *(*LAST_FINITE, *(math.nextafter(last, 800) for last in LAST_FINITE)),
    *(DICE.uniform(0, 10) for _ in range(60)),
)
FLOATS = (*POSITIVE, *(-number for number in POSITIVE), math.nan, *np.frombuffer(DICE.randbytes(800)).tolist())
INTEGERS = (
    *(0, 1, -1, 2, -2, 3, -3, 63, 64, 2**63 - 1, -(2**63)),
    *np.frombuffer(DICE.randbytes(160), np.int64).tolist(),
)

Method = Callable[..., Any]
EACH: list[tuple[IntEnum, Method]] = [
    *((item, FLOAT_METHODS[item.name.lower()]) for item in OfFloat if "PART" not in item.name),
    (OfFloat.INTEGRAL_PART, FLOAT_METHODS["integralPart"]),
    (OfFloat.FRACTIONAL_PART, FLOAT_METHODS["fractionalPart"]),
    *((item, FLOAT_METHODS[item.name.lower()]) for item in OfFloats),
    *((item, FLOAT_METHODS[item.name.lower()]) for item in ToInteger if not item.name.startswith("IS_")),
    (ToInteger.IS_NAN, FLOAT_METHODS["isNaN"]),
    (ToInteger.IS_FINITE, FLOAT_METHODS["isFinite"]),
    (ToInteger.IS_INFINITE, FLOAT_METHODS["isInfinite"]),
    (OfInteger.ABS, INTEGER_METHODS["abs"]),
    (OfInteger.BITS_NOT, lambda number: ~number),
    (OfInteger.NEVER, INTEGER_METHODS["isNaN"]),
    (OfInteger.ALWAYS, INTEGER_METHODS["isFinite"]),
    *((item, INTEGER_METHODS[item.name.lower()]) for item in OfIntegers if not item.name.startswith("BITS_")),
    *((item, INTEGER_OPERATORS[item.name[5:].lower()]) for item in OfIntegers if item.name.startswith("BITS_")),
]
"""Each function of the kernel, and the interpreter's."""


def kernel_value(function: IntEnum, run: Callable[[Any], Method], *values: Any) -> Any:
    """What the kernel computes; None = it has no value."""
    match function:
        case OfFloat():
            return run(functions.of_float)(int(function), *map(np.float64, values))
        case OfFloats():
            return run(functions.of_floats)(int(function), *map(np.float64, values))
        case OfInteger():
            return run(functions.of_integer)(int(function), *map(np.int64, values))
        case OfIntegers():
            given = int(function), *map(np.int64, values)
            return run(functions.of_integers)(*given) if run(functions.have_value)(*given) else None
    given = int(function), *map(np.float64, values)
    return run(functions.to_integer)(*given) if run(functions.has_integer)(*given) else None


def bits(value: Any) -> Any:
    """What two equal results have in common: the bits of a float; NaN is one value."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return None if value is None else int(value)


def own_value(method: Method, *values: Any) -> Any:
    try:
        return method(*values)
    except EvaluationError:
        return None


@pytest.mark.parametrize("run", [lambda kernel: kernel, lambda kernel: kernel.plain], ids=["machine code", "plain"])
@pytest.mark.parametrize(("function", "method"), EACH, ids=[f"{type(item).__name__}.{item.name}" for item, _ in EACH])
def test_a_function_is_that_of_the_interpreter(function: IntEnum, method: Method, run: Callable[[Any], Method]) -> None:
    numbers = INTEGERS if isinstance(function, OfInteger | OfIntegers) else FLOATS
    dice, is_pair = random.Random(1), isinstance(function, OfFloats | OfIntegers)
    cases = (
        [(dice.choice(numbers), dice.choice(numbers)) for _ in range(300)] if is_pair else [(one,) for one in numbers]
    )
    with np.errstate(all="ignore"):
        wrong = [case for case in cases if bits(kernel_value(function, run, *case)) != bits(own_value(method, *case))]
    assert wrong == []


def test_floats_with_equal_bits() -> None:
    for x in FLOATS[:40]:
        for y in (*FLOATS[:40], -x, x):
            assert functions.bit_equals(x, y) == FLOAT_METHODS["bitEquals"](x, y)


HEAD = """
event A {
    float v; integer n; boolean b; integer k;
    action lower(A other) returns float { if v < other.v { return v; } return other.v; }
}
query Q {
    parameters { float most := 2.0; }
    inputs { A() key k within 100.0; }
    find A as a -> A as b where CONDITION
    {}
    action square(float x) returns float { return x * x; }
    action apart(A one, A two) returns float {
        float x := one.v - two.v;
        float y := (one.n - two.n).toFloat();
        return (square(x) + square(y)).sqrt();
    }
    action sign(integer n) returns integer { if n > 0 { return 1; } else if n < 0 { return -1; } return 0; }
    action clipped(float x, boolean up) returns float {
        float limit := most;
        if not up { limit := -limit; } else { integer unused := 7 / (x.floor() - 1); }
        if up { return x.min(limit); }
        return x.max(limit);
    }
    action either(boolean one, boolean two) returns boolean { return one or not two; }
}
"""

FLOAT_TERMS = ("a.v", "b.v", "apart(a, b)", "a.lower(b)", "clipped(a.v + b.v, a.b)", "square(a.v - b.v)", "1.5")
INTEGER_TERMS = (
    "a.n",
    "b.n",
    "sign(a.n - b.n)",
    "(a.v - b.v).toInteger()",
    "(a.n and b.n)",
    "(not (a.n xor b.n))",
    "2",
)
OF_FLOATS = (
    "abs()",
    "sqrt()",
    "ln()",
    "sin()",
    "exp()",
    "fractionalPart()",
    "min({})",
    "max({})",
    "pow({})",
    "fmod({})",
)
OF_INTEGERS = ("abs()", "min({})", "max({})", "pow({})", "ceil()")


def random_float(dice: random.Random, depth: int) -> str:
    if depth == 0:
        return dice.choice(FLOAT_TERMS)
    match dice.randrange(4):
        case 0:
            return f"({random_float(dice, depth - 1)} {dice.choice('+-*/')} {random_float(dice, depth - 1)})"
        case 1:
            return f"{random_integer(dice, depth - 1)}.{dice.choice(('toFloat()', 'sqrt()'))}"
        case 2:
            return f"square({random_float(dice, depth - 1)})"
    method = dice.choice(OF_FLOATS).format(random_float(dice, depth - 1))
    return f"{random_float(dice, depth - 1)}.{method}"


def random_integer(dice: random.Random, depth: int) -> str:
    if depth == 0:
        return dice.choice(INTEGER_TERMS)
    match dice.randrange(4):
        case 0:
            return f"({random_integer(dice, depth - 1)} {dice.choice('+-*/%')} {random_integer(dice, depth - 1)})"
        case 1:
            return f"sign({random_integer(dice, depth - 1)})"
        case 2:
            return f"{random_float(dice, depth - 1)}.{dice.choice(('floor()', 'round()', 'ceil()'))}"
    method = dice.choice(OF_INTEGERS).format(random_integer(dice, depth - 1))
    return f"{random_integer(dice, depth - 1)}.{method}"


def random_condition(dice: random.Random) -> str:
    sides = random_float if dice.random() < 0.5 else random_integer
    one = f"{sides(dice, 2)} {dice.choice(('<', '>', '=', '!='))} {sides(dice, dice.randrange(2))}"
    match dice.randrange(5):
        case 0:
            return f"either({one}, a.b)"
        case 1:
            return f"{one} {dice.choice(('and', 'or'))} not either(a.b, {random_float(dice, 1)}.isNaN())"
    return one


def random_table(dice: random.Random, rows: int) -> pa.Table:
    def column(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if dice.random() < 0.1 else dice.choice(values) for _ in range(rows)], kind)

    return pa.table(
        {
            "_kind": pa.array([0] * rows, pa.int16()),
            "_arrival": pa.array(np.arange(rows) * 1_000_000),
            "_source": pa.array(["t"] * rows).dictionary_encode(),
            "_partition": pa.array([0] * rows, pa.int64()),
            "_place": pa.array([0] * rows, pa.int64()),
            "_offset": pa.array(range(rows)),
            "_source_time": pa.array([NO_TIME] * rows),
            "v:float": column([0.0, -0.0, 1.5, -2.25, 1e9, math.nan, math.inf, *map(float, range(5))], pa.float64()),
            "n:integer": column([*range(-3, 6), 2**62], pa.int64()),
            "b:boolean": column([True, False], pa.bool_()),
            "k:integer": pa.array([dice.randrange(2) for _ in range(rows)], pa.int64()),
        }
    )


def found(plan: Plan, table: pa.Table, matcher: str) -> list[str]:
    matches = Engine(plan, matcher=matcher).process(Arrivals(table)).matches.values()
    return [repr(row) for each in matches for row in each.to_pylist()]


@pytest.mark.parametrize("seed", range(60))
def test_a_condition_holds_for_the_same_candidates(seed: int) -> None:
    dice = random.Random(seed)
    find = dice.choice(("A as a -> A as b", "all A as a -> A as b", "A as a -> A as b -> A as c"))
    text = HEAD.replace("CONDITION", random_condition(dice)).replace("A as a -> A as b", find)
    plan = querylang.compile_text(text).plan
    plan = replace(plan, queries=tuple(bind(query, {}) for query in plan.queries))
    assert slow_queries(plan) == []
    table = random_table(dice, 40)
    assert found(plan, table, "kernel") == found(plan, table, "reference")


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (
            "action f(A a, A b) returns boolean { while true { return true; } return false; }",
            "does more than calculate",
        ),
        ("action f(A a, A b) returns boolean { print a.toString(); return true; }", "does more than calculate"),
        ("action f(A a, A b) returns boolean { return f(b, a); }", "calls itself"),
    ],
)
def test_other_actions_are_left_to_the_reference_matcher(action: str, reason: str) -> None:
    plan = querylang.compile_text(HEAD.replace("CONDITION", "f(a, b)").replace("{}\n", "{}\n" + action)).plan
    (line,) = slow_queries(replace(plan, queries=tuple(bind(query, {}) for query in plan.queries)))
    assert reason in line
