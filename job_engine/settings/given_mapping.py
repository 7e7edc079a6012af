"""A deployment that a program gives as a mapping: read like a file, with places that are keys.

Each value gets a line of its own, as if it were written in a file. Messages then name the keys that
lead to that line, such as `sources.cards.format`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

import yaml

from querylang.errors import FileErrors

NAME = "the deployment"
"""Its name in messages, where a file has its path."""

DEEPEST = 100
"""How deep lists and mappings may be nested."""

_FLOATS = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}

_TAG = "tag:yaml.org,2002:"


@dataclass(slots=True)
class GivenMapping:
    """A mapping of a program as a document.

    places: by line, from 1, the keys that lead to the value
    """

    root: yaml.Node
    places: Mapping[int, str]


def document_of(given: Mapping[str, Any]) -> GivenMapping:
    """The document. Raises FileErrors for values that no file could have."""
    reader = _Reader()
    root = reader.node(given, "", 0)
    with places_in_words(reader.places):
        if reader.wrong:
            raise FileErrors(NAME, reader.wrong)
    return GivenMapping(root, reader.places)


@contextmanager
def places_in_words(places: Mapping[int, str]) -> Iterator[None]:
    """Raise mistakes in the mapping with keys in place of lines."""
    try:
        yield
    except FileErrors as error:
        if error.path != NAME or not places:
            raise
        raise FileErrors(
            NAME, [(None, _with_place(places.get(line or 0, ""), text)) for line, text in error.found]
        ) from (error.__cause__)


def _with_place(place: str, text: str) -> str:
    return f"{place}: {text}" if place else text


@dataclass(slots=True)
class _Reader:
    places: dict[int, str] = field(default_factory=dict)
    wrong: list[tuple[int | None, str]] = field(default_factory=list)

    def node(self, value: Any, place: str, depth: int) -> yaml.Node:
        """The node of a value at a place."""
        line = len(self.places) + 1
        self.places[line] = place
        mark = yaml.Mark(NAME, 0, line - 1, 0, None, 0)
        if depth > DEEPEST:
            self.wrong.append((line, f"is nested more than {DEEPEST} deep"))
            return _scalar("null", "", mark)
        match value:
            case Mapping():
                entries = [
                    (_scalar("str", str(key), mark), self.node(inner, f"{place}.{key}".lstrip("."), depth + 1))
                    for key, inner in value.items()
                ]
                for key, inner in entries:
                    key.start_mark = inner.start_mark
                return yaml.MappingNode(f"{_TAG}map", entries, mark, mark)
            case list() | tuple():
                items = [self.node(inner, f"{place}[{number}]", depth + 1) for number, inner in enumerate(value)]
                return yaml.SequenceNode(f"{_TAG}seq", items, mark, mark)
            case None:
                return _scalar("null", "", mark)
            case bool():
                return _scalar("bool", str(value).lower(), mark)
            case int():
                return _scalar("int", str(value), mark)
            case float():
                return _scalar("float", _FLOATS.get(repr(value), repr(value)), mark)
            case str():
                return _scalar("str", value, mark)
            case PathLike():
                return _scalar("str", str(fspath(value)), mark)
        self.wrong.append(
            (line, f"is of the type {type(value).__name__}; expected text, a number, a list or a mapping")
        )
        return _scalar("null", "", mark)


def _scalar(kind: str, value: str, mark: yaml.Mark) -> yaml.ScalarNode:
    return yaml.ScalarNode(f"{_TAG}{kind}", value, mark, mark)
