"""Read a deployment file: which queries run, on which sources, to which sinks.

Every mistake is reported, with its line and what was expected. Relative paths are relative to the
file. Imports only yaml and the standard library, so that `ensue check` needs no Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from zipfile import is_zipfile

from querylang.errors import did_you_mean, listed
from querylang.parameters.given_values import NOTHING, Given
from querylang.paths import can_be, exists, is_folder
from querylang.plan.model import TimePolicy
from runtime.policies.durations import parse_duration
from runtime.policies.forget_keys import EXPECTED, forget_length
from runtime.policies.sizes import parse_size
from runtime.yaml_reader import file_text
from spark_backend.job.checks.folder_overlaps import Folder, FolderKind, overlaps
from spark_backend.job.file_sources.file_settings import FileSettings, read_file_settings
from spark_backend.job.fixed_settings import FixedValue, FixedValues, fixed_value, fixed_values
from spark_backend.job.ordering_settings import ordering_text, read_ordering
from spark_backend.job.setting_keys import CONTROL_KEYS, JOB_KEYS, SINK_KEYS, SOURCE_KEYS
from spark_backend.job.yaml_document import Mistakes, Node, read_document, read_given
from spark_backend.sinks.formats import FORMATS as SINK_FORMATS
from spark_backend.sinks.formats import SINKS, Formulas, Sink
from spark_backend.sources.formats import FORMATS as SOURCE_FORMATS
from spark_backend.wire.clock import Clock
from spark_backend.wire.clock_sources import Idle

UNSUPPORTED_FORMATS = ("kafka", "delta", "rate", "orc", "avro", "text", "console", "memory", "noop", "iceberg")
"""Formats of Spark that are refused by name."""

DEFAULT_BUCKETS = 16
MAX_BUCKETS = 10_000


LONGEST_PATTERN = 1_000
"""Characters of one name in a pattern. Reading a pattern takes the square of its length."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where records come from.

    format: one of SOURCE_FORMATS
    path: a local folder
    event: every row is of this event type; None = `type_field` says it
    type_field, source_time, arrival: names of columns; None = the usual ones
    options: Spark's options of the format
    ordering: the ordering policy of its records; None = as the queries say
    ordering_line: its line in the deployment file
    idle: how long it is silent before time advances without it; None = as its ordering policy says
    ahead: µs that its arrival times may be later than the micro-batch; None = no limit
    max_record: length of the longest record that is read, in bytes; None = the usual limit
    fixed: its settings that may not change on a checkpoint
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
    idle: Idle | None = None
    ahead: int | None = None
    files: FileSettings = field(default_factory=FileSettings)
    max_record: int | None = None
    fixed: FixedValues = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment file without mistakes.

    file: its path
    queries: query files and folders
    control: the control stream; None = there is none
    sinks: by name, of those in SINKS
    buckets: number of parts that the keys are spread over
    trigger: µs between the starts of micro-batches
    checkpoint: the folder of Spark's checkpoint
    forget_keys: µs without records after which a key is forgotten; None = never
    kernels: an archive of compiled kernels for the executors; None = they compile their own
    parameters: values by query and instance, not yet compared with the queries
    fixed: the settings beside its sources that may not change on a checkpoint
    environment: the variables that values were read from, and their values
    """

    file: Path
    name: str
    queries: tuple[Path, ...]
    sources: tuple[Source, ...]
    control: Source | None
    sinks: Mapping[str, Sink]
    clock: Clock
    buckets: int
    trigger: int
    checkpoint: Path
    parameters: Given = NOTHING
    forget_keys: int | None = None
    kernels: Path | None = None
    fixed: FixedValues = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


DEFAULT_TRIGGER = 1_000_000
"""1 s in µs: with timers, Spark runs a micro-batch at nearly every trigger, records or not."""


def load_deployment(path: Path | str, environment: Mapping[str, str] | None = None) -> Deployment:
    """Read and check a deployment file; raises InputError."""
    file = Path(path)
    mistakes = Mistakes(str(path), os.environ if environment is None else environment)
    return _Reader(file, mistakes).deployment(read_document(file_text(file), mistakes))


class _Reader:
    """Reads one file; mistakes are collected and raised at the end."""

    def __init__(self, file: Path, mistakes: Mistakes) -> None:
        self.file = file
        self.folder = file.resolve().parent
        self.mistakes = mistakes
        self.folders: list[Folder] = []

    def deployment(self, root: Node) -> Deployment:
        found = root.mapping(JOB_KEYS)
        for key in ("name", "queries", "sources", "sinks", "checkpoint"):
            if key not in found:
                root.wrong(f"'{key}' is missing")
        clock = found["clock"].one_of({str(clock): clock for clock in Clock}) if "clock" in found else None
        buckets = self._buckets(found)
        checkpoint = self._path(found["checkpoint"]) if "checkpoint" in found else Path()
        if "checkpoint" in found:
            self.folders.append(Folder(FolderKind.CHECKPOINT, "", checkpoint, found["checkpoint"].line))
        forget_keys = found["forget_keys"].parsed(forget_length, EXPECTED) if "forget_keys" in found else None
        forgets = "none" if forget_keys is None else f"{forget_keys} us"
        fixed = {"clock": str(clock or Clock.ARRIVAL), "buckets": str(buckets), "forget_keys": forgets}
        result = Deployment(
            file=self.file,
            name=self._name(found),
            queries=self._queries(found["queries"]) if "queries" in found else (),
            sources=self._with_idle(found, clock or Clock.ARRIVAL) if "sources" in found else (),
            control=self._control(found["control"]) if "control" in found else None,
            sinks=self._sinks(found["sinks"]) if "sinks" in found else {},
            clock=clock or Clock.ARRIVAL,
            buckets=buckets,
            trigger=self._duration(found, "trigger", DEFAULT_TRIGGER) or 0,
            checkpoint=checkpoint,
            parameters=read_given(found["parameters"]) if "parameters" in found else NOTHING,
            forget_keys=forget_keys,
            kernels=self._archive(found["kernels"]) if "kernels" in found else None,
            fixed={
                key: fixed_value(found[key], text) if key in found else FixedValue(text) for key, text in fixed.items()
            },
            environment=self.mistakes.used,
        )
        for line, message in overlaps(self.folders):
            self.mistakes.add(line, message)
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
        elif not can_be(text):
            node.wrong(f"'{node.name}' cannot be a path: a name in it is too long, or has a NUL")
            return Path()
        return self.folder / text.removeprefix("file://")

    def _archive(self, node: Node) -> Path:
        path = self._path(node)
        if not path.is_file():
            node.wrong(f"no such archive of kernels: '{node.written()}'{self._near_file(path)}")
        elif not is_zipfile(path):
            node.wrong(f"not an archive of `ensue compile --out`: '{node.written()}'")
        return path

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
            existing = [path for path in self._matching(base, relative) if exists(path)]
            if not existing:
                item.wrong(f"no such query file: '{item.written()}'{self._near_file(base / relative)}")
            paths.extend(path for path in existing if path not in paths)
        return tuple(paths)

    def _matching(self, base: Path, relative: Path) -> list[Path]:
        """The files of a pattern; a path that exists under exactly that name is never one."""
        path = base / relative
        if exists(path) or not any(character in str(relative) for character in "*?["):
            return [path]
        if any(len(part) > LONGEST_PATTERN for part in relative.parts):
            return []
        try:
            return sorted(base.glob(str(relative)))
        except (ValueError, NotImplementedError, OSError):  # such as `a**`, and names that are too long
            return []

    def _near_file(self, path: Path) -> str:
        folder = path.parent
        return did_you_mean(path.name, [entry.name for entry in folder.iterdir()]) if is_folder(folder) else ""

    def _sources(self, node: Node) -> tuple[Source, ...]:
        entries = node.mapping()
        if not entries and not self.mistakes.found:
            node.wrong("'sources' is empty")
        if "control" in entries:
            entries["control"].wrong(
                "a source cannot be named 'control'; the control stream is a setting beside 'sources'"
            )
        return tuple(self._source(name, entry) for name, entry in sorted(entries.items()))

    def _source(self, name: str, node: Node) -> Source:
        found = node.mapping(SOURCE_KEYS)
        self._refuse_other_decoding(found)
        if "event" in found and "type_field" in found:
            found["type_field"].wrong(f"'{name}' has both 'event' and 'type_field'; expected one of them")
        source = replace(
            self._base_source(name, node, found),
            idle=self._idle(found),
            ahead=self._duration(found, "ahead", None),
            max_record=self._size(found, "max_record"),
        )
        if "ordering" not in found:
            return source
        ordering = read_ordering(found["ordering"])
        fixed = {**source.fixed, "ordering": fixed_value(found["ordering"], ordering_text(ordering))}
        return replace(source, ordering=ordering, ordering_line=found["ordering"].line, fixed=fixed)

    def _refuse_other_decoding(self, found: Mapping[str, Node]) -> None:
        if "decode" in found:
            found["decode"].one_of({"columns": "columns"}, unsupported=("json", "avro"))

    def _base_source(self, name: str, node: Node, found: Mapping[str, Node]) -> Source:
        for key in ("format", "path"):
            if key not in found and (key == "format" or "format" in found):
                node.wrong(f"'{name}' has no '{key}'")
        formats = {word: word for word in SOURCE_FORMATS}
        format_ = found["format"].one_of(formats, unsupported=UNSUPPORTED_FORMATS) if "format" in found else None
        path = self._path(found["path"]) if "path" in found else Path()
        if "path" in found and name != "control" and format_ is not None and not is_folder(path):
            found["path"].wrong(self._no_folder(name, path, found["path"].written()))
        options = self._options(found, format_)
        if "path" in found:
            kind = FolderKind.CONTROL if name == "control" else FolderKind.SOURCE
            is_recursive = options.get("recursiveFileLookup", "").lower() == "true"
            self.folders.append(Folder(kind, name, path, found["path"].line, is_recursive))
        words = {key: found[key].text() for key in ("event", "type_field", "source_time", "arrival") if key in found}
        return Source(
            name,
            format_ or "",
            path,
            event=words.get("event"),
            type_field=words.get("type_field"),
            source_time=words.get("source_time"),
            arrival=words.get("arrival"),
            options=options,
            fixed=self._fixed(found, path, format_),
            files=self._files(name, found),
        )

    def _files(self, name: str, found: Mapping[str, Node]) -> FileSettings:
        files = read_file_settings(found, lambda folder: self.folder / folder)
        if files.archive is not None:
            self.folders.append(Folder(FolderKind.ARCHIVE, name, files.archive, found["after"].line))
        return files

    def _fixed(self, found: Mapping[str, Node], path: Path, format_: str | None) -> dict[str, FixedValue]:
        """The fixed settings of a source, with its options that choose records."""
        own = fixed_values(found, SOURCE_KEYS)
        if "order" in own and own["order"].text == FileSettings().order:
            del own["order"]  # the same as none
        if "path" in own:
            own["path"] = fixed_value(found["path"], str(path.resolve()))
        if "options" not in found or format_ is None:
            return own
        options = found["options"].mapping(SOURCE_FORMATS[format_].options)
        chosen = SOURCE_FORMATS[format_].fixed
        return own | {f"options.{key}": fixed_value(node) for key, node in options.items() if key in chosen}

    def _no_folder(self, name: str, path: Path, written: str) -> str:
        if exists(path):
            return f"'{name}' must be a folder of files; '{written}' is a file"
        return f"no such folder: '{written}'{self._near_file(path)}"

    def _options(self, found: Mapping[str, Node], format_: str | None) -> dict[str, str]:
        if "options" not in found or format_ is None:
            return {}
        entry = SOURCE_FORMATS[format_]
        options = found["options"].mapping(entry.options)
        for key in entry.counts:
            if key in options:
                options[key].number(least=1, most=2**62)
        return {key: option.text() for key, option in options.items()}

    def _control(self, node: Node) -> Source:
        found = node.mapping(CONTROL_KEYS)
        return self._base_source("control", node, found)

    def _sinks(self, node: Node) -> dict[str, Sink]:
        entries = node.mapping(SINKS)
        if not entries and not self.mistakes.found:
            node.wrong(f"'sinks' is empty; expected some of {listed(SINKS)}")
        return {name: self._sink(name, entry) for name, entry in entries.items()}

    def _sink(self, name: str, node: Node) -> Sink:
        found = node.mapping(SINK_KEYS)
        for key in ("format", "path"):
            if key not in found and found:
                node.wrong(f"'{name}' has no '{key}'")
        formats = {word: word for word in SINK_FORMATS}
        format_ = found["format"].one_of(formats, unsupported=UNSUPPORTED_FORMATS) if "format" in found else None
        if "formulas" in found and format_ not in (None, "csv"):
            found["formulas"].wrong(f"'formulas' is a setting of CSV; '{name}' is {format_}")
        path = self._path(found["path"]) if "path" in found else Path()
        if "path" in found:
            self.folders.append(Folder(FolderKind.SINK, name, path, found["path"].line))
        return Sink(
            format_ or "",
            path,
            shared="shared" in found and found["shared"].one_of({"true": True, "false": False}) is True,
            formulas=self._formulas(found),
        )

    def _formulas(self, found: Mapping[str, Node]) -> Formulas:
        if "formulas" not in found:
            return Formulas.KEEP
        return found["formulas"].one_of({str(word): word for word in Formulas}) or Formulas.KEEP

    def _buckets(self, found: Mapping[str, Node]) -> int:
        if "buckets" not in found:
            return DEFAULT_BUCKETS
        return found["buckets"].number(least=1, most=MAX_BUCKETS) or DEFAULT_BUCKETS

    def _with_idle(self, found: Mapping[str, Node], clock: Clock) -> tuple[Source, ...]:
        """The sources; the job's `idle` is that of all sources that have none of their own."""
        common = self._idle(found)
        sources = tuple(
            source if source.idle is not None else replace(source, idle=common)
            for source in self._sources(found["sources"])
        )
        if clock is Clock.PROCESSING:
            nodes = [found, *(node.mapping(SOURCE_KEYS) for node in found["sources"].mapping().values())]
            for node in nodes:
                if "idle" in node:
                    node["idle"].wrong("'idle' has no meaning with the clock 'processing', which always advances")
        return sources

    def _idle(self, found: Mapping[str, Node]) -> Idle | None:
        if "idle" not in found:
            return None
        return Idle(None if found["idle"].written() == "none" else self._duration(found, "idle", 0))

    def _size(self, found: Mapping[str, Node], key: str) -> int | None:
        return found[key].parsed(parse_size, "a size from `1 kB` to `1 GB`, such as `16 MB`") if key in found else None

    def _duration(self, found: Mapping[str, Node], key: str, default: int | None) -> int | None:
        if key not in found:
            return default
        return found[key].parsed(parse_duration, "a length of time such as `1 second` or `500ms`")
