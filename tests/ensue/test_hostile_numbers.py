"""Numbers beyond their range, in every place where text becomes a number: rows, never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import product

import pytest

import ensue

NUMBERS = (
    *("1e308", "-1e308", "1e400", "5e-324", "infinity", "NaN", "null", "true", "-", "1e", "٣", "[1]", "{1:2}"),
    *("9" * 400, "9" * 5000, "0." + "3" * 5000, f'"{"9" * 5000}"', f'"{"1" * 50_000}x"', '"1e999"', '"\\ud800"'),
    *("1e99999999999999999999", "1e-99999999999999999999", "1e99999999999999999999d", "1e999999999999999999d"),
    *('"9999-12-31T23:59:59.9999999Z"', '"0001-01-01T00:00:00+23:59"', f'"2020-01-01T00:00:00.{"9" * 5000}"'),
)
QUERY = """
event A { integer id; float f; decimal d; string s; }
query Q {
    inputs { A() within 9.0; }
    find A as a { print a.s.toDecimal().toString() + a.s.toFloat().toString() + a.s.toInteger().toString(); }
}
"""


def control_events() -> Iterator[str]:
    """Control events with each number in each place, as text and as JSON."""
    for number, other in product(NUMBERS, ("1.0", "1e308")):
        yield f"SetDelayedEventsLeeway({number}, {other})"
        yield f"SetDelayedEventsLeeway({other}, {number})"
        yield f'Heartbeat("A", {number})'
        yield f'{{"SetDelayedEventsLeeway": [{number}, {other}]}}'
        yield f'{{"Heartbeat": {{"event": "A", "time": {number}}}}}'
        yield f'{{"Heartbeat": {{"event": {number}, "time": 1}}}}'


def test_wrong_control_events_are_error_rows() -> None:
    texts = list(control_events())
    rows = [{"at": 1, "event": text} for text in texts] + [{"at": 2, "event": 'A(1,1.0,1.0,"1")'}]
    result = ensue.replay(QUERY, rows)
    assert len(result.matches) == 1
    errors = result.outputs[result.outputs["kind"] == "error"]
    assert len(errors) > len(texts) / 2
    assert errors["text"].str.len().max() < 500


def test_events_as_text_are_events_or_malformed() -> None:
    texts = [
        text
        for number in NUMBERS
        for text in (f'A({number},1.0,1.0,"")', f'A(1,{number},1.0,"")', f'A(1,1.0,{number},"")')
    ]
    result = ensue.replay(QUERY, [{"at": 1, "event": text} for text in texts])
    assert set(result.discarded["reason"]) == {"malformed"}
    assert len(result.matches) + len(result.discarded) == len(texts)


def test_blocks_read_numbers_from_any_text() -> None:
    texts = [number.strip('"') for number in NUMBERS if "\\" not in number]
    result = ensue.replay(QUERY, [{"at": 1, "event": "A", "id": 1, "f": 1.0, "d": 1.0, "s": text} for text in texts])
    assert len(result.matches) == len(texts)
    assert set(result.outputs["kind"]) == {"print", "error"}


@pytest.mark.parametrize("number", ["sNaN", "NaN", "1e999999", "9" * 60])
def test_a_decimal_that_none_can_be_is_malformed(number: str) -> None:
    row = {"at": 1, "event": "A", "id": 1, "f": 1.0, "d": Decimal(number), "s": ""}
    result = ensue.replay(QUERY, [row, row | {"d": Decimal(1)}])
    assert (len(result.matches), result.discarded["reason"].tolist()) == (1, ["malformed"])
