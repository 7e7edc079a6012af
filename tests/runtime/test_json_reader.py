"""The one reader of JSON: limits, shapes, and that whatever is wrong is said in one line with the field."""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from querylang.errors import InputError
from runtime.json_reader import DamagedJson, OtherVersion, json_of_text, read_json, read_json_lines, shaped
from runtime.json_shapes import ROW, Count, Unicode


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Whole:
    name: str
    points: tuple[Point, ...] = ()
    rows: tuple[Annotated[Point, ROW], ...] = ()
    by_number: Mapping[int, Count] = field(default_factory=dict)
    colour: Colour | None = None
    kind: Literal["a", "b"] = "a"
    word: Annotated[str, re.compile("[a-z]+")] = "w"


class Foreign(TypedDict):
    path: str
    size: NotRequired[int | None]


def test_a_shape_gives_the_objects_of_its_annotations() -> None:
    text = """{"name": "n", "points": [{"x": 1}, {"x": 2, "y": 3}], "rows": [[4, 5.5], [6]], "by_number": {"-7": 8},
        "colour": "red", "kind": "b"}"""
    rows = (Point(4, 5.5), Point(6))
    assert json_of_text(text, Whole) == Whole("n", (Point(1), Point(2, 3.0)), rows, {-7: 8}, Colour.RED, "b")


def test_a_typed_dict_leaves_out_what_it_does_not_have() -> None:
    assert json_of_text('{"path": "p", "more": [{}]}', Foreign) == {"path": "p"}
    assert json_of_text('{"path": "p", "size": null}', Foreign) == {"path": "p", "size": None}


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ("", Any, "it is not JSON: Expecting value at line 1, column 1"),
        ('{"x": 1', Point, "it is not JSON: Expecting ',' delimiter at line 1, column 8"),
        ("[]", Point, "expected an object, found a list"),
        ("{}", Point, "'x' is missing"),
        ('{"x": 1, "z": 2}', Point, "'z' is not known; expected x or y"),
        ('{"x": 1, "x": 2}', Point, "'x' is there twice"),
        ('{"x": {"a": {"b": 1, "b": 1}}}', Any, "'b' is there twice"),
        ('{"x": true}', Point, "'x': expected an integer, found true"),
        ('{"x": 1.0}', Point, "'x': expected an integer, found 1.0"),
        ('{"x": "1"}', Point, "'x': expected an integer, found text"),
        ('{"x": 9223372036854775808}', Point, "'x' is not an integer of 64 bits"),
        ('{"x": 1e400}', Any, "a number is too large"),
        ('{"x": -1e400}', Any, "a number is too large"),
        ('{"x": NaN}', Any, "NaN is not a number of JSON"),
        ('{"x": -Infinity}', Any, "-Infinity is not a number of JSON"),
        ("9" * 5000, Any, "a number has too many digits"),
        ('{"x": 1, "y": 1' + "0" * 400 + "}", Point, "'y': a number is too large"),
        ('{"name": "n", "points": [{"x": 1}, {"x": null}]}', Whole, "'points[1].x': expected an integer, found null"),
        ('{"name": "n", "rows": [[1, 2, 3]]}', Whole, "'rows[0]': expected a list of x and y, found a list"),
        ('{"name": "n", "by_number": {"a": 1}}', Whole, "'by_number.a': expected an integer of 64 bits as key"),
        (
            '{"name": "n", "by_number": {"1": -1}}',
            Whole,
            "'by_number.1': expected an integer from 0 to 9223372036854775807",
        ),
        ('{"name": "n", "colour": "blue"}', Whole, "'colour': expected 'red', found text"),
        ('{"name": "n", "kind": 1}', Whole, "'kind': expected 'a' or 'b', found 1"),
        ('{"name": "n", "word": "../x"}', Whole, "'word' is not of the form that it has to have"),
        ('["\\ud800"]', list[Unicode], "'[0]' is not of the form that it has to have"),
        ("[1, 2]", tuple[int, int, int], "expected a list of 3, found a list of 2"),
        (b"\xff", Any, "byte 0 is not UTF-8"),
        ("[" * 1_000_000, Any, "it is nested more than 200 levels deep"),
        ('{"a":' * 300 + "1" + "}" * 300, Any, "it is nested more than 200 levels deep"),
    ],
)
def test_what_does_not_fit_is_said_with_its_field(text: str | bytes, shape: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        json_of_text(text, shape)
    assert str(caught.value) == message


def test_texts_are_never_shown() -> None:
    with pytest.raises(DamagedJson) as caught:
        json_of_text('{"x": "a-password"}', Point)
    assert "password" not in str(caught.value)


def test_depth_is_counted_outside_of_texts() -> None:
    chooser = random.Random(1)

    def made(levels: int) -> Any:
        kind = chooser.random()
        if levels <= 0 or kind < 0.2:
            return chooser.choice(['a"[[[', "\\", '\\\\"]', "{", 1, None, '\n"'])
        if kind < 0.6:
            return [made(levels - 1) for _ in range(chooser.randrange(3))]
        return {chooser.choice('ab"[') + str(number): made(levels - 1) for number in range(chooser.randrange(3))}

    for _ in range(2_000):
        value, deepest = made(chooser.randrange(12)), chooser.randrange(1, 9)
        text = json.dumps(value)
        if _depth(value) > deepest:
            with pytest.raises(DamagedJson, match=f"nested more than {deepest} levels"):
                json_of_text(text, Any, deepest=deepest)  # type: ignore[arg-type]
        else:
            assert json_of_text(text, Any, deepest=deepest) == value  # type: ignore[arg-type]


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def test_a_deep_caller_is_told_so_too() -> None:
    def deep(levels: int) -> Any:
        return json_of_text("[" * 150 + "]" * 150, Any) if not levels else deep(levels - 1)  # type: ignore[arg-type]

    with pytest.raises((DamagedJson, RecursionError)):
        deep(sys.getrecursionlimit())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"version": 2, "x": 1}', "has version 2; this release reads version 1"),
        ('{"version": 1, "x": "a"}', "is damaged: 'x': expected an integer, found text (version 1). Way out"),
        ('{"version": "1"}', "is damaged: 'version': expected an integer, found text. Way out"),
        ('{"x": 1}', "is damaged: 'version' is missing. Way out"),
        ("[]", "is damaged: expected an object, found a list. Way out"),
        ('{"version": 1, "x": 12345678901234567890}', "is damaged: it has more than 40 bytes. Way out"),
    ],
)
def test_a_file_is_named_with_its_version_and_field(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "f.json"
    file.write_text(content)
    with pytest.raises(DamagedJson) as caught:
        read_json(file, Point, versions=(1,), largest=40, way_out="Way out")
    assert str(caught.value) == f"{file}: {message}"


def test_another_version_is_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    file.write_text('{"version": 7}')
    with pytest.raises(OtherVersion) as caught:
        read_json(file, Point, versions=range(2, 5), way_out="")
    assert caught.value.version == 7
    assert str(caught.value) == f"{file}: has version 7; this release reads versions 2 to 4"


def test_a_file_that_is_not_there_says_nothing_about_its_content(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for missing in (tmp_path / "f.json", tmp_path / "file" / "f.json"):
        with pytest.raises(FileNotFoundError):
            read_json(missing, Point, way_out="")


def test_neither_pipes_nor_folders_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for file in (tmp_path / "pipe", tmp_path):
        with pytest.raises(DamagedJson, match="it is not a file"):
            read_json(file, Point, way_out="Way out")


def test_lines_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    file.write_text('{"x": 1}\n\n{"x": 2}\n')
    assert read_json_lines(file, Point, way_out="") == [Point(1), Point(2)]
    file.write_text('{"x": 1}\n\n{"x": null}\n')
    with pytest.raises(DamagedJson, match=r"is damaged: line 3: 'x': expected an integer, found null\. Way out$"):
        read_json_lines(file, Point, way_out="Way out")


def test_plain_data_can_be_shaped() -> None:
    assert shaped([{"x": 1}], list[Point]) == [Point(1)]
