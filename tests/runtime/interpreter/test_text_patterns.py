"""Patterns with wildcards against `re`, case folding over all characters, networks against `ipaddress`."""

from __future__ import annotations

import ipaddress
import random
import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import querylang
from querylang.plan.expression import Type
from querylang.plan.model import Where
from runtime.columns.arrivals import column_name
from runtime.columns.expressions import as_array
from runtime.interpreter.strings import (
    STRING_METHODS,
    equal_ignoring_case,
    folded,
    in_network,
    like,
    regular_expression,
)
from tests.support.pace import measured


def by_re(pattern: str) -> re.Pattern[str]:
    """A pattern as Python's regular expression, made without what is tested."""
    made, left = "", pattern
    while left:
        if left[0] == "\\" and left[1:2] in ("*", "?", "\\"):
            made, left = made + re.escape(left[1]), left[2:]
        else:
            made, left = made + {"*": ".*", "?": "."}.get(left[0], re.escape(left[0])), left[1:]
    return re.compile(made, re.DOTALL)


def random_text(dice: random.Random, letters: str, most: int) -> str:
    return "".join(dice.choice(letters) for _ in range(dice.randrange(most)))


def test_wildcards_are_those_of_a_regular_expression() -> None:
    dice, fitting = random.Random(3), 0
    for _ in range(8000):
        pattern, text = random_text(dice, "aab*?\\\n\u00df ", 7), random_text(dice, "aab*?\\\n\u00df ", 9)
        expected = by_re(pattern).fullmatch(text) is not None
        fitting += expected
        in_columns = pc.match_substring_regex(pa.scalar(text), pattern=regular_expression(pattern)).as_py()
        assert (like(text, pattern), in_columns) == (expected, expected), (pattern, text)
    assert fitting > 300


def test_many_wildcards_take_no_longer_than_few() -> None:
    with measured() as used:
        assert not like("a" * 100_000, "*a" * 40 + "*b")
    assert used.seconds < 1.0


def test_each_character_is_folded_to_one_that_stays() -> None:
    characters = [chr(code) for code in range(1 << 17) if not 0xD800 <= code < 0xE000]
    assert all(len(folded(one)) == 1 and folded(folded(one)) == folded(one) for one in characters)
    one_to_one = [one for one in characters if len(one.upper()) == len(one.upper().lower()) == 1]
    assert all(equal_ignoring_case(one.upper(), one.upper().lower()) for one in one_to_one)


def test_networks_are_those_of_the_standard_library() -> None:
    dice = random.Random(7)
    for _ in range(3000):
        version = dice.choice((32, 128))
        base, length = dice.getrandbits(version), dice.randrange(version + 1)
        wanted = ipaddress.ip_network((base, length), strict=False)
        near = base ^ (1 << dice.randrange(version))
        address = ipaddress.IPv4Address(near) if version == 32 else ipaddress.IPv6Address(near)
        assert in_network(str(address), str(wanted)) == (address in wanted)
        assert not in_network(dice.choice(("", "host", "1.2.3", "1.2.3.4.5", "::g", " 1.2.3.4")), str(wanted))


CALLS = (
    ("like", "*.exe"),
    ("likeIgnoreCase", "*\\\\cmd.?xe"),
    ("equalsIgnoreCase", "CMD.exe"),
    ("inNetwork", "10.0.0.0/8"),
)


@pytest.mark.parametrize(("name", "argument"), CALLS)
def test_columns_give_what_single_values_give(name: str, argument: str) -> None:
    texts = ["cmd.exe", "C:\\CMD.EXE", "", None, "10.1.2.3", "::1", "stra\u00dfe", "x\ny", "10.1.2.3"]
    written = argument.replace("\\", "\\\\")
    head = "event A { string s; } query Q { inputs { A() within 3.0; } find A as a where "
    plan = querylang.compile_text(f'{head} a.s.{name}("{written}") }}').plan
    (where,) = plan.queries[0].conditions
    assert isinstance(where, Where)
    table = pa.table({column_name("s", Type.STRING): texts})
    found = as_array(where.condition, table, plan, plan.events[0]).to_pylist()
    assert found == [None if text is None else STRING_METHODS[name](text, argument) for text in texts]
    assert True in found
