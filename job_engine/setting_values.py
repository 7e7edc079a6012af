"""Values that many settings have: paths, lengths of time, sizes, words for yes and no."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import yaml

from job_engine.delta_package import unknown_settings
from job_engine.local_path import LocalPath
from job_engine.place import SHOWN, Mark, Place, StoreOptions, UnknownScheme, is_within, marks_of, place_of, scheme_of
from job_engine.wire.clock_sources import Idle
from job_engine.yaml_document import Node
from querylang.dataclass import dataclass, fields
from querylang.errors import InputError
from querylang.plan.model import TimePolicy
from querylang.system_limits import can_be
from runtime.policies.plan_policies import OrderingError, parse_ordering
from runtime.policies.settings_text import parse_duration, parse_size

# How a store is reached: entries of `options` of a source or sink whose path is a URI.
#
# What is not there comes from the environment, such as AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL.

_S3_TEXTS = (
    "access_key",
    "secret_key",
    "session_token",
    "region",
    "endpoint_override",
    "role_arn",
    "session_name",
    "external_id",
    "proxy_options",
    "tls_ca_file_path",
)
_WORDS: Mapping[str, tuple[str, ...]] = {
    "anonymous": ("true", "false"),
    "force_virtual_addressing": ("true", "false"),
    "scheme": ("https", "http"),
}
"""Settings with few values."""

_SECONDS = ("connect_timeout", "request_timeout")

STORE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "s3": (*_S3_TEXTS, *_WORDS, *_SECONDS),
    "gs": ("anonymous", "project_id", "endpoint_override", "scheme"),
    "abfss": ("account_key", "sas_token", "tenant_id", "client_id", "client_secret"),
    "hdfs": ("user", "kerb_ticket"),
}
"""By scheme, the names of settings, which are those of pyarrow's file systems."""


def option_names(found: Mapping[str, Node]) -> tuple[str, ...]:
    """The names that `options` beside a path may have."""
    return STORE_OPTIONS.get(scheme_of(found["path"].plain()) or "", ()) if "path" in found else ()


def store_options(found: Mapping[str, Node], others: tuple[str, ...] = ()) -> dict[str, str]:
    """The options of the path's store; mistakes are reported.

    others: names with another meaning
    """
    if "options" not in found:
        return {}
    known = option_names(found)
    entries = found["options"].mapping((*others, *known))
    chosen = {key: node for key, node in entries.items() if key in known}
    for key, node in chosen.items():
        if key in _WORDS:
            node.one_of({word: word for word in _WORDS[key]})
        elif key in _SECONDS:
            node.parsed(_seconds, "a number of seconds")
    return {key: node.text() for key, node in chosen.items()}


def refuse_unknown_settings(found: Mapping[str, Node], path: Place) -> None:
    """Report settings of a store that the package which writes logs of tables does not have."""
    for name in unknown_settings(path):
        found["options"].mapping()[name].wrong(f"'{name}' cannot be set for Delta tables")


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 < seconds < 86_400 else None


# Read the setting `ordering` of a source; what can be set is in `runtime.policies.presets`.


def read_ordering(node: Node) -> TimePolicy | None:
    """A policy written as text or as a mapping; None = mistakes were reported."""
    is_mapping = isinstance(node.raw, yaml.MappingNode)
    entries = node.mapping() if is_mapping else {}
    before = len(node.mistakes.found)
    given: Any = {name: _value(entry) for name, entry in entries.items()} if is_mapping else node.text()
    if len(node.mistakes.found) > before or given == "":
        return None
    try:
        return parse_ordering(given)
    except OrderingError as error:
        for setting, message in error.found:
            _report(entries.get(setting or "", node), message)
    return None


def ordering_text(policy: TimePolicy | None) -> str:
    """The settings of a policy that are not its defaults; equal for equal policies."""
    if policy is None:
        return ""
    own = [(item.name, getattr(policy, item.name)) for item in fields(policy) if item.name != "name"]
    defaults = {item.name: item.default for item in fields(policy)}
    settings = [f"{name}={_setting_text(value)}" for name, value in own if value != defaults[name]]
    return " ".join([policy.name, *settings])


def _setting_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(getattr(value, "value", value))


def _value(node: Node) -> Any:
    """As written, whatever its YAML type: the policy reads its own words."""
    if isinstance(node.raw, yaml.SequenceNode):
        return [item.text() for item in node.items()]
    return None if node.is_empty() else node.text()


def _report(node: Node, message: str) -> None:
    """Report a mistake; a value from the environment is not shown."""
    written = [item.written() for item in node.items()]
    is_secret = any("${" in text for text in written)
    node.wrong(
        f"{message.partition(', not ')[0]}, not what '{', '.join(written)}' stands for" if is_secret else message
    )


# Folders of a deployment that must not lie in each other, compared by what is on the disk.
#
# A sink inside a source would be read as input; results inside a sink would be read as its own; a
# checkpoint has no other files.


class FolderKind(StrEnum):
    """What a folder is for, as messages call it."""

    SOURCE = "source"
    CONTROL = "control stream"
    SINK = "sink"
    CHANNEL = "channel"
    ARCHIVE = "archive of the source"
    CHECKPOINT = "checkpoint"


_READ = (FolderKind.SOURCE, FolderKind.CONTROL)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that a deployment names.

    name: of the source or sink
    line: in the deployment file
    is_recursive: whether the files of its subfolders are read, too
    """

    kind: FolderKind
    name: str
    path: Place
    line: int
    is_recursive: bool = False

    def __str__(self) -> str:
        has_name = self.kind not in (FolderKind.CONTROL, FolderKind.CHECKPOINT)
        return f"the {self.kind} '{self.name}'" if has_name else f"the {self.kind}"


def overlaps(folders: Sequence[Folder]) -> Iterator[tuple[int, str]]:
    """The lines and messages of folders that are one, or that lie in each other."""
    ordered = sorted(folders, key=lambda folder: folder.line)
    for first, second in sorted(_close_pairs([folder.path for folder in ordered])):
        one, other = ordered[first], ordered[second]
        inner, outer = (one, other) if is_within(one.path, other.path) else (other, one)
        if is_within(outer.path, inner.path):
            yield max(one.line, other.line), f"{one} and {other} have the same folder"
        elif not (inner.kind in _READ and outer.kind in _READ and not outer.is_recursive):
            yield inner.line, f"the folder of {inner} lies in that of {outer}; choose folders beside each other"


def _close_pairs(places: Sequence[Place]) -> set[tuple[int, int]]:
    """The pairs of places, by number, of which one is the other, or lies in it.

    There may be thousands of places, so each is looked at once.
    """
    marks = [marks_of(place) for place in places]
    numbers: dict[Mark, list[int]] = defaultdict(list)
    for number, (own, *_) in enumerate(marks):
        for mark in own:
            numbers[mark].append(number)
    return {
        (min(number, other), max(number, other))
        for number, around in enumerate(marks)
        for own in around
        for mark in own
        for other in numbers.get(mark, ())
        if other != number
    }


class Stream(Protocol):
    """Messages that a source reads or a sink writes, which are not in a folder."""

    def shared(self, written: Stream, *, asks: bool) -> Sequence[str]:
        """What a sink writes of these, each in words such as `the topic 'a'`.

        asks: whether servers may be asked if different addresses lead to the same ones
        """


UNSUPPORTED = ("rate", "orc", "avro", "text", "console", "memory", "noop", "iceberg")
"""Formats of Spark that are refused by name."""


class Folders:
    """The folders that a deployment file names; relative ones are below `base`."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.named: list[Folder] = []

    def path(self, node: Node) -> Path:
        """The local path that a setting says."""
        found = self.place(node)
        if isinstance(found, Path):
            return found
        node.wrong(f"'{node.name}' must be a local or mounted folder, not '{node.written()}'")
        return LocalPath()

    def place(self, node: Node, options: StoreOptions | None = None) -> Place:
        """The place that a setting says; `options`: how its store is reached."""
        text = node.text()
        if not can_be(text):
            node.wrong(f"'{node.name}' cannot be a path: a name in it is too long, or has a NUL")
            return LocalPath()
        try:
            return place_of(text, self.base, options)
        except UnknownScheme:
            node.wrong(f"'{node.name}' must be a local or mounted folder, or {SHOWN}; not '{node.written()}'")
            return LocalPath()

    def add(self, kind: FolderKind, name: str, path: Place, node: Node, *, is_recursive: bool = False) -> None:
        """Remember a folder: none may lie in another one."""
        self.named.append(Folder(kind, name, path, node.line, is_recursive))


def duration(found: Mapping[str, Node], key: str, default: int | None) -> int | None:
    """A length of time, µs."""
    if key not in found:
        return default
    return found[key].parsed(parse_duration, "a length of time such as `1 second` or `500ms`")


def limit_ahead(found: Mapping[str, Node], usual: int | None = None) -> int | None:
    """What `ahead` says, µs; None = there is no limit."""
    if "ahead" not in found:
        return usual
    if found["ahead"].text() == "none":
        return None
    return found["ahead"].parsed(parse_duration, "a length of time such as `1 hour`, or `none`")


def seconds(found: Mapping[str, Node], key: str) -> float | None:
    """A length of time in seconds; None = it is not there."""
    length = duration(found, key, None)
    return None if length is None else length / 1_000_000


def size(found: Mapping[str, Node], key: str) -> int | None:
    """A number of bytes."""
    return found[key].parsed(parse_size, "a size from `1 kB` to `1 GB`, such as `16 MB`") if key in found else None


def is_true(found: Mapping[str, Node], key: str) -> bool:
    """Whether a setting is there and says `true`."""
    return key in found and found[key].one_of({"true": True, "false": False}) is True


def idle(found: Mapping[str, Node]) -> Idle | None:
    """What `idle` says; None = it is not there."""
    if "idle" not in found:
        return None
    return Idle(None if found["idle"].written() == "none" else duration(found, "idle", 0))


def value_of(node: Node, reader: Callable[[str], str]) -> str | None:
    """A value that a reader takes; what it raises is a mistake in this line."""
    try:
        return reader(node.text())
    except InputError as error:
        node.wrong(str(error))
        return None


_PART = r"(?:\w+|`(?:[^`]|``)+`)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*")


def read_table_name(found: Mapping[str, Node]) -> str:
    """The name that `table` says, "" = there is none; mistakes are reported."""
    if "table" not in found:
        return ""
    if "path" in found:
        found["table"].wrong("'table' and 'path' both say where the table is; expected one of them")
    expected = "the name of a table, such as `lake.cards`, with backquotes around parts with other signs"
    return found["table"].parsed(lambda text: text if _NAME.fullmatch(text) else None, expected) or ""
