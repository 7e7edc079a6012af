"""YAML within limits: every text gives nodes or one clear mistake, in time linear to its length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from querylang.errors import FileErrors
from runtime.yaml_reader import YamlError, file_text, read_nodes, value_of


def read(text: str) -> tuple[Any, list[tuple[int, str]]]:
    """The value of a text, and its mistakes."""
    found: list[tuple[int, str]] = []
    node = read_nodes(text)
    value = None if node is None else value_of(node, lambda line, message: found.append((line, message)))
    return value, found


def doubling(levels: int) -> str:
    """A list of lists, each of which contains the one before twice."""
    lines = [f"- &a{level} [*a{level - 1}, *a{level - 1}]" for level in range(1, levels)]
    return "\n".join(["- &a0 [x, y]", *lines])


def deepening(levels: int) -> str:
    """A list of lists, each of which contains the one before once."""
    return "\n".join(["- &a0 [x]", *(f"- &a{level} [*a{level - 1}]" for level in range(1, levels))])


def test_values_have_their_types() -> None:
    text = "a: [1, 2.5, true, ~, 'x', 2024-01-01]\nb: {c: .inf}"
    value, found = read(text)
    assert (str(value), found) == (
        "{'a': [1, 2.5, True, None, 'x', datetime.date(2024, 1, 1)], 'b': {'c': inf}}",
        [],
    )


def test_keys_are_texts_as_written() -> None:
    assert read("1: x\ntrue: y") == ({"1": "x", "true": "y"}, [])


def test_aliases_and_merged_mappings_are_read() -> None:
    assert read("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: *a") == (
        {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}},
        [],
    )


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("&a [*a]", 1, "*a contains itself"),
        ("a:\n  b: &a\n    - {c: *a}", 3, "*a contains itself"),
        (doubling(40), 18, "has more than 1,000,000 values, with all aliases"),
        (
            "- &a " + "x" * 100_000 + "\n- [" + "*a, " * 200 + "]",
            2,
            "has more than 16,000,000 characters, with all aliases",
        ),
        ("a" * 16_000_001, 1, "is larger than 16 MB; a table of this size is CSV, JSON lines or Parquet"),
        ("a: 1\nb: " + "[" * 100_000, 2, "is nested more than 100 levels deep"),
        ("- " * 100_000, 1, "is nested more than 100 levels deep"),
        (deepening(200), 100, "is nested more than 100 levels deep"),
        ("%TAG !a! x\n" * 50_000, 1, "has more than 100 lines that begin with %"),
        ("a: 1\n? [1]\n: 2", 2, "a key must be a text"),
        ("a: 1\n---\nb: 1", 2, "has a second document"),
        ("a\nb\ud800", 2, "has half of a surrogate pair"),
        ("a: 1\n\x00", 2, "is not YAML: control characters are not allowed"),
        ("a: *b", 1, "unknown alias *b"),
        ("- &a 1\n- &a 2", 2, "duplicate anchor &a"),
        ("a: [1", 1, "is not YAML: did not find expected ',' or ']'"),
    ],
)
def test_a_text_that_cannot_be_read_is_one_mistake_with_its_line(text: str, line: int, told: str) -> None:
    with pytest.raises(YamlError) as raised:
        read_nodes(text)
    assert (raised.value.line, raised.value.message) == (line, told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("!!timestamp x", "'x' is not a date or time that exists"),
        ("2024-02-31", "'2024-02-31' is not a date or time that exists"),
        ("!!int ''", "'' is not a whole number"),
        ("!!bool maybe", "'maybe' is not true or false"),
        ("!!float x", "'x' is not a number"),
        ("9" * 5000, f"'{'9' * 40}' is too long for a number or time"),
        ("1" + ":1" * 200_000, f"'{'1:' * 20}' is too long for a number or time"),
        ("!!set {a}", "the tag !!set is not supported here"),
        ("!!python/object/apply:os.system [true]", "the tag !!python/object/apply:os.system is not supported here"),
        ("{<<: 5}", "`<<` takes a mapping, or a list of mappings"),
        ("{a: 1, a: 2}", "duplicate key 'a'"),
    ],
)
def test_a_value_that_cannot_be_is_a_mistake_with_its_line(text: str, told: str) -> None:
    _, found = read(f"x: 1\ny: {text}")
    assert found == [(2, told)]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("none.yaml", None, "no such file"),
        ("x" * 300 + ".yaml", None, "cannot be read: File name too long"),
        ("a\0b.yaml", None, "no such file"),
        ("a.yaml", b"a: 1\nb: \xff", "is not UTF-8"),
        ("b.yaml", b"#" * 16_000_001, "is larger than 16 MB; a table of this size is CSV, JSON lines or Parquet"),
        (".", None, "is a folder, where a YAML file is expected"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_line(
    name: str, content: bytes | None, told: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FileErrors) as raised:
        file_text(tmp_path / name)
    assert [message for _, message in raised.value.found] == [told]
