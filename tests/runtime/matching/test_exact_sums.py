"""Exact sums of floats: in kernels as in the interpreter, in any order, with values taken back."""

from __future__ import annotations

import math
import random
import struct
from fractions import Fraction

import pytest

from runtime.interpreter.aggregates import exact_sum
from runtime.matching.kernel.aggregates import add_to_sum, mean_of_integers, new_exact_sums, rounded_sum

GREATEST, LEAST = 1.7976931348623157e308, 5e-324

CASES = {
    "nothing is lost to greater values": ([1e16, 1.0, -1e16], 1.0),
    "ten tenths": ([0.1] * 10, 1.0),
    "halves are rounded to even": ([1.0, 2.0**-53], 1.0),
    "above a half is rounded up": ([1.0, 2.0**-53, LEAST], 1.0 + 2.0**-52),
    "negative sums are rounded alike": ([-1.0, -(2.0**-53), -LEAST], -1.0 - 2.0**-52),
    "rounding carries into the next power of two": ([2.0 - 2.0**-52, 2.0**-53], 2.0),
    "a sum may pass the greatest float on its way": ([GREATEST, GREATEST, -GREATEST], GREATEST),
    "beyond the greatest float": ([GREATEST, GREATEST], math.inf),
    "beyond the least float": ([-GREATEST, -GREATEST], -math.inf),
    "half a step beyond the greatest float": ([GREATEST, 2.0**970], math.inf),
    "less than that": ([GREATEST, 2.0**969], GREATEST),
    "subnormal": ([LEAST, LEAST, LEAST], 3 * LEAST),
    "zero has no sign": ([-0.0, -0.0], 0.0),
    "one infinity": ([math.inf, -GREATEST], math.inf),
    "both infinities": ([math.inf, 1.0, -math.inf], math.nan),
    "not a number": ([math.nan, math.inf], math.nan),
}


def bits(value: float) -> bytes:
    return struct.pack("d", math.nan if math.isnan(value) else value)


def summed(values: list[float], *, removed: tuple[float, ...] = ()) -> float:
    sums = new_exact_sums(2)
    for value in (*removed, *values):
        add_to_sum(sums, 1, value, 1)
    for value in removed:
        add_to_sum(sums, 1, value, -1)
    return rounded_sum(sums, 1)


@pytest.mark.parametrize("name", CASES)
def test_a_sum_is_exact_and_rounded_once(name: str) -> None:
    values, expected = CASES[name]
    for order in (values, values[::-1]):
        assert bits(exact_sum(order)) == bits(expected)
        assert bits(summed(order)) == bits(expected)
        assert bits(summed(order, removed=(math.inf, math.nan, 1e300, -LEAST))) == bits(expected)


def test_kernels_and_interpreter_sum_alike() -> None:
    chooser = random.Random(7)
    for _ in range(300):
        values = [
            chooser.choice((_any_float, lambda _: 2.0**-53, lambda _: 1.0, lambda _: chooser.uniform(-9, 9)))(chooser)
            for _ in range(chooser.randrange(1, 9))
        ]
        assert bits(summed(values, removed=(values[0],))) == bits(exact_sum(values))


def _any_float(chooser: random.Random) -> float:
    value: float = struct.unpack("d", struct.pack("Q", chooser.getrandbits(64)))[0]
    return value


WHOLE = {
    "small": [1, 2, 4],
    "the greatest": [2**63 - 1] * 3,
    "the least": [-(2**63)] * 7,
    "beyond 53 bits": [2**53 + 1, 2**53 + 1],
    "halfway between two floats": [2**53 + 1, 2**53 + 1, 2**53 + 1],
    "just above halfway": [2**53 + 1, 2**53 + 1, 2**53 + 2],
    "of both signs": [2**63 - 1, -(2**63), -1],
    "negative, whole digits": [-(2**62), -(2**32)],
}


def mean(values: list[int]) -> float:
    return mean_of_integers(
        sum(value >> 32 for value in values), sum(value & 0xFFFFFFFF for value in values), len(values)
    )


@pytest.mark.parametrize("name", WHOLE)
def test_a_mean_of_integers_is_rounded_once(name: str) -> None:
    assert mean(WHOLE[name]) == float(Fraction(sum(WHOLE[name]), len(WHOLE[name])))


def test_random_means_of_integers_are_rounded_once() -> None:
    dice = random.Random(3)
    for _ in range(3000):
        size = 2 ** dice.randint(1, 63)
        values = [dice.randint(-size, size - 1) for _ in range(dice.randint(1, 12))]
        assert mean(values) == float(Fraction(sum(values), len(values)))
