"""The deployment file: what runs, from where to where.

Takes a YAML file; gives a frozen `Deployment`, or raises InputError with every mistake: file, line, what was expected.
Relative paths are relative to the file. Needs only yaml and the standard library: `ensue check` reads deployment files
without Spark. What later releases will know is refused by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from querylang.parameters.given_values import NOTHING, Given
from querylang.plan.model import TimePolicy
from runtime.policies.durations import parse_duration
from spark_backend.job.ordering_settings import read_ordering
from spark_backend.job.yaml_document import Mistakes, Node, listed, near, read_document, read_given

SOURCE_FORMATS = ("parquet", "csv", "json")
SINK_FORMATS = ("parquet", "json", "csv")
SINKS = ("matches", "output", "discarded", "ledger")
LATER_FORMATS = ("kafka", "delta", "rate", "orc", "avro", "text", "console", "memory", "noop", "iceberg")
DEFAULT_BUCKETS = 16
MOST_BUCKETS = 10_000
_DEPLOYMENT_KEYS = (
    "name",
    "queries",
    "sources",
    "control",
    "sinks",
    "clock",
    "idle",
    "buckets",
    "trigger",
    "checkpoint",
    "parameters",
)
_SOURCE_KEYS = (
    "format",
    "path",
    "event",
    "type_field",
    "source_time",
    "arrival",
    "options",
    "decode",
    "ordering",
)
SOURCE_OPTIONS = ("maxFilesPerTrigger", "maxBytesPerTrigger", "pathGlobFilter", "recursiveFileLookup")
"""Options of a file source; names are Spark's."""


class Clock(StrEnum):
    """What "now" is: the records' own arrival, or the moment of the micro-batch that takes them."""

    ARRIVAL = "arrival"
    PROCESSING = "processing"


@dataclass(frozen=True, slots=True)
class Source:
    """A folder of files. `event`: all rows are of this type; `type_field`, `source_time`, `arrival` name columns.

    `ordering`: how its records are put in order, None: as the queries say; `ordering_line`: where in the file that stands.
    """

    name: str
    format: str
    path: Path
    event: str | None = None
    type_field: str | None = None
    source_time: str | None = None
    arrival: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    ordering: TimePolicy | None = None
    ordering_line: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Sink:
    """A folder that results are written to."""

    format: str
    path: Path


@dataclass(frozen=True, slots=True)
class Deployment:
    """A checked deployment file. `trigger` and `idle` are microseconds; `idle` None: only records move time.

    `parameters`: values by query and instance, not yet compared with the queries.
    """

    file: Path
    name: str
    queries: tuple[Path, ...]
    sources: tuple[Source, ...]
    control: Source | None
    sinks: Mapping[str, Sink]
    clock: Clock
    idle: int | None
    buckets: int
    trigger: int
    checkpoint: Path
    parameters: Given = NOTHING


DEFAULT_TRIGGER = 1_000_000
"""A second: with timers Spark runs a micro-batch at nearly every trigger, records or not."""


def load_deployment(path: Path | str, environment: Mapping[str, str] | None = None) -> Deployment:
    """Read and check a deployment file; raises InputError."""
    file = Path(path)
    mistakes = Mistakes(str(path), os.environ if environment is None else environment)
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        mistakes.add(1, f"cannot be read: {reason}")
        mistakes.raise_if_any()
        raise AssertionError("a mistake was added") from error
    return _Reader(file, mistakes).deployment(read_document(text, mistakes))


class _Reader:
    """One file on its way to a Deployment."""

    def __init__(self, file: Path, mistakes: Mistakes) -> None:
        self.file = file
        self.folder = file.resolve().parent
        self.mistakes = mistakes

    def deployment(self, root: Node) -> Deployment:
        found = root.mapping(_DEPLOYMENT_KEYS)
        for key in ("name", "queries", "sources", "sinks", "checkpoint"):
            if key not in found:
                root.wrong(f"'{key}' is missing")
        clock = found["clock"].one_of({str(clock): clock for clock in Clock}) if "clock" in found else None
        result = Deployment(
            file=self.file,
            name=self._name(found),
            queries=self._queries(found["queries"]) if "queries" in found else (),
            sources=self._sources(found["sources"]) if "sources" in found else (),
            control=self._control(found["control"]) if "control" in found else None,
            sinks=self._sinks(found["sinks"]) if "sinks" in found else {},
            clock=clock or Clock.ARRIVAL,
            idle=self._idle(found, clock or Clock.ARRIVAL),
            buckets=self._buckets(found),
            trigger=self._duration(found, "trigger", DEFAULT_TRIGGER) or 0,
            checkpoint=self._path(found["checkpoint"]) if "checkpoint" in found else Path(),
            parameters=read_given(found["parameters"]) if "parameters" in found else NOTHING,
        )
        self.mistakes.raise_if_any()
        return result

    def _name(self, found: Mapping[str, Node]) -> str:
        if "name" not in found:
            return ""
        pattern = re.compile(r"[\w.-]+")
        name = found["name"].parsed(lambda text: text if pattern.fullmatch(text) else None, "letters, digits, _ . or -")
        return name or ""

    def _path(self, node: Node) -> Path:
        text = node.text()
        if re.match(r"[A-Za-z][\w+.-]*://", text) and not text.startswith("file://"):
            node.wrong(f"'{node.name}' must be a local or mounted folder, not '{node.written()}'")
        return self.folder / text.removeprefix("file://")

    def _queries(self, node: Node) -> tuple[Path, ...]:
        paths: list[Path] = []
        for item in node.items():
            pattern = item.text()
            if not pattern:
                continue
            place = Path(pattern)
            base, relative = (
                (Path(place.anchor), place.relative_to(place.anchor)) if place.is_absolute() else (self.folder, place)
            )
            matching = sorted(base.glob(str(relative))) if any(c in pattern for c in "*?[") else [base / relative]
            existing = [path for path in matching if path.exists()]
            if not existing:
                item.wrong(f"no query file is there: '{item.written()}'{self._near_file(base / relative)}")
            paths.extend(path for path in existing if path not in paths)
        return tuple(paths)

    def _near_file(self, path: Path) -> str:
        folder = path.parent
        return near(path.name, [entry.name for entry in folder.iterdir()]) if folder.is_dir() else ""

    def _sources(self, node: Node) -> tuple[Source, ...]:
        entries = node.mapping()
        if not entries and not self.mistakes.found:
            node.wrong("'sources' names no source")
        if "control" in entries:
            entries["control"].wrong("a source cannot be called 'control'; the control stream stands beside 'sources'")
        return tuple(self._source(name, entry) for name, entry in sorted(entries.items()))

    def _source(self, name: str, node: Node) -> Source:
        found = node.mapping(_SOURCE_KEYS)
        self._refuse_later(found)
        if "event" in found and "type_field" in found:
            found["type_field"].wrong(f"'{name}' has both 'event' and 'type_field'; one of them says the type")
        source = self._files(name, node, found)
        if "ordering" not in found:
            return source
        return replace(source, ordering=read_ordering(found["ordering"]), ordering_line=found["ordering"].line)

    def _refuse_later(self, found: Mapping[str, Node]) -> None:
        if "decode" in found:
            found["decode"].one_of({"columns": "columns"}, unsupported=("json", "avro"))

    def _files(self, name: str, node: Node, found: Mapping[str, Node]) -> Source:
        for key in ("format", "path"):
            if key not in found and (key == "format" or "format" in found):
                node.wrong(f"'{name}' has no '{key}'")
        formats = {word: word for word in SOURCE_FORMATS}
        format_ = found["format"].one_of(formats, unsupported=LATER_FORMATS) if "format" in found else None
        path = self._path(found["path"]) if "path" in found else Path()
        if "path" in found and name != "control" and format_ is not None and not path.is_dir():
            found["path"].wrong(self._no_folder(name, path, found["path"].written()))
        options = found["options"].mapping(SOURCE_OPTIONS) if "options" in found else {}
        words = {key: found[key].text() for key in ("event", "type_field", "source_time", "arrival") if key in found}
        return Source(
            name,
            format_ or "",
            path,
            event=words.get("event"),
            type_field=words.get("type_field"),
            source_time=words.get("source_time"),
            arrival=words.get("arrival"),
            options=self._options(options),
        )

    def _no_folder(self, name: str, path: Path, written: str) -> str:
        if path.exists():
            return f"'{name}' reads a folder of files; '{written}' is a file"
        return f"the folder of '{name}' is not there: '{written}'{self._near_file(path)}"

    def _options(self, options: Mapping[str, Node]) -> dict[str, str]:
        for key in ("maxFilesPerTrigger", "maxBytesPerTrigger"):
            if key in options:
                options[key].number(least=1, most=2**62)
        return {key: option.text() for key, option in options.items()}

    def _control(self, node: Node) -> Source:
        found = node.mapping(("format", "path", "options"))
        return self._files("control", node, found)

    def _sinks(self, node: Node) -> dict[str, Sink]:
        entries = node.mapping(SINKS)
        if not entries and not self.mistakes.found:
            node.wrong(f"'sinks' names no sink; expected some of {listed(SINKS)}")
        sinks = {name: self._sink(name, entry) for name, entry in entries.items()}
        taken: dict[Path, str] = {}
        for name, sink in sinks.items():
            if sink.path in taken and sink.path != Path():
                entries[name].wrong(f"'{name}' and '{taken[sink.path]}' are written to the same folder")
            taken[sink.path] = name
        return sinks

    def _sink(self, name: str, node: Node) -> Sink:
        found = node.mapping(("format", "path"))
        for key in ("format", "path"):
            if key not in found and found:
                node.wrong(f"'{name}' has no '{key}'")
        formats = {word: word for word in SINK_FORMATS}
        format_ = found["format"].one_of(formats, unsupported=LATER_FORMATS) if "format" in found else None
        return Sink(format_ or "", self._path(found["path"]) if "path" in found else Path())

    def _buckets(self, found: Mapping[str, Node]) -> int:
        if "buckets" not in found:
            return DEFAULT_BUCKETS
        return found["buckets"].number(least=1, most=MOST_BUCKETS) or DEFAULT_BUCKETS

    def _idle(self, found: Mapping[str, Node], clock: Clock) -> int | None:
        """How long sources may be silent before time goes on without them: at once, unless the file says otherwise."""
        if clock is Clock.PROCESSING:
            if "idle" in found:
                found["idle"].wrong("'idle' has no meaning with the clock 'processing', which never stands still")
            return None
        if "idle" in found and found["idle"].written() == "none":
            return None
        return self._duration(found, "idle", 0)

    def _duration(self, found: Mapping[str, Node], key: str, default: int) -> int | None:
        if key not in found:
            return default
        return found[key].parsed(parse_duration, "a length of time such as `1 second` or `500ms`")
