"""Streams that once differed, as small as they could be made."""

from __future__ import annotations

import pytest

from tests.differential.compare import check
from tests.support.conditions import Constant, Operation
from tests.support.patterns import Where, chain
from tests.support.scenario import SECOND, InputSetup, Row, Scenario

TWO_EVENTS = (Row(1 * SECOND, "A", s="x"), Row(2 * SECOND, "A", s="y"))


@pytest.mark.parametrize("sign", ["=", "!=", "<", ">"])
def test_strings_of_the_text_are_compared_where_no_field_is(sign: str) -> None:
    condition = Operation(sign, Constant("é"), Constant("b"))
    inputs = (InputSetup("A", within=30 * SECOND),)
    check(Scenario(inputs, chain("A", "A"), TWO_EVENTS, clauses=(Where(condition),)))
