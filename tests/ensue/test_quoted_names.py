"""Columns whose names are not one word: written in backquotes."""

from __future__ import annotations

import pytest

import ensue
from querylang.formatter.formatting import definitions, format_text
from runtime.reading.inference.schema import infer_schemas

ROWS = [
    {"at": second, "event": "A", "Card No": "a", "a.b": "u", "x:y": second, "ok?": True, "__n": 1, "where": "w"}
    for second in (1, 2)
]
QUERY = """query Q {
    inputs {
        A(`x:y` > 0) key `Card No` within 1 hour;
    }
    find A as x -> A as y
        where y.`x:y` > x.`x:y` and y.`a.b` = x.`a.b` and x.`ok?` and x.`__n` = 1 and x.where = "w"
    {
        print y.`Card No` + y.`x:y`.toString();
    }
}
"""


def test_fields_of_any_name_are_read_compared_and_printed() -> None:
    result = ensue.replay(QUERY, ROWS)
    assert list(result.outputs["text"]) == ["a2"]
    assert result.match_objects()[0]["key"] == {"Card No": "a"}


def test_inferred_definitions_have_them_too() -> None:
    assert definitions(infer_schemas(ROWS)) == (
        "event A { string `Card No`; string `a.b`; integer `x:y`; boolean `ok?`; integer `__n`; string #where; }"
    )
    assert list(ensue.replay(f"{definitions(infer_schemas(ROWS))} {QUERY}", ROWS).outputs["text"]) == ["a2"]


def test_formatting_keeps_them() -> None:
    assert format_text(QUERY) == QUERY


@pytest.mark.parametrize(("name", "written"), [("my type", "`my type`"), ("1x", "`1x`"), ("on", "#on"), ("a.b", "a.b")])
def test_formatting_keeps_those_of_event_types(name: str, written: str) -> None:
    text = f"query Q {{\n    inputs {{\n        {written}() key k retain 2;\n    }}\n    find {written} as a\n}}\n"
    assert format_text(text.replace(written, f"`{name}`")) == text
    assert ensue.load(text)


@pytest.mark.parametrize(
    "text", ["query Q { inputs { A() key `k within 9.0; } find A as a }", "inputs { A() within 9.0; } find A as ``"]
)
def test_an_open_backquote_is_a_mistake_with_its_place(text: str) -> None:
    with pytest.raises(ensue.QueryErrors, match="unexpected character"):
        ensue.load(text)
