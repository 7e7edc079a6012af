"""Constants of types: what cannot be read off the table."""

from __future__ import annotations

from decimal import Context, Decimal

from querylang.plan.expression import Type
from querylang.plan.library import DECIMAL_LIMIT, LARGEST_INTEGER, SMALLEST_INTEGER, type_constants


def test_the_largest_decimal_is_one_step_below_the_limit() -> None:
    constants = type_constants(Type.DECIMAL)
    exact = Context(prec=60)
    assert exact.add(Decimal(constants["MAX"]), Decimal(constants["EPSILON"])) == DECIMAL_LIMIT


def test_integers_have_64_bits() -> None:
    assert type_constants(Type.INTEGER) == {"MAX": LARGEST_INTEGER, "MIN": SMALLEST_INTEGER}
    assert LARGEST_INTEGER - SMALLEST_INTEGER + 1 == 2**64
