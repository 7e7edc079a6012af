"""An integer beside a float, in conditions, filters and blocks: as the integer's float."""

from __future__ import annotations

import pytest

import ensue

EVENTS = "event A {{ integer n; float f; }}\n"
QUERY = EVENTS + "inputs {{ A({filter}) within 9.0; }} find A as a -> A as b where {condition} {{ {block} }}"
ROWS = [{"at": 1, "n": 7, "f": 2.5}, {"at": 2, "n": -8, "f": 7.0}, {"at": 3, "n": 2**53 + 1, "f": float(2**53)}]


def pairs(condition: str, filtered: str = "") -> list[tuple[int, int]]:
    matches = ensue.replay(QUERY.format(filter=filtered, condition=condition, block=""), ROWS).matches
    return sorted(zip(matches["a.n"], matches["b.n"], strict=True))


@pytest.mark.parametrize(
    ("mixed", "converted"),
    [
        ("a.n = b.f", "a.n.toFloat() = b.f"),
        ("b.f > a.n", "b.f > a.n.toFloat()"),
        ("a.n - b.n >= 14.5", "(a.n - b.n).toFloat() >= 14.5"),
        ("a.n / 2 * 0.5 = 1.5", "(a.n / 2).toFloat() * 0.5 = 1.5"),
        ("a.n / 2.0 = 3.5", "a.n.toFloat() / 2.0 = 3.5"),
        ("b.n % 3.0 < 0", "b.n.toFloat() % 3.0 < 0.0"),
        ("b.n = b.f", "b.n.toFloat() = b.f"),
    ],
)
def test_mixed_numbers_are_compared_and_calculated_as_floats(mixed: str, converted: str) -> None:
    assert pairs(mixed) == pairs(converted) != []


@pytest.mark.parametrize(
    ("filtered", "count"), [("n > 1.5", 2), ("n in [-8.0 : 7.5]", 2), ("f in [2 : 7]", 2), ("f = 7", 1)]
)
def test_filters_take_the_other_sort_of_number(filtered: str, count: int) -> None:
    text = EVENTS + "inputs {{ A({}) within 9.0; }} find A as a"
    assert len(ensue.replay(text.format(filtered), ROWS).matches) == count


def test_blocks_calculate_with_both() -> None:
    block = "float x := 1; x := x + a.n; print (x / 2).toString();"
    outputs = ensue.replay(QUERY.format(filter="n < 8", condition="true", block=block), ROWS).outputs
    assert outputs["text"].tolist() == ["4.0"]
