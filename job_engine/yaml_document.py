"""Read YAML settings so that every mistake is reported with its line and what was expected.

Mistakes are collected, so that a user sees all of them at once. `${NAME}` in a value is replaced
from the environment; messages show the name, never the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import yaml
from yaml.resolver import Resolver

from job_engine.local_path import LocalPath
from querylang.dataclass import dataclass, field
from querylang.errors import FileErrors, InputError, did_you_mean, listed
from querylang.parameters import Given, Path
from querylang.printable import keep_secret
from querylang.system_errors import reason_of
from runtime.yaml_reader import YamlError, read_nodes, value_of

Word = TypeVar("Word")
Value = TypeVar("Value")

_VARIABLE = re.compile(r"\$\{([^}]*)\}")

_SECRET = re.compile(r"password|secret|token|user\.info|account_key|access_key|access\.key", re.IGNORECASE)
"""What the names of settings have whose values are secret, also where the file itself has them."""

_FILE = "file:"
"""What `${...}` begins with where it is a file, not a variable of the environment."""


@dataclass(slots=True)
class Mistakes:
    """The mistakes in one file.

    path: the file's name in messages
    environment: values of variables
    found: lines (from 1) and messages, in order of discovery
    used: the variables and files that values were read from, and their values
    """

    path: str
    environment: Mapping[str, str]
    found: list[tuple[int, str]] = field(default_factory=list)
    used: dict[str, str] = field(default_factory=dict, repr=False)

    def add(self, line: int, message: str) -> None:
        """Add a mistake; `line` counts from 1."""
        self.found.append((line, message))

    def keep(self, name: str, value: str) -> str:
        """The value, which no message shows; `name`: its variable, file or setting."""
        self.used[name] = value
        keep_secret(name, value)
        return value

    def raise_if_any(self) -> None:
        """Raise FileErrors with all mistakes, each once, in order of lines."""
        if self.found:
            raise FileErrors(self.path, sorted(set(self.found)))


_PLACEHOLDERS = 0xF0000
"""The first of the letters for private use that stand for values of variables."""


@dataclass(frozen=True, slots=True)
class Template:
    """A text with a letter in place of each variable, so that no value is taken for syntax.

    text: with these letters
    values: theirs, in order
    """

    text: str
    values: tuple[str, ...] = field(default=(), repr=False)

    def fill(self, part: str) -> str:
        """A part of the text with the values in it."""
        for number, value in enumerate(self.values):
            part = part.replace(chr(_PLACEHOLDERS + number), value)
        return part


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the document.

    raw: as the YAML parser gave it
    name: its name in messages
    mistakes: where its mistakes are collected
    """

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
        """Report that this is not `what`."""
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
        """Whether the value is empty."""
        return isinstance(self.raw, yaml.ScalarNode) and self.raw.tag.endswith(":null")

    def mapping(self, known: Iterable[str] | None = None) -> dict[str, Node]:
        """The entries of a mapping; `known`: its allowed keys, None = any."""
        if not isinstance(self.raw, yaml.MappingNode):
            self.expected("a mapping of names to values")
            return {}
        names = None if known is None else list(known)
        entries: dict[str, Node] = {}
        for key, value in self.raw.value:
            word = str(key.value)
            node = Node(value, word, self.mistakes)
            if word in entries:
                self.mistakes.add(key.start_mark.line + 1, f"duplicate key '{word}' in '{self.name}'")
            elif names is not None and word not in names:
                hint = did_you_mean(word, names) or f"; expected {listed(names)}"
                self.mistakes.add(key.start_mark.line + 1, f"unknown key '{word}' in '{self.name}'{hint}")
            else:
                entries[word] = node
        return entries

    def items(self) -> list[Node]:
        """The entries of a list; a single value counts as a list of one."""
        if isinstance(self.raw, yaml.SequenceNode):
            return [Node(item, self.name, self.mistakes) for item in self.raw.value]
        return [self]

    def text(self) -> str:
        """A text or number as text, with variables replaced; "" = a mistake was reported."""
        if not isinstance(self.raw, yaml.ScalarNode) or self.is_empty():
            self.expected("a text")
            return ""
        text = _VARIABLE.sub(self._variable, str(self.raw.value))
        return self.mistakes.keep(self.name, text) if _SECRET.search(self.name) else text

    def template(self) -> Template:
        """The text to be divided before its variables are replaced; one alone is replaced here."""
        if not isinstance(self.raw, yaml.ScalarNode) or _VARIABLE.fullmatch(self.raw.value):
            return Template(self.text())
        values: list[str] = []

        def placeholder(found: re.Match[str]) -> str:
            values.append(self._variable(found))
            return chr(_PLACEHOLDERS + len(values) - 1)

        return Template(_VARIABLE.sub(placeholder, str(self.raw.value)), tuple(values))

    def scalar(self) -> bool | int | float | str | None:
        """The value with its YAML type, variables replaced; None = empty, or a mistake."""
        raw = self.raw
        if isinstance(raw, yaml.ScalarNode) and _VARIABLE.search(raw.value):
            raw = self._replaced()
        found: list[int] = []
        value = value_of(raw, lambda line, _: found.append(line)) if isinstance(raw, yaml.ScalarNode) else None
        if isinstance(raw, yaml.ScalarNode) and not found:
            return value
        self.expected("a number, a text, true or false")
        return None

    def _replaced(self) -> yaml.ScalarNode:
        """The text after its variables are replaced: a value, whatever it would be as YAML."""
        text = self.text()
        resolver: Any = Resolver()
        tag = resolver.resolve(yaml.ScalarNode, text, (True, False))
        return yaml.ScalarNode(tag, text, self.raw.start_mark, self.raw.end_mark)

    def _variable(self, found: re.Match[str]) -> str:
        name = found[1]
        if name.startswith(_FILE):
            return self._secret(name)
        if name not in self.mistakes.environment:
            self.wrong(f"'{self.name}' needs the environment variable {name}, which is not set")
            return ""
        return self.mistakes.keep(name, self.mistakes.environment[name])

    def _secret(self, name: str) -> str:
        """The content of a file, without the end of its line: a secret that a system puts there."""
        written = name.removeprefix(_FILE)
        path = LocalPath(self.mistakes.path).parent / written
        try:
            text = path.read_text("utf-8")
        except (OSError, ValueError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else "is not text"
            self.wrong(f"'{self.name}' needs the file '{written}', which cannot be read: {reason}")
            return ""
        return self.mistakes.keep(name, text.rstrip("\r\n"))

    def one_of(self, words: Mapping[str, Word], unsupported: Iterable[str] = ()) -> Word | None:
        """The value that a word stands for; None = a mistake was reported.

        unsupported: words that are refused as known, but not supported
        """
        word = self.text()
        if word in words:
            return words[word]
        if word in set(unsupported):
            self.wrong(f"'{self.name}: {word}' is not supported yet; supported: {listed(words)}")
        elif word:
            self.wrong(
                f"'{self.name}' must be {listed(words, 'or')}, not '{self.written()}'{did_you_mean(word, words)}"
            )
        return None

    def written(self) -> str:
        """The value as written in the file, variables not replaced."""
        return str(self.raw.value) if isinstance(self.raw, yaml.ScalarNode) else ""

    def plain(self, *, is_written: bool = False) -> Any:
        """The value as dicts, lists and texts; `is_written`: variables are not replaced."""
        match self.raw:
            case yaml.ScalarNode():
                return self.written() if is_written or self.is_empty() else self.text()
            case yaml.MappingNode():
                entries = [(str(key.value), Node(value, self.name, self.mistakes)) for key, value in self.raw.value]
                return {key: node.plain(is_written=is_written) for key, node in entries}
            case _:
                return [item.plain(is_written=is_written) for item in self.items()]

    def is_from_environment(self) -> bool:
        """Whether any part of the value is read from the environment."""
        match self.raw:
            case yaml.ScalarNode():
                return _VARIABLE.search(str(self.raw.value)) is not None
            case yaml.MappingNode():
                return any(Node(value, self.name, self.mistakes).is_from_environment() for _, value in self.raw.value)
            case _:
                return any(Node(item, self.name, self.mistakes).is_from_environment() for item in self.raw.value)

    def number(self, *, least: int, most: int) -> int | None:
        """A whole number from `least` to `most`; None = a mistake was reported."""
        word = self.text()
        if re.fullmatch(r"[+-]?\d{1,30}", word) and least <= int(word) <= most:
            return int(word)
        if word:
            self.expected(f"a whole number from {least} to {most}")
        return None

    def parsed(self, parse: Callable[[str], Value | None], what: str) -> Value | None:
        """The text parsed; `parse` gives None for a mistake, which is reported as not `what`."""
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
    """The root of a YAML text; raises FileErrors if it is not YAML, or empty.

    name: its name in messages
    beginning: what to write, for an empty text
    """
    try:
        raw = read_nodes(text)
    except YamlError as error:
        raise FileErrors(mistakes.path, [(error.line, error.message)]) from error
    if raw is None:
        raise FileErrors(mistakes.path, [(1, f"is empty; {beginning}")])
    return Node(raw, name, mistakes)


def value_of_written(written: str, path: str, environment: Mapping[str, str]) -> bool | int | float | str | None:
    """The value of a text with variables; raises InputError if one is not set.

    path: of the file that has the text
    """
    mistakes = Mistakes(path, environment)
    start = yaml.Mark(path, 0, 0, 0, None, 0)
    found = Node(yaml.ScalarNode("tag:yaml.org,2002:str", written, start, start), written, mistakes).scalar()
    if mistakes.found:
        raise InputError(mistakes.found[0][1])
    return found


def read_given(node: Node) -> Given:
    """Values of parameters, nested to any depth, with the line of each name."""
    lines: dict[Path, int] = {(): node.line}
    hidden: dict[Path, str] = {}
    values = _plain(node, (), lines, hidden)
    return Given(values if isinstance(values, dict) else {}, node.mistakes.path, lines, hidden)


def _plain(node: Node, keys: Path, lines: dict[Path, int], hidden: dict[Path, str]) -> Any:
    match node.raw:
        case yaml.MappingNode():
            lines |= {(*keys, str(key.value)): key.start_mark.line + 1 for key, _ in node.raw.value}
            return {name: _plain(inner, (*keys, name), lines, hidden) for name, inner in node.mapping().items()}
        case yaml.ScalarNode() if keys:
            if node.is_from_environment():
                hidden[keys] = node.written()
            return node.scalar()
        case yaml.SequenceNode() if keys:
            items = node.items()
            if any(item.is_from_environment() for item in items):
                node.expected("a list of values as they are: a variable stands for one value, not for one in a list")
            return [item.scalar() for item in items]
    node.expected("a mapping of names to values")
    return None
