"""Read YAML of users, within limits: to nodes with places, and to values.

A text of a few lines can stand for a structure that fills the memory, or that contains itself. So
nodes are made from the parser's events, without recursion, and everything is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querylang.dataclass import dataclass
from querylang.errors import FileErrors, near_file
from querylang.system_errors import reason_of

if TYPE_CHECKING:
    import yaml

LARGEST = 16_000_000
"""Bytes of a text, and characters of its values with all aliases."""
MOST_VALUES = 1_000_000
"""Values in a text, with all aliases."""
DEEPEST = 100
"""How deep lists and mappings may be nested."""
LONGEST_NUMBER = 400
"""Characters of a number or time."""
MOST_DIRECTIVES = 100
"""`%TAG` lines: the parser compares each with all before it."""


class YamlError(ValueError):
    """A text cannot be read; `line`: from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(line, message)
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class _Size:
    """What a value contains, with all aliases.

    height: how deep it is nested; 0 = neither a list nor a mapping
    """

    values: int
    characters: int
    height: int


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end is not reached yet.

    values, characters: what was counted before it
    height: of what it contains so far
    key: of a mapping: the key whose value comes next
    """

    node: yaml.CollectionNode
    anchor: str | None
    values: int
    characters: int
    height: int = 1
    key: yaml.ScalarNode | None = None


def file_text(path: Path, *, may_be_pipe: bool = False) -> str:
    """The text of a YAML file; raises FileErrors.

    may_be_pipe: whoever calls reads it once
    """
    try:
        if not path.exists():
            raise FileErrors(str(path), [(None, f"no such file{near_file(path)}")])
        if may_be_pipe and path.is_fifo():
            return _text_of_pipe(path)
        if not path.is_file():
            what = "is a folder, where a YAML file is expected" if path.is_dir() else "is not a regular file"
            raise FileErrors(str(path), [(None, what)])
        if path.stat().st_size > LARGEST:
            raise FileErrors(str(path), [(None, _TOO_LARGE)])
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise FileErrors(str(path), [(line, "is not UTF-8")]) from error
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        raise FileErrors(str(path), [(None, f"cannot be read: {reason_of(error)}")]) from error


def _text_of_pipe(path: Path) -> str:
    with path.open("rb") as pipe:
        content = pipe.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise FileErrors(str(path), [(None, _TOO_LARGE)])
    return content.decode("utf-8-sig")


_TOO_LARGE = f"is larger than {LARGEST // 1_000_000} MB; a table of this size is CSV, JSON lines or Parquet"


def read_nodes(text: str) -> yaml.Node | None:
    """The root of a text, which has no cycles; None = the text is empty. Raises YamlError."""
    import yaml

    size = _bytes_of(text)
    if size > LARGEST:
        raise YamlError(1, _TOO_LARGE)
    if text.count("\n%") > MOST_DIRECTIVES:
        raise YamlError(1, f"has more than {MOST_DIRECTIVES} lines that begin with %")
    try:
        return _compose(yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        line = 1 if mark is None else min(mark.line, text.count("\n")) + 1  # the end may be behind the last line
        raise YamlError(line, f"is not YAML: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        line = text.encode().count(b"\n", 0, error.position) + 1
        raise YamlError(line, f"is not YAML: {error.reason}") from error


def _bytes_of(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise YamlError(text.count("\n", 0, error.start) + 1, "has half of a surrogate pair") from error


def _compose(events: Iterator[yaml.Event]) -> yaml.Node | None:
    """The nodes of one document."""
    import yaml

    composer = _Composer()
    steps: dict[type[yaml.Event], Callable[[Any], None]] = {
        yaml.ScalarEvent: composer.scalar,
        yaml.AliasEvent: composer.alias,
        yaml.SequenceStartEvent: composer.begin,
        yaml.MappingStartEvent: composer.begin,
        yaml.SequenceEndEvent: composer.end,
        yaml.MappingEndEvent: composer.end,
        yaml.DocumentStartEvent: composer.begin_document,
    }
    for event in events:
        step = steps.get(type(event))
        if step is not None:
            step(event)
    return composer.root


def _line(place: yaml.Event | yaml.Node) -> int:
    """The line where it begins, from 1."""
    assert place.start_mark is not None, "the parser marks all that it finds"
    return int(place.start_mark.line) + 1


class _Composer:
    """Makes nodes from events, and counts."""

    def __init__(self) -> None:
        from yaml.resolver import Resolver

        self.root: yaml.Node | None = None
        self._resolver: Any = Resolver()
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[yaml.Node, _Size] | None] = {}
        self._values = 0
        self._characters = 0

    def begin_document(self, event: yaml.DocumentStartEvent) -> None:
        """Begin the only document."""
        if self.root is not None:
            raise YamlError(_line(event), "has a second document")

    def scalar(self, event: yaml.ScalarEvent) -> None:
        """Add a text, number or the like."""
        import yaml

        tag = event.tag
        if tag is None or tag == "!":
            tag = self._resolver.resolve(yaml.ScalarNode, event.value, event.implicit)
        start: Any = event.start_mark
        end: Any = event.end_mark
        node = yaml.ScalarNode(tag, event.value, start, end, event.style)
        self._count(1, len(event.value), event)
        if event.anchor is not None:
            self._declare(event.anchor, event)
            self._anchors[event.anchor] = node, _Size(1, len(event.value), 0)
        self._add(node, 0)

    def alias(self, event: yaml.AliasEvent) -> None:
        """Add a value once more."""
        assert event.anchor is not None, "an alias has a name"
        line = _line(event)
        if event.anchor not in self._anchors:
            raise YamlError(line, f"unknown alias *{event.anchor}")
        known = self._anchors[event.anchor]
        if known is None:
            raise YamlError(line, f"*{event.anchor} contains itself")
        node, size = known
        self._check_depth(size.height, event)
        self._count(size.values, size.characters, event)
        self._add(node, size.height)

    def begin(self, event: yaml.CollectionStartEvent) -> None:
        """Begin a list or mapping."""
        import yaml

        self._check_depth(1, event)
        kind: Any = yaml.SequenceNode if isinstance(event, yaml.SequenceStartEvent) else yaml.MappingNode
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._resolver.resolve(kind, None, event.implicit)
        node = kind(tag, [], event.start_mark, None, flow_style=event.flow_style)
        if event.anchor is not None:
            self._declare(event.anchor, event)
        self._open.append(_Open(node, event.anchor, self._values, self._characters))
        self._count(1, 0, event)

    def end(self, event: yaml.CollectionEndEvent) -> None:
        """End it."""
        done = self._open.pop()
        done.node.end_mark = event.end_mark
        if done.anchor is not None:
            size = _Size(self._values - done.values, self._characters - done.characters, done.height)
            self._anchors[done.anchor] = done.node, size
        self._add(done.node, done.height)

    def _declare(self, anchor: str, event: yaml.NodeEvent) -> None:
        """From here to its end, an alias of the value's anchor would be a cycle."""
        if anchor in self._anchors:
            raise YamlError(_line(event), f"duplicate anchor &{anchor}")
        self._anchors[anchor] = None

    def _check_depth(self, height: int, event: yaml.NodeEvent) -> None:
        if len(self._open) + height > DEEPEST:
            raise YamlError(_line(event), f"is nested more than {DEEPEST} levels deep")

    def _count(self, values: int, characters: int, event: yaml.NodeEvent) -> None:
        self._values += values
        self._characters += characters
        if self._values > MOST_VALUES:
            raise YamlError(_line(event), f"has more than {MOST_VALUES:,} values, with all aliases")
        if self._characters > LARGEST:
            raise YamlError(_line(event), f"has more than {LARGEST:,} characters, with all aliases")

    def _add(self, node: yaml.Node, height: int) -> None:
        """Put a value where it belongs: into the list, as a key, or behind its key."""
        import yaml

        if not self._open:
            self.root = node
            return
        outer = self._open[-1]
        outer.height = max(outer.height, height + 1)
        if isinstance(outer.node, yaml.SequenceNode):
            outer.node.value.append(node)
        elif outer.key is not None:
            outer.node.value.append((outer.key, node))
            outer.key = None
        elif isinstance(node, yaml.ScalarNode):
            outer.key = node
        else:
            raise YamlError(_line(node), "a key must be a text")


Wrong = Callable[[int, str], None]
"""What to do with a mistake: its line, from 1, and message."""


def value_of(node: yaml.Node, wrong: Wrong) -> Any:
    """A value with its YAML types, at any depth; a mistake is given to `wrong` and becomes None."""
    import yaml

    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    match node:
        case yaml.ScalarNode() if kind in _SCALARS:
            return _scalar(node, kind, wrong)
        case yaml.SequenceNode() if kind == "seq":
            return [value_of(item, wrong) for item in node.value]
        case yaml.MappingNode() if kind == "map":
            return _mapping(node, wrong)
    wrong(_line(node), f"the tag {_written_tag(node.tag)} is not supported here")
    return None


_SCALARS = ("null", "bool", "int", "float", "timestamp", "str", "value")


def _scalar(node: yaml.ScalarNode, kind: str, wrong: Wrong) -> Any:
    from yaml.constructor import SafeConstructor

    if kind in ("str", "value"):  # a value is a single `=`
        return node.value
    shown = repr(node.value[:40])
    if len(node.value) > LONGEST_NUMBER:
        wrong(_line(node), f"{shown} is too long for a number or time")
        return None
    try:
        return SafeConstructor.yaml_constructors[node.tag](SafeConstructor(), node)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # as its conversions do
        wrong(_line(node), f"{shown} is not {_WANTED[kind]}")
        return None


_WANTED = {
    "null": "empty",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "timestamp": "a date or time that exists",
}


def _mapping(node: yaml.MappingNode, wrong: Wrong) -> dict[str, Any]:
    """Keys are texts as written; `<<` adds the entries of other mappings, its own are preferred."""
    own: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key, value in node.value:
        if key.tag == "tag:yaml.org,2002:merge":
            _merge(value, merged, wrong)
        elif key.value in own:
            wrong(_line(key), f"duplicate key '{key.value}'")
        else:
            own[key.value] = value_of(value, wrong)
    return merged | own


def _merge(node: yaml.Node, entries: dict[str, Any], wrong: Wrong) -> None:
    """Add the entries of a mapping, or of several, of which the first is preferred."""
    import yaml

    for item in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        if not isinstance(item, yaml.MappingNode):
            wrong(_line(item), "`<<` takes a mapping, or a list of mappings")
            continue
        for key, value in _mapping(item, wrong).items():
            entries.setdefault(key, value)


def _written_tag(tag: str) -> str:
    """A tag as it is written: `!!set`."""
    return tag.replace("tag:yaml.org,2002:", "!!")
