"""A YAML file in which every value knows its place: mistakes are reported with file, line and what was expected.

Takes text; gives `Node`s that check and convert what they hold. Mistakes are collected, so that a user sees all of
them at once. `${NAME}` in a value is taken from the environment; messages show what is written, never what it stands for.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import yaml

from querylang.errors import FileErrors
from querylang.parameters.given_values import Given

Word = TypeVar("Word")
Value = TypeVar("Value")

_VARIABLE = re.compile(r"\$\{([^}]*)\}")


@dataclass(slots=True)
class Mistakes:
    """What is wrong with one file, in order of discovery."""

    path: str
    environment: Mapping[str, str]
    found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, message: str) -> None:
        """One mistake and its line, from 1."""
        self.found.append((line, message))

    def raise_if_any(self) -> None:
        """Raises FileErrors with all of them."""
        if self.found:
            raise FileErrors(self.path, sorted(self.found))


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the document; `name` is how messages call it."""

    raw: yaml.Node
    name: str
    mistakes: Mistakes

    @property
    def line(self) -> int:
        """The line of the value, from 1."""
        return int(self.raw.start_mark.line) + 1

    def wrong(self, message: str) -> None:
        """Report a mistake here."""
        self.mistakes.add(self.line, message)

    def expected(self, what: str) -> None:
        """Report that something else stands here."""
        self.wrong(f"'{self.name}' must be {what}, not {self._shown()}")

    def _shown(self) -> str:
        match self.raw:
            case yaml.ScalarNode():
                return f"{self.raw.value!r}" if self.raw.value else "empty"
            case yaml.SequenceNode():
                return "a list"
            case _:
                return "a mapping"

    def is_empty(self) -> bool:
        """Whether nothing is written."""
        return isinstance(self.raw, yaml.ScalarNode) and self.raw.tag.endswith(":null")

    def mapping(self, known: Iterable[str] | None = None) -> dict[str, Node]:
        """The entries of a mapping; `known` names the keys that may stand in it."""
        if not isinstance(self.raw, yaml.MappingNode):
            self.expected("a mapping of names to values")
            return {}
        names = None if known is None else list(known)
        entries: dict[str, Node] = {}
        for key, value in self.raw.value:
            word = str(key.value)
            node = Node(value, word, self.mistakes)
            if word in entries:
                self.mistakes.add(key.start_mark.line + 1, f"'{word}' stands twice in '{self.name}'")
            elif names is not None and word not in names:
                offer = near(word, names)
                message = f"'{word}' is not known in '{self.name}'"
                self.mistakes.add(key.start_mark.line + 1, message + (offer or f"; expected {listed(names)}"))
            else:
                entries[word] = node
        return entries

    def items(self) -> list[Node]:
        """The entries of a list; a single value counts as a list of one."""
        if isinstance(self.raw, yaml.SequenceNode):
            return [Node(item, self.name, self.mistakes) for item in self.raw.value]
        return [self]

    def text(self) -> str:
        """A text or number as text, with variables replaced; "" after a mistake."""
        if not isinstance(self.raw, yaml.ScalarNode) or self.is_empty():
            self.expected("a text")
            return ""
        return _VARIABLE.sub(self._variable, str(self.raw.value))

    def scalar(self) -> bool | int | float | str | None:
        """A value of the type that YAML gives it; what holds a variable is read again with its value."""
        try:
            read = yaml.compose(self.text(), yaml.SafeLoader) if _VARIABLE.search(self.written()) else self.raw
            if isinstance(read, yaml.ScalarNode):
                return yaml.SafeLoader("").construct_object(read)
        except (yaml.YAMLError, ValueError):
            pass
        self.expected("a number, a text, true or false")
        return None

    def _variable(self, found: re.Match[str]) -> str:
        name = found[1]
        if name not in self.mistakes.environment:
            self.wrong(f"'{self.name}' needs the environment variable {name}, which is not set")
        return self.mistakes.environment.get(name, "")

    def one_of(self, words: Mapping[str, Word], unsupported: Iterable[str] = ()) -> Word | None:
        """The value that a word stands for; words of later releases are refused by name."""
        word = self.text()
        if word in words:
            return words[word]
        if word in set(unsupported):
            self.wrong(f"'{self.name}: {word}' is not supported yet; supported: {listed(words)}")
        elif word:
            self.wrong(f"'{self.name}' must be {listed(words, 'or')}, not '{self.written()}'{near(word, words)}")
        return None

    def written(self) -> str:
        """The value as it stands in the file."""
        return str(self.raw.value) if isinstance(self.raw, yaml.ScalarNode) else ""

    def number(self, *, least: int, most: int) -> int | None:
        """A whole number between two others."""
        word = self.text()
        if re.fullmatch(r"[+-]?\d+", word) and least <= int(word) <= most:
            return int(word)
        if word:
            self.expected(f"a whole number from {least} to {most}")
        return None

    def parsed(self, parse: Callable[[str], Value | None], what: str) -> Value | None:
        """What a function makes of the text; None from it is a mistake."""
        word = self.text()
        value = parse(word) if word else None
        if word and value is None:
            self.expected(what)
        return value


def read_document(
    text: str,
    mistakes: Mistakes,
    name: str = "the deployment",
    beginning: str = "a deployment file begins with `name:`",
) -> Node:
    """The root of a YAML text, called `name`; raises FileErrors for what is no YAML, or empty."""
    try:
        raw = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise FileErrors(mistakes.path, [(line, f"is not YAML: {error.problem}")]) from error
    except yaml.YAMLError as error:
        raise FileErrors(mistakes.path, [(1, f"is not YAML: {' '.join(str(error).split())}")]) from error
    if raw is None:
        raise FileErrors(mistakes.path, [(1, f"is empty; {beginning}")])
    return Node(raw, name, mistakes)


def read_given(node: Node) -> Given:
    """Values of parameters, however nested, each with the line of its name."""
    lines: dict[tuple[str, ...], int] = {(): node.line}
    values = _plain(node, (), lines)
    return Given(values if isinstance(values, dict) else {}, node.mistakes.path, lines)


def _plain(node: Node, keys: tuple[str, ...], lines: dict[tuple[str, ...], int]) -> Any:
    match node.raw:
        case yaml.MappingNode():
            lines |= {(*keys, str(key.value)): key.start_mark.line + 1 for key, _ in node.raw.value}
            return {name: _plain(inner, (*keys, name), lines) for name, inner in node.mapping().items()}
        case yaml.ScalarNode() if keys:
            return node.scalar()
    node.expected("a mapping of names to values")
    return None


def near(word: str, words: Iterable[str]) -> str:
    """`; did you mean '...'?` where a word is near."""
    found = difflib.get_close_matches(word, list(words), 1)
    return f"; did you mean '{found[0]}'?" if found else ""


def listed(words: Iterable[str], joint: str = "and") -> str:
    """`a, b and c`."""
    *first, last = list(words)
    return f"{', '.join(first)} {joint} {last}" if first else last
